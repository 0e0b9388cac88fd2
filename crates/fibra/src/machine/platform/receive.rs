//! The rings of standing receives: bytes of a stream, or datagrams with their addresses, written by a platform and read
//! by the initiator.
//!
//! Above: `io` (a standing receive carries the writing end), users, which read. Below: `prim`.
//!
//! All memory is allocated when a ring is made. Its two ends may be on two threads; they meet at a lock that is held
//! for one copy, with no user code under it. The ring's policy decides what happens to data that does not fit, and the
//! ring counts it. The platform rings the doorbell after it has written; the reader, when rung, reads until the ring is
//! empty. (Why this order loses nothing: see `ring` and `unring` in `machine/node.rs`.)
//!
//! Invariants: at most `capacity` bytes (and so many datagrams) are in a ring, in the order of their coming;
//! received = read + dropped + overwritten + what is in the ring.

use std::collections::VecDeque;
use std::fmt;

use super::super::ring::Overflow;
use crate::driver::transfer::Address;
use crate::prim::spin::SpinLock;
use crate::prim::sync::Arc;

/// What has passed through the ring of a standing receive: bytes of a stream, or whole datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecvStats {
    /// Bytes or datagrams that came from the network.
    pub received: u64,
    /// Bytes or datagrams that were read out of the ring.
    pub read: u64,
    /// Bytes or datagrams that a full ring did not take.
    pub dropped: u64,
    /// Bytes or datagrams that a full ring threw out for newer ones.
    pub overwritten: u64,
    /// Datagrams of which only the beginning fitted into the room for one.
    pub truncated: u64,
}

/// Bytes in a circle.
struct Circle {
    memory: Box<[u8]>,
    first: usize,
    len: usize,
}

impl Circle {
    fn new(capacity: usize) -> Self {
        Self { memory: vec![0; capacity].into(), first: 0, len: 0 }
    }

    fn room(&self) -> usize {
        self.memory.len() - self.len
    }

    /// There must be room.
    fn push(&mut self, bytes: &[u8]) {
        let capacity = self.memory.len();
        let at = (self.first + self.len) % capacity;
        let (one, two) = bytes.split_at(bytes.len().min(capacity - at));
        self.memory[at..at + one.len()].copy_from_slice(one);
        self.memory[..two.len()].copy_from_slice(two);
        self.len += bytes.len();
    }

    /// Copies the oldest bytes, as many as there are and `to` has room for, and says how many.
    fn copy(&self, to: &mut [u8]) -> usize {
        let number = to.len().min(self.len);
        let (one, two) = to[..number].split_at_mut(number.min(self.memory.len() - self.first));
        one.copy_from_slice(&self.memory[self.first..self.first + one.len()]);
        two.copy_from_slice(&self.memory[..two.len()]);
        number
    }

    fn skip(&mut self, number: usize) {
        self.first = (self.first + number) % self.memory.len();
        self.len -= number;
    }
}

struct Bytes {
    circle: Circle,
    overflow: Overflow,
    stats: RecvStats,
}

impl Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.stats.received += bytes.len() as u64;
        let room = self.circle.room();
        let bytes = match self.overflow {
            Overflow::DropNewest => {
                let (kept, dropped) = bytes.split_at(bytes.len().min(room));
                self.stats.dropped += dropped.len() as u64;
                kept
            }
            Overflow::OverwriteOldest => {
                // More than the ring holds: its own beginning is too old as well.
                let kept = &bytes[bytes.len().saturating_sub(self.circle.memory.len())..];
                let gone = kept.len().saturating_sub(room);
                self.circle.skip(gone);
                self.stats.overwritten += (gone + bytes.len() - kept.len()) as u64;
                kept
            }
        };
        self.circle.push(bytes);
    }
}

/// A ring for the bytes of a stream, with what it does when it is full. The writer goes into
/// [`receive_into`](super::receive_into), the reader stays with the machine.
///
/// A policy loses bytes when the reader is too slow: this is for streams where the newest (or the oldest) is what matters. Where every byte
/// counts, [`read`](super::read()) one buffer after the other: what is not read yet then waits in the system, and with it the sender.
///
/// # Panics
/// If `capacity` is 0.
pub fn byte_ring(capacity: usize, overflow: Overflow) -> (ByteWriter, ByteReader) {
    assert!(capacity > 0, "fibra: a ring has room for at least one byte");
    let shared = Bytes { circle: Circle::new(capacity), overflow, stats: RecvStats::default() };
    let shared = Arc::new(SpinLock::new(shared));
    (ByteWriter(shared.clone()), ByteReader(shared))
}

