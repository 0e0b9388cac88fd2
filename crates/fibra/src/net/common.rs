//! Methods that sockets of one kind have in common, written once: of datagram sockets (UDP, Unix) and of listeners (TCP, Unix).
//!
//! Above: `udp.rs`, `unix_datagram.rs`, `listener.rs`, `unix.rs`, which add what differs. Below: `net::socket`.

/// Receiving from any sender and from the peer, sending to the peer, and their forms. Where the two kinds of sockets promise different
/// things, the socket's own file says them.
macro_rules! datagrams {
    (
        $ours:ident, $std:ty, $address:ty, an unconnected one: $example:literal,
        $(#[$on_recv:meta])* recv,
        $(#[$on_send:meta])* send $(,)?
    ) => {
        impl $ours {
            /// Waits for a datagram; returns its length and its sender's address. Bytes that do not fit into the buffer are lost.
            ///
            /// # Errors
            /// Time-outs, and what the system reports.
            #[track_caller]
            pub fn recv_from(&self, buffer: &mut [u8]) -> std::io::Result<(usize, $address)> {
                self.socket.reading(std::panic::Location::caller(), |socket| socket.recv_from(buffer))
            }

            /// A datagram that is there already.
            ///
            /// # Errors
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock): there is none. Otherwise as [`recv_from`](Self::recv_from).
            pub fn try_recv_from(&self, buffer: &mut [u8]) -> std::io::Result<(usize, $address)> {
                self.socket.trying(|socket| socket.recv_from(buffer))
            }

            /// [`recv_from`](Self::recv_from), waiting so long at most instead of the read time-out.
            ///
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and what the system reports.
            #[track_caller]
            pub fn recv_from_timeout(
                &self,
                buffer: &mut [u8],
                timeout: std::time::Duration,
            ) -> std::io::Result<(usize, $address)> {
                let limit = crate::wait::io::Limit::After(timeout);
                self.socket.reading_until(std::panic::Location::caller(), limit, |socket| socket.recv_from(buffer))
            }

            /// [`recv_from`](Self::recv_from), waiting until then at most instead of the read time-out.
            ///
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and what the system reports.
            #[track_caller]
            pub fn recv_from_deadline(
                &self,
                buffer: &mut [u8],
                deadline: impl Into<crate::time::Instant>,
            ) -> std::io::Result<(usize, $address)> {
                let limit = crate::net::socket::until(deadline);
                self.socket.reading_until(std::panic::Location::caller(), limit, |socket| socket.recv_from(buffer))
            }

            /// The async form of [`recv_from`](Self::recv_from).
            ///
            /// # Errors
            /// What the system reports.
            pub async fn recv_from_async(&self, buffer: &mut [u8]) -> std::io::Result<(usize, $address)> {
                self.socket.reading_async(|socket| socket.recv_from(buffer)).await
            }

            $(#[$on_recv])*
            #[track_caller]
            pub fn recv(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.socket.reading(std::panic::Location::caller(), |socket| socket.recv(buffer))
            }

            /// A datagram that is there already.
            ///
            /// # Errors
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock): there is none. Otherwise as [`recv`](Self::recv).
            pub fn try_recv(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.socket.trying(|socket| socket.recv(buffer))
            }

            /// [`recv`](Self::recv), waiting so long at most instead of the read time-out.
            ///
            /// ```
            /// use std::io::ErrorKind;
            /// use std::time::Duration;
            #[doc = concat!("use fibra::net::", stringify!($ours), ";")]
            ///
            /// fibra::run(|| {
            #[doc = concat!("    let socket = ", $example, ".unwrap();")]
            ///     let error = socket.recv_timeout(&mut [0; 8], Duration::from_millis(2)).unwrap_err();
            ///     assert_eq!(error.kind(), ErrorKind::TimedOut);
            /// });
            /// ```
            ///
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and what the system reports.
            #[track_caller]
            pub fn recv_timeout(&self, buffer: &mut [u8], timeout: std::time::Duration) -> std::io::Result<usize> {
                let limit = crate::wait::io::Limit::After(timeout);
                self.socket.reading_until(std::panic::Location::caller(), limit, |socket| socket.recv(buffer))
            }

            /// [`recv`](Self::recv), waiting until then at most instead of the read time-out.
            ///
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and what the system reports.
            #[track_caller]
            pub fn recv_deadline(
                &self,
                buffer: &mut [u8],
                deadline: impl Into<crate::time::Instant>,
            ) -> std::io::Result<usize> {
                let limit = crate::net::socket::until(deadline);
                self.socket.reading_until(std::panic::Location::caller(), limit, |socket| socket.recv(buffer))
            }

            /// The async form of [`recv`](Self::recv).
            ///
            /// # Errors
            /// What the system reports.
            pub async fn recv_async(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.socket.reading_async(|socket| socket.recv(buffer)).await
            }

            $(#[$on_send])*
            #[track_caller]
            pub fn send(&self, buffer: &[u8]) -> std::io::Result<usize> {
                self.socket.writing(std::panic::Location::caller(), |socket| socket.send(buffer))
            }

            /// Sends to the address it is connected to, if there is room.
            ///
            /// # Errors
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock): there is none. Otherwise as [`send`](Self::send).
            pub fn try_send(&self, buffer: &[u8]) -> std::io::Result<usize> {
                self.socket.trying(|socket| socket.send(buffer))
            }

            /// The async form of [`send`](Self::send).
            ///
            /// # Errors
            /// What the system reports.
            pub async fn send_async(&self, buffer: &[u8]) -> std::io::Result<usize> {
                self.socket.writing_async(|socket| socket.send(buffer)).await
            }

            /// Another handle to the same socket. Time-outs are shared.
            ///
            /// # Errors
            /// There are no descriptors left.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                Ok(Self { socket: self.socket.try_clone(<$std>::try_clone)? })
            }
        }
    };
}
pub(super) use datagrams;

