//! JSON web tokens, as far as service accounts need them: compact form, ES256 and RS256.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::signing_key::{PublicKey, SigningKey};

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token with these claims.
pub(super) fn sign(key: &SigningKey, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let public = key.public();
    let header = json!({"alg": public.algorithm().name(), "kid": public.id()});
    let message = format!("{}.{}", encode(&header), encode(claims));
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

/// The claims of a token that one of these keys has signed.
pub(super) fn open<T: for<'de> Deserialize<'de>>(keys: &[PublicKey], token: &str) -> Result<T, &'static str> {
    const BROKEN: &str = "the token is not a JSON web token";
    let (message, signature) = token.rsplit_once('.').ok_or(BROKEN)?;
    let (header, claims) = message.split_once('.').ok_or(BROKEN)?;
    let header: Header = decode(header).ok_or(BROKEN)?;
    if header.crit.is_some() {
        return Err("the token has headers that are not understood");
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| BROKEN)?;
    // The header is the sender's: it may point to one of our keys, and the key says how it signs.
    let is_named = |key: &&PublicKey| header.kid.as_ref().is_none_or(|id| id == key.id());
    let mut named = keys.iter().filter(is_named).peekable();
    if named.peek().is_none() {
        return Err("invalid signature, no keys found");
    }
    let has_signed = |key: &PublicKey| {
        key.algorithm().name() == header.alg && key.has_signed(message.as_bytes(), &signature)
    };
    if !named.any(has_signed) {
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
        let id = key.public().id();
        let own = [key.public().clone()];
        let claims = json!({"iss": "me", "sub": "jane"});
        let token = sign(&key, &claims);
        assert_eq!(open::<Value>(&own, &token), Ok(claims.clone()));
        assert_eq!(issuer_of(&token).as_deref(), Some("me"));
        assert!(open::<Value>(&[other.public().clone()], &token).is_err());

        let (message, signature) = token.rsplit_once('.').unwrap();
        let forged = parts(&json!({"alg": "ES256"}), &json!({"iss": "me", "sub": "root"}));
        let none = parts(&json!({"alg": "none"}), &claims);
        let hs256 = parts(&json!({"alg": "HS256", "kid": id}), &claims);
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
            assert!(open::<Value>(&own, &bad).is_err(), "{bad}");
        }
        let renamed = parts(&json!({"alg": "ES256", "kid": "other"}), &claims);
        let renamed = format!("{renamed}.{}", URL_SAFE_NO_PAD.encode(key.sign(renamed.as_bytes())));
        assert_eq!(open::<Value>(&own, &renamed), Err("invalid signature, no keys found"));
    }

    #[test]
    fn any_of_several_keys_opens_what_it_has_signed() {
        let rsa = SigningKey::from_pem(include_str!("testdata/rsa-pkcs8.pem")).unwrap();
        let keys = [SigningKey::generate(), rsa, SigningKey::generate()];
        let public = keys.each_ref().map(|key| key.public().clone());
        for key in &keys {
            let token = sign(key, &json!({"sub": "jane"}));
            assert!(open::<Value>(&public, &token).is_ok());
            let (message, signature) = token.rsplit_once('.').unwrap();
            // Without a name every key is tried; with the name of another one only that.
            let renamed = |header: Value| {
                let message = parts(&header, &json!({"sub": "jane"}));
                format!("{message}.{}", URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes())))
            };
            let alg = key.public().algorithm().name();
            assert!(open::<Value>(&public, &renamed(json!({"alg": alg}))).is_ok());
            let other = public.iter().find(|other| *other != key.public()).unwrap();
            assert!(open::<Value>(&public, &renamed(json!({"alg": alg, "kid": other.id()}))).is_err());
            let wrong = if alg == "ES256" { "RS256" } else { "ES256" };
            assert!(open::<Value>(&public, &renamed(json!({"alg": wrong}))).is_err());
            assert!(open::<Value>(&public, &format!("{message}.{signature}x")).is_err());
        }
    }
}
