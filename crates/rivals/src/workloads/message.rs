//! The messages of the channel workloads: 8 bytes, 64 bytes or 1 KiB, by value. `bytes` on the command line decides; every size is
//! compiled on its own, as in a program that sends one type. Only the channel writes and reads a whole message.

/// The sizes, in the order of the tables.
pub(crate) const BYTES: [u64; 3] = [8, 64, 1024];

pub(crate) trait Message: Copy + Send + Sync + 'static {
    fn numbered(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Message for u64 {
    #[inline(always)]
    fn numbered(number: u64) -> u64 {
        number
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        *self
    }
}

impl<const WORDS: usize> Message for [u64; WORDS] {
    #[inline(always)]
    fn numbered(number: u64) -> Self {
        let mut message = [0; WORDS];
        message[0] = number;
        message
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        self[0]
    }
}

/// Calls the function for the peer and for the type of message that `bytes` asks for.
macro_rules! by_message {
    ($params:expr, $run:ident, $peer:ident) => {
        match $params.get("bytes") {
            8 => $run::<$peer, u64>($params),
            64 => $run::<$peer, [u64; 8]>($params),
            1024 => $run::<$peer, [u64; 128]>($params),
            other => panic!("bytes={other}: 8, 64 or 1024"),
        }
    };
}
pub(crate) use by_message;
