//! A JSON deserializer for objects that will be kept for long: vectors get exactly the room that they need.
//!
//! serde_json cannot know how long an array will be, so its vectors have room to grow: a quarter of the
//! memory of a cache of Pods, or a clone of every object to get rid of it. Here one pass over the bytes
//! counts the elements of every array before the object is built; then each vector is made as long as it
//! will be. (Measured on the Pods of the benchmark: 16 µs instead of 24 µs.)
//!
//! It reads what serde_json reads and gives the same values. Whatever it does not like (an escape in a map
//! key, a raw value, anything that is no JSON) it leaves to serde_json, which knows it all and explains
//! errors better.

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::scan::skip_space;

/// How deep objects may be nested: as for serde_json.
const DEEPEST: usize = 128;

/// Decodes an object whose vectors are as long as their room. `lengths` is working space.
pub(super) fn from_slice<'de, K: de::Deserialize<'de>>(
    bytes: &'de [u8],
    lengths: &mut Vec<u32>,
) -> Option<K> {
    let text = std::str::from_utf8(bytes).ok()?;
    count_elements(bytes, lengths)?;
    let mut reader = Reader { text, bytes, at: 0, lengths: lengths.iter(), depth: 0 };
    let value = K::deserialize(&mut reader).ok()?;
    (skip_space(bytes, reader.at) == bytes.len()).then_some(value)
}

/// The number of elements of each array, in the order in which the arrays begin.
fn count_elements(bytes: &[u8], lengths: &mut Vec<u32>) -> Option<()> {
    const OBJECT: usize = usize::MAX;
    let mut open = [OBJECT; DEEPEST];
    let mut depth: usize = 0;
    let mut at = 0;
    lengths.clear();
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = skip_string(bytes, at)?,
            b',' => {
                if let Some(length) = depth.checked_sub(1).and_then(|top| lengths.get_mut(open[top])) {
                    *length += 1;
                }
            }
            b'[' => {
                *open.get_mut(depth)? = lengths.len();
                depth += 1;
                lengths.push(u32::from(bytes.get(skip_space(bytes, at)) != Some(&b']')));
            }
            b'{' => {
                *open.get_mut(depth)? = OBJECT;
                depth += 1;
            }
            b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    Some(())
}

/// The position after the string whose opening quote is before `at`.
pub(super) fn skip_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += find_special(bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => return None,
        }
    }
}

/// The first byte that ends the plain part of a string: a quote, a backslash or a control character.
pub(super) fn find_special(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let (quote, backslash) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
        let found = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        if found & HIGH != 0 {
            return Some(i * 8 + (found & HIGH).trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    Some(words.len() * 8 + at)
}

/// Something that serde_json shall look at.
#[derive(Debug)]
struct Unsure;

impl std::fmt::Display for Unsure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not read here")
    }
}

impl std::error::Error for Unsure {}

impl de::Error for Unsure {
    fn custom<T: std::fmt::Display>(_: T) -> Unsure {
        Unsure
    }
}

struct Reader<'de, 'l> {
    text: &'de str,
    bytes: &'de [u8],
    at: usize,
    lengths: std::slice::Iter<'l, u32>,
    depth: usize,
}

/// A string as it is in the text, or without its escapes.
enum Text<'de> {
    Plain(&'de str),
    Escaped(String),
}

/// A number as serde_json would read it.
enum Number {
    Positive(u64),
    Negative(i64),
    Fraction(f64),
}

impl Number {
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        match self {
            Number::Positive(number) => visitor.visit_u64(number),
            Number::Negative(number) => visitor.visit_i64(number),
            Number::Fraction(number) => visitor.visit_f64(number),
        }
    }
}

