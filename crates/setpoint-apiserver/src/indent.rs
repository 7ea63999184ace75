//! JSON for people: indented by two, with its fields in the order that they have.

/// Indents a JSON text as Go does.
pub(crate) fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut bytes = json.iter().copied().filter(not_a_space()).peekable();
    let mut is_text = Texts::default();
    while let Some(byte) = bytes.next() {
        if is_text.step(byte) {
            out.push(byte);
            continue;
        }
        match byte {
            b'{' | b'[' if matches!(bytes.peek(), Some(b'}' | b']')) => {
                out.push(byte);
                out.extend(bytes.next());
            }
            b'{' | b'[' => {
                out.push(byte);
                depth += 1;
                new_line(&mut out, depth);
            }
            b'}' | b']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
    }
    out
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

/// Drops the white space between tokens.
fn not_a_space() -> impl FnMut(&u8) -> bool {
    let mut texts = Texts::default();
    move |byte| texts.step(*byte) || !byte.is_ascii_whitespace()
}

/// Follows a JSON text byte by byte, and knows which of them are in a string, its quotation marks included.
#[derive(Default)]
struct Texts {
    is_open: bool,
    is_escaped: bool,
}

impl Texts {
    fn step(&mut self, byte: u8) -> bool {
        let was_open = self.is_open;
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if was_open => self.is_escaped = true,
            b'"' => self.is_open = !was_open,
            _ => {}
        }
        was_open || self.is_open
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let text =
            indent(br#"{"kind":"X", "apiVersion":"v1","list":[1,{"a":"b: {\\\"}"}],"none":{},"empty":[]}"#);
        let expected = r#"{
  "kind": "X",
  "apiVersion": "v1",
  "list": [
    1,
    {
      "a": "b: {\\\"}"
    }
  ],
  "none": {},
  "empty": []
}"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn it_is_what_serde_makes_of_it(texts in proptest::collection::vec("\\PC{0,6}|[\\\\\"{}:, ]{0,6}", 0..4)) {
            let value = json!({"texts": texts, "nested": [[], {}, {"x": [texts.first(), 1.5, null]}]});
            let expected: Value = value.clone();
            let text = indent(value.to_string().as_bytes());
            prop_assert_eq!(&text, &serde_json::to_vec_pretty(&expected).unwrap());
        }
    }
}
