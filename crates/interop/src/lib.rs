//! fibra's sockets against programs of other projects: the code that the tests in `tests/` share, and that `rivals` uses for its figures of
//! TLS connections.
//!
//! Unpublished. It exists so that the library's own tests need neither a TLS library nor a C compiler.
//!
//! | test | against |
//! |---|---|
//! | `tls` | rustls, over fiber sockets and over std's |
//! | `websocket` | tungstenite, also over TLS |
//! | `std_peers` | sockets of std: TCP, Unix, UDP |
//! | `redis` | redis-server, if it is installed |
//! | `ten_thousand` | ten thousand connections to one process |

pub mod tls;

pub use rustls;
