//! Bytes in JSON: standard base64, read as Go reads it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// Go does not mind bits that stick out of the last byte.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes as Go does: line breaks are ignored. The error is Go's message.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, String> {
    let result = if text.contains(['\r', '\n']) {
        LENIENT.decode(text.replace(['\r', '\n'], ""))
    } else {
        LENIENT.decode(text)
    };
    result.map_err(|_| format!("illegal base64 data at input byte {}", corrupt_at(text.as_bytes())))
}

/// Whether encoding the decoded bytes could give another text than `text`.
pub(crate) fn may_change(text: &str) -> bool {
    text.ends_with('=') || text.contains(['\r', '\n'])
}

/// The position that Go reports for a text that does not decode.
fn corrupt_at(text: &[u8]) -> usize {
    let symbol = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let mut read = 0; // symbols of the current group of four
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'\r' | b'\n' => {}
            byte if symbol(byte) => read = (read + 1) % 4,
            b'=' if read >= 2 => return corrupt_padding(text, at, read),
            _ => return at - 1,
        }
    }
    at - read
}

/// Continues after the first `=` of a group, at `at`.
fn corrupt_padding(text: &[u8], mut at: usize, read: usize) -> usize {
    let skip_lines = |mut at: usize| {
        while matches!(text.get(at), Some(b'\r' | b'\n')) {
            at += 1;
        }
        at
    };
    if read == 2 {
        at = skip_lines(at);
        match text.get(at) {
            Some(b'=') => at += 1,
            Some(_) => return at - 1,
            None => return text.len(),
        }
    }
    skip_lines(at)
}
