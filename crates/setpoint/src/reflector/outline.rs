//! One pass over the bytes of an object that builds nothing: which object it is, where its managedFields are,
//! and its *form*.
//!
//! Two objects of one form have the same fields in the same order, with values of the same kinds: strings,
//! small numbers, times and so on. The types of `k8s-openapi` and `kube` either read all objects of a form or
//! none, since what matters to them beyond the kind of a value is part of the form:
//!
//! - the words of `apiVersion` and `kind`;
//! - whether a string is a time, in its usual spelling; any other spelling counts word by word;
//! - whether a string that may stand for bytes is base64; what is not, counts word by word;
//! - numbers, word by word unless they are whole and fit into 31 bits.
//!
//! Whatever is unusual (escapes in names, a member twice) has no outline, and such an object is decoded at once.

use std::ops::Range;

use super::json::{find_special, skip_string};
use super::scan::{Place, skip_space, with_comma};
use crate::ObjectKey;
use crate::held::Identity;

/// How deep objects may be nested, as for the decoder.
const DEEPEST: u32 = 127;

/// What one pass over the bytes tells.
#[derive(Debug, Default)]
pub(super) struct Outline<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
    pub(super) uid: Option<&'a str>,
    pub(super) version: Option<&'a str>,
    /// `metadata.managedFields` with one comma, if they are to be cut out.
    pub(super) managed_fields: Option<Range<usize>>,
    pub(super) form: u64,
}

impl<'a> Outline<'a> {
    /// Reads an object. `None` if it is unusual, or no JSON.
    pub(super) fn read(bytes: &'a [u8], keep_managed_fields: bool) -> Option<Outline<'a>> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut pass = Pass {
            text,
            bytes,
            at: 0,
            depth: 0,
            objects: 0,
            in_metadata: false,
            value: Meaning::Any,
            base64_from: u32::MAX,
            keep_managed_fields,
            has_metadata: false,
            form: Form::default(),
            outline: Outline::default(),
        };
        pass.run()?;
        (skip_space(bytes, pass.at) == bytes.len()).then_some(())?;
        pass.outline.form = pass.form.0;
        Some(pass.outline)
    }

    /// Which object it is; `None` if it has no name.
    pub(super) fn identity(&self) -> Option<Identity> {
        let name = self.name.filter(|name| !name.is_empty())?;
        let key = match self.namespace.filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        };
        Some(Identity::new(key, self.uid, self.version))
    }
}

/// A hash of what was seen.
struct Form(u64);

impl Default for Form {
    fn default() -> Form {
        Form(0x243f_6a88_85a3_08d3)
    }
}

impl Form {
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ self.0.rotate_left(23);
    }

    fn add_words(&mut self, kind: u8, bytes: &[u8]) {
        self.add(u64::from(kind) | (bytes.len() as u64) << 8);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }
}

/// What the next value means.
#[derive(Clone, Copy, PartialEq)]
enum Meaning {
    Any,
    /// Its words are part of the form.
    Words,
    /// It may stand for bytes.
    Bytes,
    /// An object whose strings may stand for bytes.
    BytesInside,
    Metadata,
    Name,
    Namespace,
    Uid,
    Version,
}

struct Pass<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    /// A bit for each open container: whether it is an object.
    objects: u128,
    /// Whether the pass is in `metadata`, at any depth.
    in_metadata: bool,
    value: Meaning,
    /// From this depth on strings may stand for bytes.
    base64_from: u32,
    keep_managed_fields: bool,
    has_metadata: bool,
    form: Form,
    outline: Outline<'a>,
}

impl<'a> Pass<'a> {
    fn peek(&mut self) -> Option<u8> {
        self.at = skip_space(self.bytes, self.at);
        self.bytes.get(self.at).copied()
    }

    fn run(&mut self) -> Option<()> {
        if self.peek()? != b'{' {
            return None;
        }
        let mut is_open = self.value()?;
        loop {
            // A container was opened, or a value has ended.
            let byte = self.peek()?;
            match byte {
                b'}' | b']' => {
                    self.close(byte)?;
                    if self.depth == 0 {
                        return Some(());
                    }
                    is_open = false;
                    continue;
                }
                b',' if !is_open => self.at += 1,
                _ if is_open => {}
                _ => return None,
            }
            let is_cut = self.is_in_object() && !self.key()?;
            is_open = !is_cut && self.value()?;
        }
    }