/// The end of a byte ring that a platform writes.
pub struct ByteWriter(Arc<SpinLock<Bytes>>);

impl ByteWriter {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.0.with(|shared| shared.write(bytes));
    }

    /// What has passed so far.
    pub fn stats(&self) -> RecvStats {
        self.0.with(|shared| shared.stats)
    }
}

/// The end of a byte ring that the requester reads.
pub struct ByteReader(Arc<SpinLock<Bytes>>);

impl ByteReader {
    /// Takes out as much as there is, and `to` has room for; 0: there is nothing.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        self.0.with(|shared| {
            let number = shared.circle.copy(to);
            shared.circle.skip(number);
            shared.stats.read += number as u64;
            number
        })
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.with(|shared| shared.circle.len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has passed so far.
    pub fn stats(&self) -> RecvStats {
        self.0.with(|shared| shared.stats)
    }
}

struct Datagrams {
    circle: Circle,
    /// The length and the address of each datagram in the circle, oldest first.
    parts: VecDeque<(usize, Address)>,
    number: usize,
    overflow: Overflow,
    stats: RecvStats,
}

impl Datagrams {
    fn fits(&self, len: usize) -> bool {
        self.parts.len() < self.number && self.circle.room() >= len
    }

    fn write(&mut self, bytes: &[u8], from: Address) {
        self.stats.received += 1;
        while self.overflow == Overflow::OverwriteOldest && !self.fits(bytes.len()) {
            let Some((len, _)) = self.parts.pop_front() else { break };
            self.circle.skip(len);
            self.stats.overwritten += 1;
        }
        if self.fits(bytes.len()) {
            self.circle.push(bytes);
            self.parts.push_back((bytes.len(), from));
        } else {
            self.stats.dropped += 1;
        }
    }
}

/// A ring for at most so many datagrams, of so many bytes together, with what it does when it is full. The writer goes into
/// [`receive_into`](super::receive_into), the reader stays with the machine. A datagram that is longer than all of the ring is dropped.
///
/// # Panics
/// If either is 0.
pub fn datagram_ring(datagrams: usize, bytes: usize, overflow: Overflow) -> (DatagramWriter, DatagramReader) {
    assert!(datagrams > 0 && bytes > 0, "fibra: a ring has room for at least one datagram of one byte");
    let shared = Datagrams {
        circle: Circle::new(bytes),
        parts: VecDeque::with_capacity(datagrams),
        number: datagrams,
        overflow,
        stats: RecvStats::default(),
    };
    let shared = Arc::new(SpinLock::new(shared));
    (DatagramWriter(shared.clone()), DatagramReader(shared))
}

/// The end of a datagram ring that a platform writes.
pub struct DatagramWriter(Arc<SpinLock<Datagrams>>);

impl DatagramWriter {
    /// `truncated`: it was longer than this.
    pub(super) fn write(&mut self, bytes: &[u8], from: Address, truncated: bool) {
        self.0.with(|shared| {
            shared.stats.truncated += u64::from(truncated);
            shared.write(bytes, from);
        });
    }

    /// What has passed so far.
    pub fn stats(&self) -> RecvStats {
        self.0.with(|shared| shared.stats)
    }
}

/// The end of a datagram ring that the requester reads.
pub struct DatagramReader(Arc<SpinLock<Datagrams>>);

impl DatagramReader {
    /// Takes the oldest datagram out: its length, and where it came from. What `to` has no room for is lost, and counted as truncated.
    pub fn read(&mut self, to: &mut [u8]) -> Option<(usize, Address)> {
        self.0.with(|shared| {
            let (len, from) = shared.parts.pop_front()?;
            let room = to.len().min(len);
            let number = shared.circle.copy(&mut to[..room]);
            shared.circle.skip(len);
            shared.stats.read += 1;
            shared.stats.truncated += u64::from(number < len);
            Some((number, from))
        })
    }

