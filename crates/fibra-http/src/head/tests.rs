//! Tests of heads: which are accepted, and that it does not matter how they are cut. Refusals are in `tests/http/smuggling.rs`.

use super::*;

fn whole(text: &str) -> Result<Index, HeadError> {
    let mut index = Index::default();
    match find(text.as_bytes(), &mut Search::default(), &Limits::default(), &mut index)? {
        true => Ok(index),
        false => panic!("{text:?} is not a whole head"),
    }
}

#[test]
fn framing() {
    let framing =
        |fields: &str| whole(&format!("POST / HTTP/1.1\r\nHost: t\r\n{fields}\r\n")).map(|index| index.framing);
    assert_eq!(framing(""), Ok(Framing::None));
    assert_eq!(framing("Content-Length: 0\r\n"), Ok(Framing::Length(0)));
    assert_eq!(framing("content-length:  17 \r\n"), Ok(Framing::Length(17)));
    assert_eq!(framing("Content-Length: 0017\r\nContent-Length: 17\r\n"), Ok(Framing::Length(17)));
    assert_eq!(framing("Transfer-Encoding: cHUNKED\r\n"), Ok(Framing::Chunked));
    assert_eq!(framing("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), Err(HeadError::UnknownCoding));
    assert_eq!(framing("Content-Length: 99999999999\r\n"), Err(HeadError::BodyTooLong));
}

#[test]
fn who_wants_to_stay() {
    let stays = |version: &str, connection: &str| {
        whole(&format!("GET / HTTP/{version}\r\nHost: t\r\n{connection}\r\n")).unwrap().keep_alive
    };
    assert!(stays("1.1", "") && !stays("1.0", ""));
    assert!(!stays("1.1", "Connection: close\r\n") && !stays("1.1", "Connection: x, CLOSE ,\r\n"));
    assert!(stays("1.0", "Connection: keep-alive\r\n") && !stays("1.0", "Connection: keep-alive, close\r\n"));
    assert!(!stays("1.1", "Connection: close\r\nConnection: keep-alive\r\n"), "whatever the order");
    assert!(stays("1.1", "Connection: closed\r\n"));
}

/// However a head is cut, the verdict is the same, and comes no sooner than it can.
#[test]
fn cut_at_every_byte() {
    let texts = [
        "GET / HTTP/1.1\r\nHost: t\r\n\r\n",
        "POST /a?b HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nX: y\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\nHost: t\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\n\r\n",
        "GET / HTTP/1.1\r\nHost : t\r\n\r\n",
        "GET / HTTP/3.0\r\nHost: t\r\n\r\n",
    ];
    for text in texts {
        let verdict = |cuts: &[usize]| {
            let (mut search, mut index) = (Search::default(), Index::default());
            for end in cuts.iter().chain([&text.len()]) {
                match find(&text.as_bytes()[..*end], &mut search, &Limits::default(), &mut index) {
                    Ok(false) => {}
                    Ok(true) => {
                        assert_eq!(*end, text.len(), "{text:?} has no end before its end");
                        return Ok((index.length, index.framing, index.fields.len()));
                    }
                    Err(error) => return Err(error),
                }
            }
            panic!("no verdict on {text:?} cut at {cuts:?}")
        };
        let expected = verdict(&[]);
        let every_byte: Vec<usize> = (1..text.len()).collect();
        assert_eq!(verdict(&every_byte), expected, "{text:?}");
        for cut in 1..text.len() {
            assert_eq!(verdict(&[cut]), expected, "{text:?} cut at {cut}");
        }
    }
}

#[test]
fn what_follows_a_head_is_left_alone() {
    let index = whole("GET / HTTP/1.1\r\nHost: t\r\n\r\nGET /\nrubbish").unwrap();
    assert_eq!(index.length, "GET / HTTP/1.1\r\nHost: t\r\n\r\n".len());
}

#[test]
fn a_bare_line_feed_is_refused_as_soon_as_it_is_there() {
    for text in ["GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: t\n", "\n"] {
        let mut search = Search::default();
        assert!(find(text.as_bytes(), &mut search, &Limits::default(), &mut Index::default()).is_err(), "{text:?}");
    }
}
