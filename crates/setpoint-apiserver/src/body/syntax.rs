//! What is wrong with a text that is not JSON, in the words of Go's decoder: kubectl prints them.

use super::json::MAX_DEPTH;

/// The first mistake; `None` if the text follows JSON's grammar.
pub(super) fn explain(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0 };
    let scanned = scanner.value(0).and_then(|()| match scanner.token() {
        None => Ok(()),
        Some(byte) => Err(invalid(byte, "after top-level value")),
    });
    scanned.err()
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// The next byte that is not white space, without taking it.
    fn token(&mut self) -> Option<u8> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Takes the next token byte if it is `wanted`; says in what context another one stands.
    fn expect(&mut self, wanted: &[u8], context: &str) -> Result<u8, String> {
        let byte = self.token().ok_or_else(end)?;
        if !wanted.contains(&byte) {
            return Err(invalid(byte, context));
        }
        self.at += 1;
        Ok(byte)
    }

    /// The next byte. Inside a token Go's decoder reports the end of the input as a space.
    fn byte(&mut self) -> u8 {
        let byte = self.text.get(self.at).copied().unwrap_or(b' ');
        self.at += 1;
        byte
    }

    fn digit_follows(&self) -> bool {
        self.text.get(self.at).is_some_and(u8::is_ascii_digit)
    }

    fn value(&mut self, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        match self.token().ok_or_else(end)? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(),
            other => Err(invalid(other, "looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), String> {
        self.at += 1;
        if self.token() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.expect(b"\"", "looking for beginning of object key string")?;
            self.at -= 1;
            self.string()?;
            self.expect(b":", "after object key")?;
            self.value(depth + 1)?;
            if self.expect(b",}", "after object key:value pair")? == b'}' {
                return Ok(());
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), String> {
        self.at += 1;
        if self.token() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            if self.expect(b",]", "after array element")? == b']' {
                return Ok(());
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.byte() {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                byte if byte < b' ' => return Err(invalid(byte, "in string literal")),
                _ if self.at > self.text.len() => return Err(end()),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.byte() {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.byte() {
                byte if byte.is_ascii_hexdigit() => Ok(()),
                byte => Err(invalid(byte, "in \\u hexadecimal character escape")),
            }),
            byte => Err(invalid(byte, "in string escape code")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes() {
            let byte = self.byte();
            if byte != expected {
                return Err(invalid(
                    byte,
                    &format!("in literal {word} (expecting '{}')", char::from(expected)),
                ));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        let mut first = self.byte();
        if first == b'-' {
            first = self.digit("in numeric literal")?;
        }
        if first != b'0' {
            self.digits();
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Result<u8, String> {
        match self.byte() {
            byte if byte.is_ascii_digit() => Ok(byte),
            byte => Err(invalid(byte, context)),
        }
    }

    fn digits(&mut self) {
        while self.digit_follows() {
            self.at += 1;
        }
    }
}

fn end() -> String {
    "unexpected end of JSON input".to_owned()
}

fn invalid(byte: u8, context: &str) -> String {
    // Go takes the byte for a character, so that what is not ASCII reads as Latin-1.
    let quoted = match byte {
        b'\'' => r"\'".to_owned(),
        b'\\' => r"\\".to_owned(),
        0x07 => r"\a".to_owned(),
        0x08 => r"\b".to_owned(),
        b'\t' => r"\t".to_owned(),
        b'\n' => r"\n".to_owned(),
        0x0b => r"\v".to_owned(),
        0x0c => r"\f".to_owned(),
        b'\r' => r"\r".to_owned(),
        0..0x20 | 0x7f => format!("\\x{byte:02x}"),
        0x80..=0xa0 | 0xad => format!("\\u{byte:04x}"),
        _ => char::from(byte).to_string(),
    };
    format!("invalid character '{quoted}' {context}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_read_as_gos_decoder_words_them() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "unexpected end of JSON input"),
            (b"{", "unexpected end of JSON input"),
            (b"{a}", "invalid character 'a' looking for beginning of object key string"),
            (b"{\"a\"}", "invalid character '}' after object key"),
            (b"{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            (b"{\"a\":tru}", "invalid character '}' in literal true (expecting 'e')"),
            (b"{\"a\":01}", "invalid character '1' after object key:value pair"),
            (b"{\"a\":\"\n\"}", "invalid character '\\n' in string literal"),
            (b"{\"a\":\"\\x\"}", "invalid character 'x' in string escape code"),
            (b"{} x", "invalid character 'x' after top-level value"),
            (b"{\"a\":\"\\u12g\"}", "invalid character 'g' in \\u hexadecimal character escape"),
            (b"[1 2]", "invalid character '2' after array element"),
            (b"{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            (b"-", "invalid character ' ' in numeric literal"),
            (b"1e", "invalid character ' ' in exponent of numeric literal"),
            (b"nul", "invalid character ' ' in literal null (expecting 'l')"),
            (b"\xff", "invalid character 'ÿ' looking for beginning of value"),
            (b"{\"a\":'x'}", "invalid character '\\'' looking for beginning of value"),
            (b"{\"a\":\x01}", "invalid character '\\x01' looking for beginning of value"),
            (b"{\"a\":\"x", "unexpected end of JSON input"),
            (b"\x1f\x8b", "invalid character '\\x1f' looking for beginning of value"),
        ];
        for (text, expect) in cases {
            assert_eq!(explain(text).as_deref(), Some(*expect), "{:?}", text.escape_ascii().to_string());
        }
        assert_eq!(explain(b" {\"a\": [1, -0.5e+3, \"\\u00e9\", true, null, {}, []]} "), None);
    }
}
