//! The grammar of chunks (RFC 9112, 7.1), strictly: pure functions over bytes.
//!
//! Above: `body`, which gets the bytes. A line ends with CR LF; a size is hexadecimal digits and nothing before, between or behind them;
//! extensions are skipped, and bounded.

/// The longest line with a size and its extensions.
pub(crate) const LONGEST_LINE: usize = 1024;

/// A parsed line with a chunk's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeLine {
    pub(crate) size: u64,
    /// The bytes of the line, with its end.
    pub(crate) length: usize,
    /// How many of these bytes are extensions.
    pub(crate) extension: usize,
}

/// The bytes are no line with a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Reads the line with a chunk's size; `None`: the line has not come to its end.
pub(crate) fn size_line(bytes: &[u8]) -> Result<Option<SizeLine>, Malformed> {
    let mut size = 0u64;
    let mut at = 0;
    loop {
        let Some(byte) = bytes.get(at) else { return Ok(None) };
        let Some(digit) = (*byte as char).to_digit(16) else { break };
        size = size.checked_mul(16).ok_or(Malformed)? | u64::from(digit);
        at += 1;
        // Leading zeros do not overflow; so many of them have no meaning.
        if at > 16 {
            return Err(Malformed);
        }
    }
    if at == 0 {
        return Err(Malformed);
    }
    let digits = at;
    if bytes[at] == b';' {
        loop {
            match bytes.get(at) {
                Some(b'\t' | b' '..=0x7e | 0x80..=0xff) => at += 1,
                Some(_) => break,
                None if at >= LONGEST_LINE => return Err(Malformed),
                None => return Ok(None),
            }
        }
    }
    if at > LONGEST_LINE {
        return Err(Malformed);
    }
    match bytes.get(at..) {
        Some([b'\r', b'\n', ..]) => Ok(Some(SizeLine { size, length: at + 2, extension: at - digits })),
        Some([b'\r']) => Ok(None),
        _ => Err(Malformed),
    }
}

/// The end of a chunk's data; `None`: it has not come yet.
pub(crate) fn data_end(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    match bytes {
        [b'\r', b'\n', ..] => Ok(Some(2)),
        [] | [b'\r'] => Ok(None),
        _ => Err(Malformed),
    }
}

/// The end of the trailer section, its empty line included; `None`: it has not come yet.
pub(crate) fn trailer_end(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut line = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'\n' {
            continue;
        }
        if at == 0 || bytes[at - 1] != b'\r' {
            return Err(Malformed);
        }
        if at - line == 1 {
            return Ok(Some(at + 1));
        }
        line = at + 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Option<(u64, usize)>, Malformed> {
        size_line(text.as_bytes()).map(|line| line.map(|line| (line.size, line.length)))
    }

    #[test]
    fn sizes() {
        assert_eq!(line("0\r\n"), Ok(Some((0, 3))));
        assert_eq!(line("aF\r\nrest"), Ok(Some((0xAF, 4))));
        assert_eq!(line("0000000000000010\r\n"), Ok(Some((16, 18))));
        assert_eq!(line("ffffffffffffffff\r\n"), Ok(Some((u64::MAX, 18))));
        assert_eq!(line("5;a=b;c=\"d\"\r\n"), Ok(Some((5, 13))));
        assert_eq!(size_line(b"5;a=b\r\n"), Ok(Some(SizeLine { size: 5, length: 7, extension: 4 })));
    }

    #[test]
    fn what_is_no_size() {
        let bad = [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+1\r\n",
            " 1\r\n",
            "1 \r\n",
            "0x1\r\n",
            "1\n",
            "1\rx",
            "1;a\n",
            "1;a\rb",
            "1_0\r\n",
            ";a\r\n",
            "10000000000000000\r\n",
            "00000000000000001\r\n",
            "1;\0\r\n",
            "1\t\r\n",
            "\u{661}\r\n",
        ];
        for text in bad {
            assert_eq!(line(text), Err(Malformed), "{text:?}");
        }
        assert_eq!(line(&format!("1;{}\r\n", "a".repeat(LONGEST_LINE))), Err(Malformed));
        assert_eq!(line(&format!("1;{}", "a".repeat(LONGEST_LINE))), Err(Malformed), "also before its end has come");
    }

    #[test]
    fn a_part_of_a_line_is_not_judged() {
        for text in ["1f;ext=1\r\n", "0\r\n", "ffff\r\n"] {
            for end in 0..text.len() {
                assert_eq!(line(&text[..end]), Ok(None), "{:?}", &text[..end]);
            }
        }
    }

    #[test]
    fn trailers_end_with_an_empty_line() {
        assert_eq!(trailer_end(b"\r\n"), Ok(Some(2)));
        assert_eq!(trailer_end(b"a: b\r\n\r\nGET"), Ok(Some(8)));
        assert_eq!(trailer_end(b"a: b\r\nc: d\r\n\r\n"), Ok(Some(14)));
        assert_eq!(trailer_end(b"a: b\r\n"), Ok(None));
        assert_eq!(trailer_end(b""), Ok(None));
        assert_eq!(trailer_end(b"\n"), Err(Malformed));
        assert_eq!(trailer_end(b"a: b\n\r\n"), Err(Malformed));
    }
}
