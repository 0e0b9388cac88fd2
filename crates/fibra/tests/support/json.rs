//! A parser of JSON for tests: of whole texts, strict enough to notice what is not JSON.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// As it was written.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// A field of an object.
    pub(crate) fn at(&self, key: &str) -> &Json {
        match self {
            Json::Object(fields) => fields.get(key).unwrap_or_else(|| panic!("no {key} in {self:?}")),
            other => panic!("{other:?} has no fields"),
        }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &Json)> {
        let Json::Object(fields) = self else { panic!("{self:?} has no fields") };
        fields.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub(crate) fn items(&self) -> &[Json] {
        let Json::List(items) = self else { panic!("{self:?} is no list") };
        items
    }

    pub(crate) fn text(&self) -> &str {
        let Json::Text(text) = self else { panic!("{self:?} is no text") };
        text
    }

    pub(crate) fn number(&self) -> u64 {
        let Json::Number(number) = self else { panic!("{self:?} is no number") };
        number.parse().unwrap_or_else(|error| panic!("{number}: {error}"))
    }

    /// A number of microseconds with three digits behind the point, in nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        let Json::Number(number) = self else { panic!("{self:?} is no number") };
        let (whole, rest) = number.split_once('.').unwrap_or_else(|| panic!("{number} has no point"));
        assert_eq!(rest.len(), 3, "{number}");
        whole.parse::<u64>().unwrap() * 1000 + rest.parse::<u64>().unwrap()
    }
}

/// The whole text as JSON.
pub(crate) fn parse(text: &str) -> Result<Json, String> {
    let mut parser = Parser { text: text.as_bytes(), at: 0 };
    let value = parser.value()?;
    parser.space();
    if parser.at == text.len() { Ok(value) } else { Err(parser.wrong("the end")) }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self, expected: &str) -> String {
        let rest =
            String::from_utf8_lossy(&self.text[self.at.min(self.text.len())..]).chars().take(40).collect::<String>();
        format!("expected {expected} at byte {}: {rest:?}", self.at)
    }

    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let found = self.text[self.at..].starts_with(token.as_bytes());
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(self.wrong(token)) }
    }

    fn value(&mut self) -> Result<Json, String> {
        if self.eat("{") {
            let mut fields = BTreeMap::new();
            while !self.eat("}") {
                if !fields.is_empty() {
                    self.expect(",")?;
                }
                let key = self.string()?;
                self.expect(":")?;
                let value = self.value()?;
                if fields.insert(key.clone(), value).is_some() {
                    return Err(self.wrong(&format!("another key than {key}")));
                }
            }
            return Ok(Json::Object(fields));
        }
        if self.eat("[") {
            let mut items = Vec::new();
            while !self.eat("]") {
                if !items.is_empty() {
                    self.expect(",")?;
                }
                items.push(self.value()?);
            }
            return Ok(Json::List(items));
        }
        for (token, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
            if self.eat(token) {
                return Ok(value);
            }
        }
        if self.text.get(self.at) == Some(&b'"') { self.string().map(Json::Text) } else { self.number() }
    }

    fn number(&mut self) -> Result<Json, String> {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let len = self.text[self.at..].iter().take_while(|byte| is_part(byte)).count();
        let number = std::str::from_utf8(&self.text[self.at..self.at + len]).unwrap();
        if number.parse::<f64>().is_err() {
            return Err(self.wrong("a value"));
        }
        self.at += len;
        Ok(Json::Number(number.to_owned()))
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut bytes = Vec::new();
        loop {
            let byte = *self.text.get(self.at).ok_or_else(|| self.wrong("the end of a string"))?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(bytes).map_err(|error| error.to_string()),
                b'\\' => {
                    let escape = *self.text.get(self.at).ok_or_else(|| self.wrong("an escape"))?;
                    self.at += 1;
                    let plain = match escape {
                        b'"' | b'\\' | b'/' => escape as char,
                        b'n' => '\n',
                        b't' => '\t',
                        b'r' => '\r',
                        b'b' => '\u{8}',
                        b'f' => '\u{c}',
                        b'u' => {
                            let digits =
                                self.text.get(self.at..self.at + 4).ok_or_else(|| self.wrong("four digits"))?;
                            let digits = std::str::from_utf8(digits).map_err(|error| error.to_string())?;
                            let code = u32::from_str_radix(digits, 16).map_err(|error| error.to_string())?;
                            self.at += 4;
                            char::from_u32(code).ok_or_else(|| self.wrong("a character"))?
                        }
                        _ => return Err(self.wrong("an escape")),
                    };
                    bytes.extend(plain.to_string().as_bytes());
                }
                0..0x20 => return Err(self.wrong("no control character")),
                _ => bytes.push(byte),
            }
        }
    }
}