    fn is_in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    fn close(&mut self, byte: u8) -> Option<()> {
        if self.is_in_object() != (byte == b'}') {
            return None;
        }
        self.at += 1;
        self.depth = self.depth.checked_sub(1)?;
        self.objects >>= 1;
        self.form.add(u64::from(byte));
        if self.depth < 2 {
            self.in_metadata = false;
        }
        if self.depth < self.base64_from {
            self.base64_from = u32::MAX;
        }
        Some(())
    }

    /// A value; true if it is a container, which is open now.
    fn value(&mut self) -> Option<bool> {
        let meaning = std::mem::replace(&mut self.value, Meaning::Any);
        let byte = self.peek()?;
        match byte {
            b'{' | b'[' => {
                if self.depth == DEEPEST {
                    return None;
                }
                self.at += 1;
                self.depth += 1;
                self.objects = self.objects << 1 | u128::from(byte == b'{');
                self.form.add(u64::from(byte));
                match meaning {
                    Meaning::Metadata if byte == b'{' => self.in_metadata = true,
                    Meaning::BytesInside => self.base64_from = self.base64_from.min(self.depth),
                    _ => {}
                }
                return Some(true);
            }
            b'"' => self.string(meaning)?,
            b't' => self.word(b"true")?,
            b'f' => self.word(b"false")?,
            b'n' => self.word(b"null")?,
            _ => self.number()?,
        }
        Some(false)
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.bytes[self.at..].strip_prefix(word)?;
        self.at += word.len();
        // True and false are of one kind, null is of another.
        self.form.add(if word == b"null" { 1 } else { 2 });
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        while self.bytes.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
        match &self.bytes[start..self.at] {
            [] => return None,
            [b'0'] => self.form.add(3),
            [b'1'..=b'9', rest @ ..] if rest.len() < 9 && rest.iter().all(u8::is_ascii_digit) => {
                self.form.add(3)
            }
            other => self.form.add_words(4, other),
        }
        Some(())
    }

    /// The text of the string that begins here, which has no escapes.
    fn plain(&mut self) -> Option<Range<usize>> {
        let start = self.at + 1;
        let end = start + find_special(self.bytes.get(start..)?)?;
        (self.bytes[end] == b'"').then(|| {
            self.at = end + 1;
            start..end
        })
    }

    fn string(&mut self, meaning: Meaning) -> Option<()> {
        let start = self.at + 1;
        let Some(range) = self.plain() else {
            // A name or a word that matters is not read here if it has escapes.
            let is_free = meaning == Meaning::Any && self.depth < self.base64_from;
            return if is_free { self.escaped(start) } else { None };
        };
        let text = &self.text[range.clone()];
        let slot = match meaning {
            Meaning::Name => &mut self.outline.name,
            Meaning::Namespace => &mut self.outline.namespace,
            Meaning::Uid => &mut self.outline.uid,
            Meaning::Version => &mut self.outline.version,
            Meaning::Words => {
                self.form.add_words(5, text.as_bytes());
                return Some(());
            }
            _ => {
                let may_be_bytes = meaning == Meaning::Bytes || self.depth >= self.base64_from;
                self.form_of_string(text.as_bytes(), may_be_bytes);
                return Some(());
            }
        };
        // A member that comes twice is unusual.
        if slot.replace(text).is_some() {
            return None;
        }
        self.form.add(6);
        Some(())
    }

    fn form_of_string(&mut self, text: &[u8], may_be_bytes: bool) {
        let kind = match may_be_bytes {
            true if is_base64(text) => 7,
            true => return self.form.add_words(8, text),
            false if !looks_like_time(text) => 6,
            false if is_usual_time(text) => 9,
            false => return self.form.add_words(10, text),
        };
        self.form.add(kind);
    }

    /// A string with escapes. The simple ones are always right; others count word by word.
    fn escaped(&mut self, start: usize) -> Option<()> {
        let end = skip_string(self.bytes, start)?;
        let text = &self.bytes[start..end - 1];
        match has_simple_escapes(text) {
            false => self.form.add_words(11, text),
            true if looks_like_time(text) => self.form.add_words(10, text),
            true => self.form.add(6),
        }
        self.at = end;
        Some(())
    }