impl<'de> Reader<'de, '_> {
    /// The next byte that is no space.
    fn peek(&mut self) -> Result<u8, Unsure> {
        self.at = skip_space(self.bytes, self.at);
        self.bytes.get(self.at).copied().ok_or(Unsure)
    }

    fn expect(&mut self, byte: u8) -> Result<(), Unsure> {
        if self.peek()? != byte {
            return Err(Unsure);
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Unsure> {
        let rest = self.bytes[self.at..].strip_prefix(word).ok_or(Unsure)?;
        self.at = self.bytes.len() - rest.len();
        Ok(())
    }

    /// The string that begins here.
    fn string(&mut self) -> Result<Text<'de>, Unsure> {
        self.expect(b'"')?;
        let start = self.at;
        let end = start + find_special(&self.bytes[start..]).ok_or(Unsure)?;
        if self.bytes[end] == b'"' {
            self.at = end + 1;
            return self.text.get(start..end).map(Text::Plain).ok_or(Unsure);
        }
        self.at = skip_string(self.bytes, end).ok_or(Unsure)?;
        let quoted = self.text.get(start - 1..self.at).ok_or(Unsure)?;
        serde_json::from_str(quoted).map(Text::Escaped).map_err(|_| Unsure)
    }

    fn number(&mut self) -> Result<Number, Unsure> {
        let start = self.at;
        let is_negative = self.bytes[start] == b'-';
        self.at += usize::from(is_negative);
        let digits = self.at;
        let mut number = Some(0_u64);
        while let Some(digit @ b'0'..=b'9') = self.bytes.get(self.at) {
            number = number.and_then(|n| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
            self.at += 1;
        }
        let is_whole = !matches!(self.bytes.get(self.at), Some(b'.' | b'e' | b'E'));
        let has_leading_zero = self.bytes.get(digits) == Some(&b'0') && self.at - digits > 1;
        match number {
            _ if self.at == digits || has_leading_zero => Err(Unsure),
            Some(number) if is_whole && !is_negative => Ok(Number::Positive(number)),
            Some(number @ 1..=0x7fff_ffff_ffff_ffff) if is_whole => Ok(Number::Negative(-(number as i64))),
            _ => self.unusual_number(start),
        }
    }

    /// Fractions and numbers of unusual size.
    fn unusual_number(&mut self, start: usize) -> Result<Number, Unsure> {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        while self.bytes.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
        let number: serde_json::Number =
            serde_json::from_str(&self.text[start..self.at]).map_err(|_| Unsure)?;
        let negative = || number.as_i64().map(Number::Negative);
        let whole = number.as_u64().map(Number::Positive).or_else(negative);
        whole.or_else(|| number.as_f64().map(Number::Fraction)).ok_or(Unsure)
    }

    /// The key of the next entry, unless the object ends.
    fn key(&mut self, is_first: bool) -> Result<Option<Text<'de>>, Unsure> {
        match self.peek()? {
            b'}' => return Ok(None),
            b',' if !is_first => self.at += 1,
            _ if is_first => {}
            _ => return Err(Unsure),
        }
        self.string().map(Some)
    }

    fn enter(&mut self) -> Result<(), Unsure> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEEPEST { Err(Unsure) } else { Ok(()) }
    }

    fn sequence<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Unsure> {
        self.enter()?;
        let left = *self.lengths.next().ok_or(Unsure)? as usize;
        let value = visitor.visit_seq(Elements { reader: self, left, is_first: true })?;
        self.depth -= 1;
        self.expect(b']')?;
        Ok(value)
    }

    fn map<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Unsure> {
        self.enter()?;
        let value = visitor.visit_map(Entries { reader: self, is_first: true })?;
        self.depth -= 1;
        self.expect(b'}')?;
        Ok(value)
    }
}

