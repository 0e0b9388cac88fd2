//! Limits: none costs memory before bytes come for it.

mod support;

use fibra_http::{Request, Server};
use support::{serve_with, watchdog};

/// As many fields as were allowed were once allocated for a request with more than 64 of them: a panic or an abort, by a remote request.
#[test]
fn header_fields_cost_what_arrives_and_not_what_may() {
    let _watchdog = watchdog(60);
    for most in [1 << 40, usize::MAX / 64, usize::MAX, 1000] {
        let server = serve_with(Server::builder().max_headers(most), |request: &mut Request<'_>| {
            format!("{} fields", request.headers().count())
        });
        let mut client = server.connect();
        for count in [1, 63, 64, 65, 66, 500, 1000] {
            let head = format!("GET / HTTP/1.1\r\nHost: t\r\n{}", "A: b\r\n".repeat(count - 1));
            // Whole; cut before the end, and in the middle of the last field.
            for cut in [head.len(), head.len() - 2, head.len() - 5] {
                client.send(&head[..cut]);
                assert_eq!(client.ask(format!("{}\r\n", &head[cut..])).text(), format!("{count} fields"));
            }
        }
    }
}
