//! The token without which the inspector changes nothing in the program: `FIBRA_INSPECT_TOKEN`.
//!
//! A request that acts names it in a header, `Authorization: Bearer <token>`. A page of another site that a browser on this machine shows
//! cannot do so: such a header needs a permission that the inspector never gives. Two tokens are compared in a time that depends on their
//! lengths only.
//!
//! Above: `endpoint.rs`, `runtime::builder`. Below: nothing.

/// The shortest token: what can be guessed is none.
const SHORTEST: usize = 16;

/// A token. It is never printed.
#[derive(Clone)]
pub(crate) struct Token(Box<[u8]>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// From the value of `FIBRA_INSPECT_TOKEN`. The error does not repeat the value.
    pub(crate) fn parse(value: &str) -> Result<Option<Self>, String> {
        match value {
            "" => Ok(None),
            short if short.len() < SHORTEST => {
                Err(format!("has {} characters; a token has at least {SHORTEST}", short.len()))
            }
            odd if !odd.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("has a character that a header cannot carry; use letters and digits".to_owned())
            }
            token => Ok(Some(Self(token.as_bytes().into()))),
        }
    }

    /// Is this the value of an `Authorization` header that names the token?
    pub(super) fn is_named_by(&self, header: &str) -> bool {
        let (scheme, given) = header.trim().split_once(' ').unwrap_or(("", ""));
        scheme.eq_ignore_ascii_case("bearer") && is_equal(&self.0, given.trim().as_bytes())
    }
}

/// Looks at every byte, whether an earlier one differs or not.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |differing, (a, b)| std::hint::black_box(differing | (a ^ b)));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_plain() {
        assert!(Token::parse("").unwrap().is_none());
        let short = Token::parse("123456789012345").unwrap_err();
        assert!(short.contains("15 characters") && !short.contains("1234"), "{short}");
        assert!(Token::parse("1234567890 123456").is_err() && Token::parse("12345678901234567\n").is_err());
        assert_eq!(format!("{:?}", Token::parse("1234567890123456").unwrap()), "Some(Token(..))");
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token::parse("abcdefghijklmnop").unwrap().unwrap();
        assert!(token.is_named_by("Bearer abcdefghijklmnop") && token.is_named_by(" bearer  abcdefghijklmnop "));
        for wrong in ["", "Bearer", "Bearer ", "abcdefghijklmnop", "Basic abcdefghijklmnop", "Bearer abcdefghijklmno"] {
            assert!(!token.is_named_by(wrong), "{wrong}");
        }
        for wrong in ["abcdefghijklmnopq", "Abcdefghijklmnop", "abcdefghijklmnoP", "abcdefghijklmno\u{fc}"] {
            assert!(!token.is_named_by(&format!("Bearer {wrong}")), "{wrong}");
        }
    }
}
