//! The target of a request: the four forms of RFC 9112, 3.2, and the host. Pure functions over bytes. Above: `head`.

use crate::error::HeadError;

/// The places of the parts of a target. Offsets into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Of `http://host:port/..` and of `CONNECT host:port`: host and port.
    pub(crate) authority: Option<(usize, usize)>,
    /// The path; empty for `CONNECT`, and `*` for `OPTIONS *`.
    pub(crate) path: (usize, usize),
    /// What follows the first `?`.
    pub(crate) query: Option<(usize, usize)>,
}

/// Takes a target apart and checks that its form goes with the method.
pub(crate) fn parse(method: &str, target: &[u8]) -> Result<Parts, HeadError> {
    // A fragment is not sent, and bytes that are not ASCII are written with percent signs.
    if target.is_empty() || !target.iter().all(|byte| (0x21..=0x7e).contains(byte) && *byte != b'#') {
        return Err(HeadError::Target);
    }
    if method == "CONNECT" {
        let is_complete =
            is_authority(target) && target.iter().rposition(|byte| *byte == b':').is_some_and(|colon| colon > 0);
        let has_port = target.last().is_some_and(u8::is_ascii_digit);
        return if is_complete && has_port {
            Ok(Parts { authority: Some((0, target.len())), ..Parts::default() })
        } else {
            Err(HeadError::Target)
        };
    }
    if target == b"*" {
        return if method == "OPTIONS" {
            Ok(Parts { path: (0, 1), ..Parts::default() })
        } else {
            Err(HeadError::Target)
        };
    }
    if target[0] == b'/' {
        return Ok(path_and_query(target, 0, None));
    }
    let after_scheme = if starts_with_ignoring_case(target, b"http://") {
        7
    } else if starts_with_ignoring_case(target, b"https://") {
        8
    } else {
        return Err(HeadError::Target);
    };
    let end = target[after_scheme..].iter().position(|byte| matches!(byte, b'/' | b'?'));
    let end = end.map_or(target.len(), |end| after_scheme + end);
    // A target without a host is refused (RFC 9110, 4.2.1): `http://:80/`.
    if matches!(target.get(after_scheme), None | Some(b'/' | b'?' | b':')) || !is_authority(&target[after_scheme..end])
    {
        return Err(HeadError::Target);
    }
    Ok(path_and_query(target, end, Some((after_scheme, end))))
}

fn path_and_query(target: &[u8], start: usize, authority: Option<(usize, usize)>) -> Parts {
    match target[start..].iter().position(|byte| *byte == b'?') {
        Some(mark) => Parts { authority, path: (start, start + mark), query: Some((start + mark + 1, target.len())) },
        None => Parts { authority, path: (start, target.len()), query: None },
    }
}

fn starts_with_ignoring_case(bytes: &[u8], start: &[u8]) -> bool {
    bytes.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

/// Is this `host` or `host:port`? No user, no path, no list: what one server takes for a host, the next must not take for something else.
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    let (host, port) = match bytes {
        [b'[', ..] => match bytes.iter().position(|byte| *byte == b']') {
            Some(end) => bytes.split_at(end + 1),
            None => return false,
        },
        _ => bytes.split_at(bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len())),
    };
    let host_is_valid = match host {
        [b'[', inside @ .., b']'] => {
            !inside.is_empty()
                && inside.iter().all(|byte| byte.is_ascii_alphanumeric() || b":.-_~!$&'()*+,;=%".contains(byte))
        }
        _ => host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(byte)),
    };
    let port_is_valid = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    host_is_valid && port_is_valid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(method: &str, target: &str) -> Option<(Option<String>, String, Option<String>)> {
        let parts = parse(method, target.as_bytes()).ok()?;
        let text = |(start, end): (usize, usize)| target[start..end].to_owned();
        Some((parts.authority.map(text), text(parts.path), parts.query.map(text)))
    }

    #[test]
    fn the_four_forms() {
        let owned = |text: &str| Some(text.to_owned());
        assert_eq!(shown("GET", "/"), Some((None, "/".into(), None)));
        assert_eq!(shown("GET", "/a/b?c=d?e"), Some((None, "/a/b".into(), owned("c=d?e"))));
        assert_eq!(shown("GET", "/?"), Some((None, "/".into(), owned(""))));
        assert_eq!(shown("GET", "//double"), Some((None, "//double".into(), None)));
        assert_eq!(shown("GET", "http://a.example:80/x?y"), Some((owned("a.example:80"), "/x".into(), owned("y"))));
        assert_eq!(shown("GET", "HTTPS://[::1]:8443"), Some((owned("[::1]:8443"), String::new(), None)));
        assert_eq!(shown("GET", "http://a?q"), Some((owned("a"), String::new(), owned("q"))));
        assert_eq!(shown("CONNECT", "a.example:443"), Some((owned("a.example:443"), String::new(), None)));
        assert_eq!(shown("OPTIONS", "*"), Some((None, "*".into(), None)));
    }

    #[test]
    fn what_is_no_target() {
        for target in [
            "",
            "*",
            "a",
            "a/b",
            "/a#b",
            "/\u{e9}",
            "/a b",
            "/\x7f",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://:80/",
            "http://?x",
            "http://a@b/",
            "?",
        ] {
            assert_eq!(shown("GET", target), None, "{target:?}");
        }
        for target in ["/", "a.example", "http://a.example:80/", ":80", "a.example:", "a:b", "a,b:80"] {
            assert_eq!(shown("CONNECT", target), None, "{target:?}");
        }
    }

    #[test]
    fn what_is_a_host() {
        for host in ["", "a", "a.example:80", "127.0.0.1:8080", "[::1]", "[::1]:80", "xn--a", "a:"] {
            assert!(is_authority(host.as_bytes()), "{host:?}");
        }
        for host in [
            "a b", "a,b", "a/b", "a@b", "a:b", "[::1", "::1", "a?b", "a\"", "a:123456", "[]", "[::1]x", "a:80:80",
            "\u{e9}",
        ] {
            assert!(!is_authority(host.as_bytes()), "{host:?}");
        }
    }
}
