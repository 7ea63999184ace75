//! The key that signs the tokens of service accounts.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not a key that can sign.
    #[error("the text is not a PKCS #8 PEM of a P-256 private key")]
    Invalid,
}

/// A P-256 key: its tokens are signed by ES256, the only algorithm that is accepted.
pub struct SigningKey {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What comes before the point in a DER `SubjectPublicKeyInfo` of P-256.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl SigningKey {
    /// A new key. It comes from the operating system: a key that a seed can repeat is no secret.
    ///
    /// # Panics
    /// If the operating system has no random bytes.
    pub fn generate() -> SigningKey {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .expect("the operating system has random bytes");
        SigningKey::from_pkcs8(pkcs8.as_ref().to_vec()).expect("a new key is good")
    }

    /// A key that was stored with [`to_pem`](SigningKey::to_pem).
    pub fn from_pem(text: &str) -> Result<SigningKey, KeyError> {
        let pem = pem::parse(text).map_err(|_| KeyError::Invalid)?;
        SigningKey::from_pkcs8(pem.into_contents())
    }

    /// The key as text.
    pub fn to_pem(&self) -> String {
        pem::encode(&pem::Pem::new("PRIVATE KEY", self.pkcs8.clone()))
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Result<SigningKey, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random)
            .map_err(|_| KeyError::Invalid)?;
        let info = [&SPKI_PREFIX[..], pair.public_key().as_ref()].concat();
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &info));
        Ok(SigningKey { pkcs8, pair, random, id })
    }

    /// How tokens name it: the digest of its public half.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.pair.sign(&self.random, message);
        signature.expect("the operating system has random bytes").as_ref().to_vec()
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        key.verify(message, signature).is_ok()
    }

    /// The public half as a JSON web key.
    pub(crate) fn to_jwk(&self) -> Value {
        // An uncompressed point: a mark, then both coordinates.
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_after_it_was_stored() {
        let key = SigningKey::generate();
        let again = SigningKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(again.to_jwk(), key.to_jwk());
        assert!(again.has_signed(b"message", &key.sign(b"message")));
        assert!(!again.has_signed(b"other", &key.sign(b"message")));
        assert!(SigningKey::from_pem("nothing").is_err());
    }
}
