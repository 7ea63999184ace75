//! The keys of the tokens of service accounts: one that signs, and those whose signatures are taken.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RsaKeyPair,
    UnparsedPublicKey,
};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo};
use x509_parser::public_key::{PublicKey as Parsed, RSAPublicKey};
use yasna::models::ObjectIdentifier;

use crate::pki;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not a key that can sign.
    #[error(
        "no private key in the PEM text: expected P-256, or RSA of 2,048 to 4,096 bits, in PKCS #8, SEC 1 or PKCS #1"
    )]
    Invalid,
    /// The text has no key in it that can verify.
    #[error(
        "no key in the PEM text that can verify tokens: expected P-256, or RSA of 2,048 to 8,192 bits, as a public key, \
             a certificate or a private key"
    )]
    NoPublicKey,
}

const EC_PUBLIC_KEY: &[u64] = &[1, 2, 840, 10045, 2, 1];
const P256: &[u64] = &[1, 2, 840, 10045, 3, 1, 7];
const RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];

/// How many bits the modulus of an RSA key may have.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The private key that signs tokens: P-256 signs by ES256, RSA by RS256.
pub struct SigningKey {
    pem: String,
    pair: Pair,
    random: SystemRandom,
    public: PublicKey,
}

enum Pair {
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A new P-256 key. It comes from the operating system: a key that a seed can repeat is no secret.
    ///
    /// # Panics
    /// If the operating system has no random bytes.
    pub fn generate() -> SigningKey {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .expect("the operating system has random bytes");
        let pem = pem::encode(&pem::Pem::new("PRIVATE KEY", pkcs8.as_ref()));
        SigningKey::from_pem(&pem).expect("a new key is good")
    }

    /// The first private key of a PEM text: PKCS #8, SEC 1 (`EC PRIVATE KEY`) or PKCS #1 (`RSA PRIVATE KEY`).
    pub fn from_pem(text: &str) -> Result<SigningKey, KeyError> {
        let blocks = pem::parse_many(text).map_err(|_| KeyError::Invalid)?;
        blocks.iter().find_map(SigningKey::from_block).ok_or(KeyError::Invalid)
    }

    fn from_block(block: &pem::Pem) -> Option<SigningKey> {
        let random = SystemRandom::new();
        let p256 = |der: &[u8]| {
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random).ok().map(Pair::P256)
        };
        let der = block.contents();
        let pair = match block.tag() {
            "PRIVATE KEY" => p256(der).or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Pair::Rsa)),
            "EC PRIVATE KEY" => p256(&pkcs8_of_sec1(der)),
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(der).ok().map(Pair::Rsa),
            _ => None,
        }?;
        let public = match &pair {
            Pair::P256(pair) => PublicKey::new(Algorithm::Es256, pair.public_key().as_ref()),
            Pair::Rsa(pair) => PublicKey::new(Algorithm::Rs256, pair.public_key().as_ref()),
        };
        Some(SigningKey { pem: pem::encode(block), pair, random, public })
    }

    /// The key as text.
    pub fn to_pem(&self) -> String {
        self.pem.clone()
    }

    /// Its public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = "the operating system has random bytes";
        match &self.pair {
            Pair::P256(pair) => pair.sign(&self.random, message).expect(random).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &self.random, message, &mut signature).expect(random);
                signature
            }
        }
    }
}

/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Es256,
    Rs256,
}

impl Algorithm {
    /// Its name in the header of a token.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Rs256 => "RS256",
        }
    }
}

/// A key whose signatures are taken.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    algorithm: Algorithm,
    /// As `ring` wants it: an uncompressed point, or a DER `RSAPublicKey`.
    key: Vec<u8>,
    id: String,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("algorithm", &self.algorithm).field("id", &self.id).finish()
    }
}

impl PublicKey {
    /// All keys of a PEM text: public keys, certificates, and private keys, of which the public half is taken.
    pub fn all_from_pem(text: &str) -> Result<Vec<PublicKey>, KeyError> {
        let blocks = pem::parse_many(text).map_err(|_| KeyError::NoPublicKey)?;
        let keys: Vec<PublicKey> = blocks.iter().filter_map(PublicKey::from_block).collect();
        if keys.is_empty() { Err(KeyError::NoPublicKey) } else { Ok(keys) }
    }

    fn from_block(block: &pem::Pem) -> Option<PublicKey> {
        match block.tag() {
            "PUBLIC KEY" => PublicKey::from_info(block.contents()),
            "CERTIFICATE" => PublicKey::from_info(&pki::public_key_of(block.contents())?),
            "RSA PUBLIC KEY" => PublicKey::from_info(&info(Algorithm::Rs256, block.contents())),
            _ => SigningKey::from_block(block).map(|key| key.public),
        }
    }

    /// The key of a DER `SubjectPublicKeyInfo`.
    fn from_info(info: &[u8]) -> Option<PublicKey> {
        let (_, info) = SubjectPublicKeyInfo::from_der(info).ok()?;
        let key = &info.subject_public_key.data;
        match info.parsed().ok()? {
            Parsed::EC(point) if point.key_size() == 256 => {
                let curve = info.algorithm.parameters.as_ref()?.as_oid().ok()?;
                let is_p256 = curve.iter().is_some_and(|parts| parts.eq(P256.iter().copied()));
                is_p256.then(|| PublicKey::new(Algorithm::Es256, key))
            }
            Parsed::RSA(rsa) => {
                RSA_BITS.contains(&rsa.key_size()).then(|| PublicKey::new(Algorithm::Rs256, key))
            }
            _ => None,
        }
    }

