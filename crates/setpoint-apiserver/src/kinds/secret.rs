//! Secrets are Opaque unless they say otherwise; `stringData` is written, never read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

pub(super) fn default(secret: &mut Value) {
    let Some(secret) = secret.as_object_mut() else { return };
    secret.entry("type").or_insert_with(|| "Opaque".into());
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, text) in texts {
        data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_becomes_data_and_wins_over_it() {
        let mut secret = json!({"stringData": {"a": "new"}, "data": {"a": "b2xk", "b": "a2VwdA=="}});
        default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "bmV3", "b": "a2VwdA=="}}));
    }
}
