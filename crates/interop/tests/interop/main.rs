//! Tests of fibra's sockets against protocols, clients and servers of other projects.
//!
//! One program, so that it is linked once; a module is one protocol. The test that counts the descriptors of the process is
//! `ten_thousand.rs`.

mod https;
mod redis;
mod std_peers;
#[path = "../../../fibra/tests/support/mod.rs"]
mod support;
mod tls;
mod websocket;