    fn new(algorithm: Algorithm, key: &[u8]) -> PublicKey {
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &info(algorithm, key)));
        PublicKey { algorithm, key: key.to_vec(), id }
    }

    /// How tokens name it: the digest of its `SubjectPublicKeyInfo`.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.algorithm {
            Algorithm::Es256 => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.key).verify(message, signature)
            }
            Algorithm::Rs256 => UnparsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, &self.key)
                .verify(message, signature),
        }
        .is_ok()
    }

    /// The key as a JSON web key.
    pub(crate) fn to_jwk(&self) -> Value {
        let mut jwk = json!({"use": "sig", "kid": self.id, "alg": self.algorithm.name()});
        let mut set = |name: &str, value: Value| jwk[name] = value;
        match self.algorithm {
            Algorithm::Es256 => {
                // An uncompressed point: a mark, then both coordinates.
                let (x, y) = self.key[1..].split_at(32);
                set("kty", "EC".into());
                set("crv", "P-256".into());
                set("x", URL_SAFE_NO_PAD.encode(x).into());
                set("y", URL_SAFE_NO_PAD.encode(y).into());
            }
            Algorithm::Rs256 => {
                let (_, rsa) = RSAPublicKey::from_der(&self.key).expect("it was read when the key was made");
                set("kty", "RSA".into());
                set("n", URL_SAFE_NO_PAD.encode(without_zeros(rsa.modulus)).into());
                set("e", URL_SAFE_NO_PAD.encode(without_zeros(rsa.exponent)).into());
            }
        }
        jwk
    }
}

/// A number in as few bytes as it takes.
fn without_zeros(number: &[u8]) -> &[u8] {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    &number[first..]
}

/// A DER `SubjectPublicKeyInfo`.
fn info(algorithm: Algorithm, key: &[u8]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_sequence(|writer| match algorithm {
                Algorithm::Es256 => write_p256(writer),
                Algorithm::Rs256 => {
                    writer.next().write_oid(&ObjectIdentifier::from_slice(RSA));
                    writer.next().write_null();
                }
            });
            writer.next().write_bitvec_bytes(key, key.len() * 8);
        });
    })
}

/// A SEC 1 key in the coat of PKCS #8.
fn pkcs8_of_sec1(sec1: &[u8]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            writer.next().write_sequence(write_p256);
            writer.next().write_bytes(sec1);
        });
    })
}

fn write_p256(writer: &mut yasna::DERWriterSeq<'_>) {
    writer.next().write_oid(&ObjectIdentifier::from_slice(EC_PUBLIC_KEY));
    writer.next().write_oid(&ObjectIdentifier::from_slice(P256));
}

#[cfg(test)]
mod tests {
    use super::*;

    // See the README beside them.
    const SEC1: &str = include_str!("testdata/ec-sec1.pem");
    const RSA_PKCS1: &str = include_str!("testdata/rsa-pkcs1.pem");
    const RSA_PKCS8: &str = include_str!("testdata/rsa-pkcs8.pem");
    const PUBLIC: &str = include_str!("testdata/public.pem");
    const SHORT: &str = include_str!("testdata/rsa-1024.pem");

    #[test]
    fn a_key_is_the_same_after_it_was_stored() {
        for key in [SigningKey::generate(), SigningKey::from_pem(RSA_PKCS8).unwrap()] {
            let again = SigningKey::from_pem(&key.to_pem()).unwrap();
            assert_eq!(again.public(), key.public());
            assert!(again.public().has_signed(b"message", &key.sign(b"message")));
            assert!(!again.public().has_signed(b"other", &key.sign(b"message")));
        }
    }

    #[test]
    fn keys_come_in_every_form_of_pem() {
        let ec = SigningKey::from_pem(SEC1).unwrap();
        let rsa = SigningKey::from_pem(RSA_PKCS1).unwrap();
        assert_eq!(rsa.public(), SigningKey::from_pem(RSA_PKCS8).unwrap().public());
        // Both public halves, each once as a public key and once as a certificate.
        let public = PublicKey::all_from_pem(PUBLIC).unwrap();
        assert_eq!(public.iter().collect::<Vec<_>>(), [ec.public(), rsa.public(), ec.public(), rsa.public()]);
        assert_eq!(PublicKey::all_from_pem(&format!("{SEC1}{RSA_PKCS1}")).unwrap(), public[..2]);
        let jwk = rsa.public().to_jwk();
        assert_eq!((jwk["alg"].as_str(), jwk["e"].as_str()), (Some("RS256"), Some("AQAB")));
        assert_eq!(URL_SAFE_NO_PAD.decode(jwk["n"].as_str().unwrap()).unwrap().len(), 256);
    }

    #[test]
    fn what_is_no_key_or_a_weak_one_is_refused() {
        for text in ["", "nothing", SHORT, PUBLIC] {
            assert!(SigningKey::from_pem(text).is_err(), "{text}");
        }
        for text in ["", "nothing", SHORT] {
            assert!(PublicKey::all_from_pem(text).is_err(), "{text}");
        }
    }
}
