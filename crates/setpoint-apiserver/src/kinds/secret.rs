//! Secrets are Opaque unless they say otherwise; `stringData` is written, never read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::at::At;
use super::config_map::{self, MAX_SIZE, decoded_len, problems_of_key};

pub(super) fn default(secret: &mut Value) {
    let Some(secret) = secret.as_object_mut() else { return };
    secret.entry("type").or_insert_with(|| "Opaque".into());
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, text) in texts {
        data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

pub(super) fn validate(secret: &At, old: Option<&Value>) {
    if let Some(old) = old {
        secret.field("type").immutable(&old["type"]);
        config_map::immutable(secret, old, &["data"]);
    }
    let data = secret.field("data");
    let mut size = 0;
    for (key, value) in data.entries() {
        problems_of_key(key, &value);
        size += decoded_len(value.text());
    }
    if size > MAX_SIZE {
        data.too_long(MAX_SIZE);
    }
    keys_of_type(secret, &data);
}

fn keys_of_type(secret: &At, data: &At) {
    let need = |key: &str| {
        if !data.key(key).exists() {
            data.key(key).required("");
        }
    };
    match secret.field("type").text() {
        "kubernetes.io/service-account-token" => {
            let metadata = secret.field("metadata");
            let annotations = metadata.field("annotations");
            let account = annotations.key("kubernetes.io/service-account.name");
            if account.is_empty() {
                account.required("");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(&data.key(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => docker_config(&data.key(".dockerconfigjson")),
        "kubernetes.io/basic-auth" if !data.key("username").exists() && !data.key("password").exists() => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" if data.key("ssh-privatekey").is_empty() => {
            data.key("ssh-privatekey").required("");
        }
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        _ => {}
    }
}

/// A configuration of docker is a JSON object. The messages for what it is not are Go's for the usual mistakes.
fn docker_config(config: &At) {
    const HIDDEN: &str = "<secret contents redacted>";
    if !config.exists() {
        return config.required("");
    }
    let bytes = STANDARD.decode(config.text()).unwrap_or_default();
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => {}
        Ok(other) => {
            let found = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            let detail =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            config.invalid_as(HIDDEN, detail);
        }
        Err(error) if error.is_eof() => config.invalid_as(HIDDEN, "unexpected end of JSON input"),
        Err(_) => {
            let text = String::from_utf8_lossy(&bytes);
            let first = text.trim_start().chars().next().unwrap_or('\u{0}');
            let detail = format!("invalid character '{first}' looking for beginning of value");
            config.invalid_as(HIDDEN, detail);
        }
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