/// Accepting connections, and its forms; `accept_now` tries once.
macro_rules! accepts {
    (
        $ours:ident, $std:ty, $accepted:ty, $accept_now:ident,
        $(#[$on_accept:meta])* accept,
        $(#[$on_timeout:meta])* accept_timeout,
        $(#[$on_accepting:meta])* accepting,
        $(#[$on_incoming:meta])* incoming: $incoming:ident, item: $item:ty $(,)?
    ) => {
        impl $ours {
            /// The address it listens on.
            ///
            /// # Errors
            /// If the system cannot say.
            pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
                self.socket.get().local_addr()
            }

            $(#[$on_accept])*
            #[track_caller]
            pub fn accept(&self) -> std::io::Result<$accepted> {
                let limit = crate::wait::io::Limit::Never;
                self.socket.accepting(std::panic::Location::caller(), limit, $accept_now)
            }

            /// A connection that is there already.
            ///
            /// # Errors
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock): there is none. Otherwise as [`accept`](Self::accept).
            pub fn try_accept(&self) -> std::io::Result<$accepted> {
                self.socket.trying($accept_now)
            }

            /// [`accept`](Self::accept), waiting so long at most.
            ///
            $(#[$on_timeout])*
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and as [`accept`](Self::accept).
            #[track_caller]
            pub fn accept_timeout(&self, timeout: std::time::Duration) -> std::io::Result<$accepted> {
                let limit = crate::wait::io::Limit::After(timeout);
                self.socket.accepting(std::panic::Location::caller(), limit, $accept_now)
            }

            /// [`accept`](Self::accept), waiting until then at most.
            ///
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and as [`accept`](Self::accept).
            #[track_caller]
            pub fn accept_deadline(&self, deadline: impl Into<crate::time::Instant>) -> std::io::Result<$accepted> {
                let limit = crate::net::socket::until(deadline);
                self.socket.accepting(std::panic::Location::caller(), limit, $accept_now)
            }

            /// The async form of [`accept`](Self::accept). Dropped before it is ready, it has accepted nothing.
            ///
            /// # Errors
            /// As there.
            pub async fn accept_async(&self) -> std::io::Result<$accepted> {
                self.socket.reading_async($accept_now).await
            }

            $(#[$on_accepting])*
            pub fn accepting(&self) -> crate::net::arm::AcceptArm<'_, $accepted> {
                crate::net::arm::AcceptArm::new(self)
            }

            $(#[$on_incoming])*
            pub fn incoming(&self) -> $incoming<'_> {
                $incoming { listener: self }
            }

            /// Another handle to the same socket.
            ///
            /// # Errors
            /// There are no descriptors left.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                Ok(Self { socket: self.socket.try_clone(<$std>::try_clone)? })
            }

            /// The error that is pending on the socket, if any, which is then forgotten.
            ///
            /// # Errors
            /// If the system cannot say.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.socket.get().take_error()
            }
        }

        impl crate::net::arm::Listening for $ours {
            type Accepted = $accepted;

            fn readiness(&self) -> crate::wait::io::Readiness<'_> {
                use crate::wait::io::Direction::Read;
                let io = &self.socket.io;
                io.readiness(Read, io.reports(Read))
            }

            fn accept_if_any(&self) -> std::io::Result<Self::Accepted> {
                self.socket.io.try_now($accept_now)
            }
        }

        #[doc = concat!("See [`", stringify!($ours), "::incoming`].")]
        #[derive(Debug)]
        pub struct $incoming<'a> {
            listener: &'a $ours,
        }

        impl Iterator for $incoming<'_> {
            type Item = std::io::Result<$item>;

            #[track_caller]
            fn next(&mut self) -> Option<Self::Item> {
                Some(crate::net::listener::accept_patiently(|| self.listener.accept()).map(|(stream, _)| stream))
            }
        }

        impl std::iter::FusedIterator for $incoming<'_> {}
    };
}
pub(super) use accepts;
