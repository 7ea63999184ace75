//! JSON web tokens, as far as service accounts need them: compact form, ES256 and nothing else.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::signing_key::SigningKey;

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token with these claims.
pub(super) fn sign(key: &SigningKey, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encode(&json!({"alg": "ES256", "kid": key.id()})), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes()));
    format!("{message}.{signature}")
}

/// The issuer that a token claims to be of. Nothing is checked yet.
pub(super) fn issuer_of(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        iss: String,
    }
    let mut parts = token.split('.');
    let (_, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    decode::<Claims>(claims).map(|claims| claims.iss)
}

/// The claims of a token that this key has signed.
pub(super) fn open<T: for<'de> Deserialize<'de>>(key: &SigningKey, token: &str) -> Result<T, &'static str> {
    const BROKEN: &str = "the token is not a JSON web token";
    let (message, signature) = token.rsplit_once('.').ok_or(BROKEN)?;
    let (header, claims) = message.split_once('.').ok_or(BROKEN)?;
    let header: Header = decode(header).ok_or(BROKEN)?;
    // The header is the sender's: it chooses neither the algorithm nor the key.
    if header.alg != "ES256" || header.crit.is_some() {
        return Err("the token is not signed by ES256");
    }
    if header.kid.is_some_and(|id| id != key.id()) {
        return Err("invalid signature, no keys found");
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| BROKEN)?;
    if !key.has_signed(message.as_bytes(), &signature) {
        return Err("invalid signature");
    }
    decode(claims).ok_or(BROKEN)
}

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(header: &Value, claims: &Value) -> String {
        format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        )
    }

    #[test]
    fn only_what_was_signed_by_this_key_is_opened() {
        let (key, other) = (SigningKey::generate(), SigningKey::generate());
        let claims = json!({"iss": "me", "sub": "jane"});
        let token = sign(&key, &claims);
        assert_eq!(open::<Value>(&key, &token), Ok(claims.clone()));
        assert_eq!(issuer_of(&token).as_deref(), Some("me"));
        assert!(open::<Value>(&other, &token).is_err());

        let (message, signature) = token.rsplit_once('.').unwrap();
        let forged = parts(&json!({"alg": "ES256"}), &json!({"iss": "me", "sub": "root"}));
        let none = parts(&json!({"alg": "none"}), &claims);
        let hs256 = parts(&json!({"alg": "HS256", "kid": key.id()}), &claims);
        let critical = parts(&json!({"alg": "ES256", "crit": ["b64"]}), &claims);
        for bad in [
            format!("{forged}.{signature}"),
            format!("{none}."),
            format!("{none}.{signature}"),
            format!("{hs256}.{}", URL_SAFE_NO_PAD.encode(key.sign(hs256.as_bytes()))),
            format!("{critical}.{}", URL_SAFE_NO_PAD.encode(key.sign(critical.as_bytes()))),
            format!("{message}.{signature}x"),
            format!("{message}."),
            message.to_owned(),
            format!("{token}.{signature}"),
            String::new(),
            "a.b.c".to_owned(),
        ] {
            assert!(open::<Value>(&key, &bad).is_err(), "{bad}");
        }
        let renamed = parts(&json!({"alg": "ES256", "kid": "other"}), &claims);
        let renamed = format!("{renamed}.{}", URL_SAFE_NO_PAD.encode(key.sign(renamed.as_bytes())));
        assert_eq!(open::<Value>(&key, &renamed), Err("invalid signature, no keys found"));
    }
}
