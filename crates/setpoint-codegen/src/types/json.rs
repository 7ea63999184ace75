//! JSON → tokens that schemars' `extend` takes, and string literals.

use serde_json::Value;

/// How much one level of JSON may hold as tokens: the macro behind `extend` recurses once a token.
const MOST_TOKENS: usize = 20;

/// A value as it stands in an attribute. Large ones are text, which a function of the module parses.
pub(crate) fn tokens(value: &Value) -> String {
    if is_small(value) { literal(value) } else { format!("json({})", string(&value.to_string())) }
}

/// Whether the attribute needs the function that parses text.
pub(crate) fn is_small(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.len() <= MOST_TOKENS && items.iter().all(is_small),
        Value::Object(fields) => fields.len() * 3 <= MOST_TOKENS && fields.values().all(is_small),
        _ => true,
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) => value.to_string(),
        Value::Number(number) => number_literal(number),
        Value::String(text) => string(text),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{}: {}", string(key), literal(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

/// An integer without a suffix is an `i32`.
fn number_literal(number: &serde_json::Number) -> String {
    match (number.as_i64(), number.as_u64()) {
        (Some(small), _) if i32::try_from(small).is_ok() => small.to_string(),
        (Some(large), _) => format!("{large}i64"),
        (_, Some(larger)) => format!("{larger}u64"),
        _ => float(number.as_f64().unwrap_or_default()),
    }
}

/// A float that is recognised as one.
pub(crate) fn float(value: f64) -> String {
    format!("{value:?}")
}

/// A string literal: raw if that spares escapes.
pub(crate) fn string(text: &str) -> String {
    let is_plain = text.chars().all(|c| !c.is_control() && !is_invisible(c));
    if !is_plain || !text.contains(['\\', '"']) {
        return format!("{text:?}");
    }
    let hashes = (0..).map(|n| "#".repeat(n)).find(|hashes| !text.contains(&format!("\"{hashes}")));
    let hashes = hashes.unwrap_or_default();
    format!("r{hashes}\"{text}\"{hashes}")
}

/// Characters that change the direction of text are errors in a literal.
fn is_invisible(c: char) -> bool {
    c.escape_debug().len() > 1 && !matches!(c, '\\' | '"' | '\'')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_as_rust() {
        let cases = [
            (json!(null), "null"),
            (json!(-1), "-1"),
            (json!(4_294_967_296_i64), "4294967296i64"),
            (json!(u64::MAX), "18446744073709551615u64"),
            (json!(1.0), "1.0"),
            (json!("a\"b"), r##"r#"a"b"#"##),
            (json!(r"^\d+$"), r#"r"^\d+$""#),
            (json!("a\nb"), r#""a\nb""#),
            (json!("a\"#b"), r###"r##"a"#b"##"###),
            (json!({"rule": "x"}), r#"{"rule": "x"}"#),
        ];
        for (value, expected) in cases {
            assert_eq!(tokens(&value), expected);
        }
    }

    #[test]
    fn what_would_exhaust_the_macro_is_text() {
        let many: Vec<u32> = (0..300).collect();
        assert!(tokens(&json!(many)).starts_with("json(\"[0,1,"));
    }
}