    /// How many datagrams there are.
    pub fn len(&self) -> usize {
        self.0.with(|shared| shared.parts.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has passed so far.
    pub fn stats(&self) -> RecvStats {
        self.0.with(|shared| shared.stats)
    }
}

macro_rules! debug {
    ($($end:ident),+) => {$(
        impl fmt::Debug for $end {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($end)).field("stats", &self.stats()).finish_non_exhaustive()
            }
        }
    )+};
}
debug!(ByteWriter, ByteReader, DatagramWriter, DatagramReader);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::policy::Rng;

    /// All that adds up must.
    fn balance(stats: RecvStats, inside: usize) {
        let RecvStats { received, read, dropped, overwritten, .. } = stats;
        assert_eq!(received, read + dropped + overwritten + inside as u64);
    }

    // S3-50, S3-51, S3-106: against a plain list, at random.
    #[test]
    fn bytes_agree_with_a_list() {
        let mut rng = Rng::from_seed(5);
        for overflow in [Overflow::DropNewest, Overflow::OverwriteOldest] {
            let (mut writer, mut reader) = byte_ring(13, overflow);
            let mut list = VecDeque::<u8>::new();
            let mut next = 0_u8;
            for _ in 0..5_000 {
                let bytes: Vec<u8> = (0..rng.below(20)).map(|_| (next = next.wrapping_add(1), next).1).collect();
                writer.write(&bytes);
                match overflow {
                    Overflow::DropNewest => list.extend(bytes.iter().take(13 - list.len())),
                    Overflow::OverwriteOldest => {
                        list.extend(&bytes);
                        list.drain(..list.len().saturating_sub(13));
                    }
                }
                let mut room = vec![0; rng.below(16)];
                let number = reader.read(&mut room);
                assert_eq!(number, room.len().min(list.len()));
                assert!(list.drain(..number).eq(room[..number].iter().copied()));
                assert_eq!(reader.len(), list.len());
                balance(reader.stats(), reader.len());
            }
            let stats = writer.stats();
            assert_eq!(
                (stats.dropped > 0, stats.overwritten > 0),
                (overflow == Overflow::DropNewest, overflow == Overflow::OverwriteOldest)
            );
        }
    }

    // S3-50, S3-51, S3-106: datagrams stay whole, with their addresses.
    #[test]
    fn datagrams_agree_with_a_list() {
        let mut rng = Rng::from_seed(6);
        for overflow in [Overflow::DropNewest, Overflow::OverwriteOldest] {
            let (mut writer, mut reader) = datagram_ring(4, 50, overflow);
            let mut list: VecDeque<(Vec<u8>, Address)> = VecDeque::new();
            let fits = |list: &VecDeque<(Vec<u8>, Address)>, len: usize| {
                list.len() < 4 && list.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() + len <= 50
            };
            for round in 0..5_000_u16 {
                let bytes = vec![round as u8; rng.below(60)];
                let from = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], round)));
                writer.write(&bytes, from.clone(), false);
                while overflow == Overflow::OverwriteOldest && !fits(&list, bytes.len()) && !list.is_empty() {
                    list.pop_front();
                }
                if fits(&list, bytes.len()) {
                    list.push_back((bytes, from));
                }
                if rng.below(3) == 0 {
                    let mut room = [0; 40];
                    let read = reader.read(&mut room);
                    let expected = list.pop_front();
                    assert_eq!(read.is_some(), expected.is_some());
                    if let (Some((number, from)), Some((bytes, address))) = (read, expected) {
                        assert_eq!((&room[..number], from), (&bytes[..bytes.len().min(40)], address));
                    }
                }
                assert_eq!(reader.len(), list.len());
                balance(reader.stats(), reader.len());
            }
            assert!(reader.stats().truncated > 0);
        }
    }

    #[test]
    #[should_panic(expected = "at least one byte")]
    fn a_byte_ring_has_room() {
        byte_ring(0, Overflow::DropNewest);
    }

    #[test]
    #[should_panic(expected = "at least one datagram")]
    fn a_datagram_ring_has_room() {
        datagram_ring(0, 10, Overflow::DropNewest);
    }
}
