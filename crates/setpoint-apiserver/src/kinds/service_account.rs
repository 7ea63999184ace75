//! Service accounts.

use serde_json::{Value, json};

/// Of a secret only the name is kept.
pub(super) fn clean(account: &mut Value) {
    let secrets = account.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten() {
        *secret = match secret.get("name") {
            Some(name) => json!({"name": name}),
            None => json!({}),
        };
    }
}