/// Whoever says which form he expects gets that one, and serde_json anything else: most of what could be handed to each of
/// thousands of visitors is not compiled.
impl<'de> Deserializer<'de> for &mut Reader<'de, '_> {
    type Error = Unsure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        match self.peek()? {
            b'"' => match self.string()? {
                Text::Plain(text) => visitor.visit_borrowed_str(text),
                Text::Escaped(text) => visitor.visit_string(text),
            },
            b'{' => self.map(visitor),
            b'[' => self.sequence(visitor),
            b'n' => self.word(b"null").and_then(|()| visitor.visit_unit()),
            b't' => self.word(b"true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self.word(b"false").and_then(|()| visitor.visit_bool(false)),
            _ => self.number()?.visit(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unsure> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        if self.peek()? == b'{' { self.map(visitor) } else { Err(Unsure) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        if self.peek()? == b'[' { self.sequence(visitor) } else { Err(Unsure) }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        match self.string()? {
            Text::Plain(text) => visitor.visit_borrowed_str(text),
            Text::Escaped(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        match self.peek()? {
            b't' => self.word(b"true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self.word(b"false").and_then(|()| visitor.visit_bool(false)),
            _ => Err(Unsure),
        }
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        self.peek()?;
        self.number()?.visit(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        self.deserialize_i32(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        self.deserialize_i32(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsure> {
        match self.peek()? {
            b'n' => self.word(b"null").and_then(|()| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unsure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unsure> {
        match self.peek()? {
            b'"' => match self.string()? {
                Text::Plain(text) => visitor.visit_enum(text.into_deserializer()),
                Text::Escaped(text) => visitor.visit_enum(text.into_deserializer()),
            },
            b'{' => {
                self.enter()?;
                let entries = Entries { reader: self, is_first: true };
                let value = visitor.visit_enum(de::value::MapAccessDeserializer::new(entries))?;
                self.depth -= 1;
                self.expect(b'}')?;
                Ok(value)
            }
            _ => Err(Unsure),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
        ignored_any
    }
}

struct Elements<'a, 'de, 'l> {
    reader: &'a mut Reader<'de, 'l>,
    left: usize,
    is_first: bool,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de, '_> {
    type Error = Unsure;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unsure> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if !std::mem::take(&mut self.is_first) {
            self.reader.expect(b',')?;
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Entries<'a, 'de, 'l> {
    reader: &'a mut Reader<'de, 'l>,
    is_first: bool,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de, '_> {
    type Error = Unsure;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unsure> {
        match self.reader.key(std::mem::take(&mut self.is_first))? {
            None => Ok(None),
            Some(Text::Plain(key)) => seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some),
            Some(Text::Escaped(key)) => seed.deserialize(StringDeserializer::new(key)).map(Some),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unsure> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    use crate::reflector::scan::tests::any_json;

    fn read<'de, K: Deserialize<'de>>(text: &'de str) -> Option<K> {
        from_slice(text.as_bytes(), &mut Vec::new())
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_serde_json_reads(value in any_json()) {
            for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert_eq!(read::<Value>(&text), Some(value.clone()));
            }
        }

        /// Of JSON with a byte changed, only what serde_json reads is read, and then as the same.
        #[test]
        fn nothing_is_read_that_serde_json_refuses(
            value in any_json(),
            at in any::<prop::sample::Index>(),
            with in prop_oneof![any::<u8>(), proptest::sample::select(b"\"\\{}[],:0-.e \n".to_vec())],
        ) {
            let mut bytes = serde_json::to_vec(&value).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = with;
            if let Some(read) = from_slice::<Value>(&bytes, &mut Vec::new()) {
                prop_assert_eq!(Some(read), serde_json::from_slice(&bytes).ok());
            }
        }
    }

    #[test]
    fn vectors_have_exactly_the_room_that_they_need() {
        let read: BTreeMap<String, Vec<Vec<u8>>> = read(r#"{"a": [[1,2,3], [], [4]], "b": [ ]}"#).unwrap();
        assert_eq!(read["a"], [vec![1, 2, 3], vec![], vec![4]]);
        let room = |vector: &Vec<u8>| vector.capacity();
        assert_eq!(
            (read["a"].capacity(), read["a"].iter().map(room).collect::<Vec<_>>()),
            (3, vec![3, 0, 1])
        );
    }

    #[test]
    fn what_is_ignored_does_not_disturb_the_count() {
        #[derive(Deserialize)]
        struct OnlyB {
            b: Vec<u32>,
        }
        let read: OnlyB = read(r#"{"a": [[1], {"x": [2, 3]}], "b": [7, 8, 9, 10, 11]}"#).unwrap();
        assert_eq!((read.b.len(), read.b.capacity()), (5, 5));
    }

    #[test]
    fn enums_numbers_and_escapes_are_read() {
        #[derive(Debug, Deserialize, PartialEq)]
        enum Shape {
            Point,
            Circle { radius: f64 },
            Pair(i8, i8),
        }
        let text = r#"["Point", {"Circle": {"radius": 1.5e2}}, {"Pair": [-1, 127]}]"#;
        let shapes = [Shape::Point, Shape::Circle { radius: 150.0 }, Shape::Pair(-1, 127)];
        assert_eq!(read::<Vec<Shape>>(text).unwrap(), shapes);
        assert_eq!(
            read::<Vec<f64>>("[0, -0, 18446744073709551616, -9223372036854775808]").unwrap()[2],
            2f64.powi(64)
        );
        assert_eq!(read::<i64>("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(read::<String>(r#""a\nb\u00e9""#).unwrap(), "a\nb\u{e9}");
    }

    #[test]
    fn what_is_no_json_is_left_to_serde_json() {
        for text in
            ["", "{", "[1,]", "[,1]", "{\"a\":1,}", "01", "1 2", "\"a\nb\"", "nul", "[1 2]", "-", "{,}"]
        {
            assert_eq!(read::<Value>(text), None, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(read::<Value>(&deep), None);
    }
}
