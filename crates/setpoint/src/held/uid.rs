//! The uid of an object, small.

use std::fmt;

/// A uid. Nearly all are UUIDs, of which a cache can hold a million without as many strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uid {
    Uuid(u128),
    Other(Box<str>),
}

/// Where a UUID has its hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Only the canonical spelling counts: it must print as it was read.
fn parse(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    let mut number = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'-' if HYPHENS.contains(&at) => {}
            _ if HYPHENS.contains(&at) => return None,
            b'0'..=b'9' => number = number << 4 | u128::from(byte - b'0'),
            b'a'..=b'f' => number = number << 4 | u128::from(byte - b'a' + 10),
            _ => return None,
        }
    }
    Some(number)
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        match parse(text) {
            Some(number) => Uid::Uuid(number),
            None => Uid::Other(text.into()),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Other(text) => f.write_str(text),
            Uid::Uuid(n) => {
                let part = |from: u32, bits: u32| n >> from & ((1 << bits) - 1);
                write!(
                    f,
                    "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                    part(96, 32),
                    part(80, 16),
                    part(64, 16),
                    part(48, 16),
                    part(0, 48)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_prints_as_it_was_read() {
        for text in [
            "0f1c9a46-6a1c-4a2e-9f67-0b9f9d5c8a11",
            "00000000-0000-0000-0000-000000000000",
            "0F1C9A46-6A1C-4A2E-9F67-0B9F9D5C8A11",
            "0f1c9a466a1c-4a2e-9f67-0b9f9d5c8a11-",
            "a",
            "",
        ] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(matches!(Uid::from("0f1c9a46-6a1c-4a2e-9f67-0b9f9d5c8a11"), Uid::Uuid(_)));
        assert_ne!(Uid::from("a"), Uid::from("b"));
    }
}
