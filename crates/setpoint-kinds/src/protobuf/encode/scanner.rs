//! Reads JSON text piece by piece.
//!
//! `serde_json` makes values, or calls back with each piece of one, which takes nearly twice the instructions. It gives raw
//! text only with a feature that makes one key of everybody's objects special. What is seldom and needs care, that is,
//! escapes, is left to it.

use super::EncodeError;

/// Small, since every piece that is read may be one.
pub(super) type Fault = Box<EncodeError>;

/// How deep JSON may nest where anything may be. `serde_json` has the same limit.
const MAX_DEPTH: usize = 128;

/// Reads JSON from the start to the end.
pub(super) struct Scanner<'a> {
    /// UTF-8.
    text: &'a [u8],
    at: usize,
    /// The last string that had escapes.
    unescaped: String,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Scanner<'a> {
        Scanner { text: text.as_bytes(), at: 0, unescaped: String::new() }
    }

    /// The next byte that is no space.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> Option<u8> {
        match self.here() {
            // Our own text has no spaces.
            Some(byte) if byte > b' ' => Some(byte),
            _ => self.peek_after_spaces(),
        }
    }

    fn peek_after_spaces(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.here() {
            self.at += 1;
        }
        self.here()
    }

    #[inline(always)]
    fn here(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline(always)]
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// The first byte of a list or object.
    pub(super) fn open(&mut self, byte: u8, expected: &str) -> Result<(), Fault> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// The key of the next entry of an object, whose value follows. `is_first` is whether none has been read yet.
    #[inline(always)]
    pub(super) fn key(&mut self, is_first: &mut bool) -> Result<Option<&[u8]>, Fault> {
        if !self.next(b'}', is_first)? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.syntax("a key is expected"));
        }
        match self.plain() {
            Some(key) => {
                self.colon()?;
                Ok(Some(key))
            }
            None => self.escaped_key().map(Some),
        }
    }

    #[cold]
    fn escaped_key(&mut self) -> Result<&[u8], Fault> {
        self.unescape()?;
        self.colon()?;
        Ok(self.unescaped.as_bytes())
    }

    /// Whether a list, or whatever ends with `close`, has another item.
    #[inline(always)]
    pub(super) fn next(&mut self, close: u8, is_first: &mut bool) -> Result<bool, Fault> {
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ if std::mem::take(is_first) => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.syntax("a comma is expected")),
        }
    }

    /// Whether there is null, which is then read.
    #[inline]
    pub(super) fn null(&mut self) -> Result<bool, Fault> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.word("null").map(|()| true)
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Fault> {
        match self.peek() {
            Some(b't') => self.word("true").map(|()| true),
            Some(b'f') => self.word("false").map(|()| false),
            _ => Err(self.unexpected("a boolean")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(self.syntax("a value is expected"));
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn colon(&mut self) -> Result<(), Fault> {
        if self.take(b':') { Ok(()) } else { Err(self.syntax("a colon is expected")) }
    }

    /// The bytes of a string, which are UTF-8.
    #[inline]
    pub(super) fn string(&mut self) -> Result<&[u8], Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a string"));
        }
        match self.plain() {
            Some(text) => Ok(text),
            None => self.unescape(),
        }
    }

    /// What is between these quotation marks, if there are no escapes. If there are, nothing has been read.
    #[inline(always)]
    fn plain(&mut self) -> Option<&'a [u8]> {
        let start = self.at + 1;
        let end = end_of_ordinary(self.text, start);
        if self.text.get(end) != Some(&b'"') {
            return None;
        }
        self.at = end + 1;
        self.text.get(start..end)
    }

    /// The bytes of a string that may have escapes.
    #[cold]
    fn unescape(&mut self) -> Result<&[u8], Fault> {
        let start = self.at;
        self.skip_escaped()?;
        self.unescaped = serde_json::from_slice(&self.text[start..self.at])
            .map_err(|error| Box::new(EncodeError::Json(error.to_string())))?;
        Ok(self.unescaped.as_bytes())
    }

    #[inline]
    fn skip_string(&mut self) -> Result<(), Fault> {
        if self.plain().is_some() { Ok(()) } else { self.skip_escaped() }
    }

    #[inline(never)]
    fn skip_escaped(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            self.at = end_of_ordinary(self.text, self.at);
            match self.here() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                _ => return Err(self.syntax("a string does not end")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let length = match &self.text[self.at + 1..] {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [b'u', digits @ ..] if digits.len() >= 4 && digits[..4].iter().all(u8::is_ascii_hexdigit) => 6,
            _ => return Err(self.syntax("there is no such escape")),
        };
        self.at += length;
        Ok(())
    }

    pub(super) fn integer(&mut self) -> Result<i64, Fault> {
        let number = self.number("an integer")?;
        number.parse().map_err(|_| wrong(format!("an integer is expected, not {number}")))
    }

    pub(super) fn float(&mut self) -> Result<f64, Fault> {
        let number = self.number("a number")?;
        let float = number.parse().ok().filter(|float: &f64| float.is_finite());
        float.ok_or_else(|| wrong(format!("{number} is too large")))
    }

    fn number(&mut self, expected: &str) -> Result<&'a str, Fault> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            return Err(self.unexpected(expected));
        }
        let start = self.at;
        self.at += usize::from(self.here() == Some(b'-'));
        if self.here() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.here() {
            self.at += 1;
            self.at += usize::from(matches!(self.here(), Some(b'+' | b'-')));
            self.digits()?;
        }
        // Only ASCII.
        Ok(str::from_utf8(&self.text[start..self.at]).unwrap_or_default())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        if digits == 0 { Err(self.syntax("a digit is expected")) } else { Ok(()) }
    }

    /// Goes over a value: its text.
    pub(super) fn skip(&mut self) -> Result<&'a [u8], Fault> {
        self.peek();
        let start = self.at;
        self.skip_value(0)?;
        Ok(&self.text[start..self.at])
    }

    fn skip_value(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > MAX_DEPTH {
            return Err(self.syntax("it nests too deep"));
        }
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(open @ (b'{' | b'[')) => self.skip_inside(open, depth),
            Some(b'n') => self.word("null"),
            Some(b't' | b'f') => self.boolean().map(drop),
            _ => self.number("a value").map(drop),
        }
    }

    fn skip_inside(&mut self, open: u8, depth: usize) -> Result<(), Fault> {
        self.at += 1;
        let mut is_first = true;
        // In ASCII a bracket closes two after it opens.
        while self.next(open + 2, &mut is_first)? {
            if open == b'{' {
                if self.peek() != Some(b'"') {
                    return Err(self.syntax("a key is expected"));
                }
                self.skip_string()?;
                self.colon()?;
            }
            self.skip_value(depth + 1)?;
        }
        Ok(())
    }

    /// There is nothing more.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        if self.peek().is_none() { Ok(()) } else { Err(self.syntax("something comes after its end")) }
    }

    #[cold]
    fn syntax(&self, reason: &str) -> Fault {
        Box::new(EncodeError::Json(format!("{reason} at byte {}", self.at)))
    }

    /// Another value than is expected.
    #[cold]
    pub(super) fn unexpected(&mut self, expected: &str) -> Fault {
        let found = match self.peek() {
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'-' | b'0'..=b'9') => "a number",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => return self.syntax("a value is expected"),
        };
        wrong(format!("{expected} is expected, not {found}"))
    }
}

/// A value that its field, whose name is not known here, cannot hold.
#[cold]
pub(super) fn wrong(reason: String) -> Fault {
    Box::new(EncodeError::Value { field: String::new(), reason })
}

/// Where the next quotation mark, backslash or byte that strings may not have is. Eight bytes are looked at at a time.
#[inline(always)]
fn end_of_ordinary(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // Each of these leaves the highest bit of the first byte that is zero, or too small; later ones may be wrong.
    let zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    let small = |bytes: u64| bytes.wrapping_sub(ONES * 0x20) & !bytes;
    while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let bytes = u64::from_le_bytes(*bytes);
        let quote = zero(bytes ^ (ONES * u64::from(b'"')));
        let backslash = zero(bytes ^ (ONES * u64::from(b'\\')));
        let special = (quote | backslash | small(bytes)) & (ONES << 7);
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    end_of_rest(text, at)
}

/// The same for the last few bytes.
#[cold]
fn end_of_rest(text: &[u8], at: usize) -> usize {
    let is_ordinary = |byte: &&u8| !matches!(byte, b'"' | b'\\' | 0..0x20);
    at + text.iter().skip(at).take_while(is_ordinary).count()
}