    /// The text of a key as it is spelled. One with escapes can be none of those that matter here, unless they
    /// spell letters.
    fn key_text(&mut self) -> Option<&'a [u8]> {
        if let Some(range) = self.plain() {
            return Some(&self.bytes[range]);
        }
        let start = self.at + 1;
        let end = skip_string(self.bytes, start)?;
        let text = &self.bytes[start..end - 1];
        self.at = end;
        has_simple_escapes(text).then_some(text)
    }

    /// A key with its colon; what it says about the value after it. False if the value was left out, too.
    fn key(&mut self) -> Option<bool> {
        self.at = skip_space(self.bytes, self.at);
        // Up to where the member before ended, for cutting this one out.
        let key_start = self.at;
        if self.bytes.get(self.at) != Some(&b'"') {
            return None;
        }
        let key = self.key_text()?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        if self.in_metadata && self.depth == 2 {
            if key == b"managedFields" && !self.keep_managed_fields {
                self.cut(key_start)?;
                return Some(false);
            }
            self.value = match key {
                b"name" => Meaning::Name,
                b"namespace" => Meaning::Namespace,
                b"uid" => Meaning::Uid,
                b"resourceVersion" => Meaning::Version,
                _ => Meaning::Any,
            };
        } else {
            self.value = match key {
                b"kind" | b"apiVersion" => Meaning::Words,
                b"metadata" if self.depth == 1 => {
                    if std::mem::replace(&mut self.has_metadata, true) {
                        return None;
                    }
                    Meaning::Metadata
                }
                b"data" | b"binaryData" => Meaning::BytesInside,
                b"caBundle" | b"certificate" | b"request" | b"stubPKCS10Request" | b"pkixPublicKey"
                | b"proofOfPossession" => Meaning::Bytes,
                _ => Meaning::Any,
            };
        }
        self.form.add_words(12, key);
        Some(true)
    }

    /// Leaves the value out whose key begins at `start`.
    fn cut(&mut self, start: usize) -> Option<()> {
        let mut place = Place::new(self.at);
        if self.outline.managed_fields.is_some() || !place.skip_value(self.bytes) {
            return None;
        }
        self.at = place.at;
        // The comma before it, if there is a member before it.
        let before = self.bytes[..start].trim_ascii_end();
        let kept = before.strip_suffix(b",").map(<[u8]>::len);
        self.outline.managed_fields = Some(with_comma(self.bytes, kept, start..self.at));
        Some(())
    }
}

/// Whether all escapes are a backslash and one character, which are always right.
fn has_simple_escapes(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(backslash) = memchr::memchr(b'\\', rest) {
        match &rest[backslash + 1..] {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', after @ ..] => rest = after,
            _ => return false,
        }
    }
    true
}

/// Whether a string might be read as a time, whatever its spelling.
fn looks_like_time(text: &[u8]) -> bool {
    let is_digit = u8::is_ascii_digit;
    let begins = match text {
        [b'+' | b'-', rest @ ..] => rest.first().is_some_and(is_digit),
        [a, b, c, d, e, ..] => [a, b, c, d].into_iter().all(is_digit) && (*e == b'-' || is_digit(e)),
        _ => false,
    };
    // Escapes are no reason to look closer: no escape can stand for one of these.
    begins && text.iter().any(|byte| matches!(byte, b'T' | b't' | b' ' | b'_' | b'\\'))
}

/// Whether a string is a time as Kubernetes writes it: `2026-01-31T23:59:59Z`, with or without a fraction.
fn is_usual_time(text: &[u8]) -> bool {
    let Some((time, [])) = text.split_first_chunk::<19>().map(|(time, rest)| (time, fraction_end(rest)))
    else {
        return false;
    };
    let number = |at: usize| {
        let (tens, ones) = (time[at].wrapping_sub(b'0'), time[at + 1].wrapping_sub(b'0'));
        if tens < 10 && ones < 10 { tens * 10 + ones } else { u8::MAX }
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let days = match number(5) {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28,
        _ => 0,
    };
    separators.iter().all(|(at, byte)| time[*at] == *byte)
        && matches!(number(0), 1..=98)
        && number(2) < 100
        && (1..=days).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

/// What is left after `.123Z` or `Z`; something in any case if there is anything else.
fn fraction_end(rest: &[u8]) -> &[u8] {
    match rest {
        [b'Z', left @ ..] => left,
        [b'.', fraction @ .., b'Z']
            if (1..=9).contains(&fraction.len()) && fraction.iter().all(u8::is_ascii_digit) =>
        {
            &[]
        }
        _ => b"?",
    }
}

/// Whether a string is base64 with all its padding, and no bits left over.
fn is_base64(text: &[u8]) -> bool {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (digits, left_over) = match text {
        [digits @ .., b'=', b'='] => (digits, 0x0f),
        [digits @ .., b'='] => (digits, 0x03),
        digits => (digits, 0),
    };
    let last = digits.last().map_or(Some(0), |byte| value(*byte));
    text.len().is_multiple_of(4)
        && digits.iter().all(|byte| value(*byte).is_some())
        && last.is_some_and(|last| last & left_over == 0)
}

#[cfg(test)]
mod tests;
