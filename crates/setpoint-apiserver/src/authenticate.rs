//! Who sends a request.
//!
//! A client certificate was looked at when the connection began: its [`User`] travels with the request. What
//! is left are the users that a [front proxy](front_proxy) speaks for, and bearer tokens: those of a [token file](token_file), those that the server itself has signed
//! for [service accounts](service_account), and those that [secrets](legacy_token) of theirs hold. Whoever brings nothing is refused, or anonymous where the server is told so.

mod front_proxy;
pub(crate) mod impersonate;
mod jwt;
mod legacy_token;
pub(crate) mod service_account;
mod signing_key;
mod token_file;

use std::sync::{Arc, OnceLock};

use http::request::Parts;
use http::{HeaderMap, header};
use parking_lot::RwLock;

pub use front_proxy::FrontProxy;
use front_proxy::Witness;
pub(crate) use front_proxy::{Chain, Trust};
pub use legacy_token::TokenSigner;
pub use signing_key::{KeyError, PublicKey, SigningKey};
pub use token_file::{TokenFile, TokenFileError};

use crate::serve::PeerCertificate;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::user::User;

/// Who signs the tokens of service accounts, and whom they are for, unless the server is told otherwise.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A longer token is none of ours.
const LONGEST_TOKEN: usize = 64 * 1024;

/// How the server issues and checks the tokens of service accounts.
#[derive(Debug, Default)]
#[must_use]
pub struct ServiceAccountTokens {
    signing: Option<Arc<SigningKey>>,
    verifying: Vec<PublicKey>,
    issuers: Vec<String>,
    audiences: Vec<String>,
}

impl ServiceAccountTokens {
    /// A new key, an issuer of ours, and audiences that are the issuer.
    pub fn new() -> ServiceAccountTokens {
        ServiceAccountTokens::default()
    }

    /// The key that signs. Unless set, it is a new one; a server with a folder keeps it there, so that tokens outlive a
    /// restart.
    pub fn signing_key(mut self, key: impl Into<Arc<SigningKey>>) -> ServiceAccountTokens {
        self.signing = Some(key.into());
        self
    }

    /// The keys whose signatures are taken. Unless set, it is the one that signs.
    pub fn verifying_keys(mut self, keys: impl IntoIterator<Item = PublicKey>) -> ServiceAccountTokens {
        self.verifying.extend(keys);
        self
    }

    /// Whose tokens are taken; the first is who issues them.
    pub fn issuers<S: Into<String>>(mut self, issuers: impl IntoIterator<Item = S>) -> ServiceAccountTokens {
        self.issuers.extend(issuers.into_iter().map(Into::into));
        self
    }

    /// Whom tokens have to be for to be of use here. Unless set, it is the issuers.
    pub fn audiences<S: Into<String>>(
        mut self,
        audiences: impl IntoIterator<Item = S>,
    ) -> ServiceAccountTokens {
        self.audiences.extend(audiences.into_iter().map(Into::into));
        self
    }

    pub(crate) fn has_signing_key(&self) -> bool {
        self.signing.is_some()
    }
}

/// What the server knows its users by.
#[derive(Debug)]
pub(crate) struct Authenticator {
    tokens: TokenFile,
    /// Made when it is first needed, unless the server was given one.
    key: OnceLock<Keys>,
    verifying: Vec<PublicKey>,
    /// Never empty.
    issuers: Vec<String>,
    /// Never empty.
    audiences: Vec<String>,
    is_anonymous_allowed: bool,
    trust: RwLock<Arc<Trust>>,
}

/// The key that signs, and those that verify.
#[derive(Debug)]
struct Keys {
    signing: Arc<SigningKey>,
    verifying: Vec<PublicKey>,
}

/// A token that is good.
#[derive(Debug)]
pub(crate) struct Verified {
    pub user: User,
    /// Whom it is for, of those who were asked for.
    pub audiences: Vec<String>,
}

impl Authenticator {
    pub(crate) fn new(
        tokens: TokenFile,
        accounts: ServiceAccountTokens,
        is_anonymous_allowed: bool,
        trust: Trust,
    ) -> Authenticator {
        let ServiceAccountTokens { signing, verifying, mut issuers, mut audiences } = accounts;
        if issuers.is_empty() {
            issuers.push(ISSUER.to_owned());
        }
        if audiences.is_empty() {
            audiences.clone_from(&issuers);
        }
        let key = OnceLock::new();
        if let Some(signing) = signing {
            // It is new, so it is set.
            let _ = key.set(Keys::new(signing, &verifying));
        }
        Authenticator {
            tokens,
            key,
            verifying,
            issuers,
            audiences,
            is_anonymous_allowed,
            trust: RwLock::new(Arc::new(trust)),
        }
    }

    /// Whose certificates are trusted.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.trust.read())
    }

    /// Trusts others from now on.
    pub(crate) fn set_trust(&self, trust: Trust) {
        *self.trust.write() = Arc::new(trust);
    }

    fn keys(&self) -> &Keys {
        self.key.get_or_init(|| Keys::new(Arc::new(SigningKey::generate()), &self.verifying))
    }

    /// The key that signs the tokens of service accounts.
    pub(crate) fn signing_key(&self) -> &SigningKey {
        &self.keys().signing
    }

    /// The keys whose signatures are taken.
    pub(crate) fn verifying_keys(&self) -> &[PublicKey] {
        &self.keys().verifying
    }

    /// Who issues tokens.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuers[0]
    }

    /// Whom tokens have to be for.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Who sends this request, or 401. A certificate is worth more than a token.
    pub(crate) async fn authenticate(&self, core: &Core, parts: &Parts) -> Result<Arc<User>> {
        let mut is_refused = false;
        if let Some(user) = User::of(&parts.extensions) {
            let chain = parts.extensions.get::<PeerCertificate>().map(|certificate| &certificate.chain);
            let witness = chain.map(|chain| self.trust().witness(chain, &parts.headers, &core.env));
            match witness.unwrap_or(Witness::Itself) {
                Witness::Itself => return Ok(Arc::clone(user)),
                Witness::Proxied(user) => return Ok(Arc::new(user)),
                // A token may do; but a certificate that is good for nothing is not the same as none.
                Witness::Nobody => is_refused = true,
            }
        }
        let Some(token) = bearer_token(&parts.headers) else {
            // Bad credentials are not the same as none.
            let is_anonymous = self.is_anonymous_allowed
                && !is_refused
                && !parts.headers.contains_key(header::AUTHORIZATION);
            return if is_anonymous { Ok(Arc::new(User::anonymous())) } else { Err(Status::unauthorized()) };
        };
        if let Some(delegated) = core.delegated.as_ref().filter(|_| token.len() <= LONGEST_TOKEN) {
            return delegated.authenticate(token).await?.map(Arc::new).ok_or_else(Status::unauthorized);
        }
        match self.verify(core, token, &self.audiences).await {
            Ok(verified) => Ok(Arc::new(verified.user)),
            Err(why) => {
                tracing::debug!(why, "a token was refused");
                Err(Status::unauthorized())
            }
        }
    }

    /// Whose token it is, if it is good for one of the audiences; or why it is not.
    pub(crate) async fn verify(
        &self,
        core: &Core,
        token: &str,
        audiences: &[String],
    ) -> Result<Verified, String> {
        const INVALID: &str = "invalid bearer token";
        if token.len() > LONGEST_TOKEN {
            return Err(INVALID.to_owned());
        }
        if let Some(user) = self.tokens.find(token) {
            let shared = shared(&self.audiences, audiences);
            if shared.is_empty() {
                return Err(INVALID.to_owned());
            }
            return Ok(Verified { user: user.clone().authenticated(), audiences: shared });
        }
        // Without a key nothing was ever signed, and none is made to find that out.
        let issuer = jwt::issuer_of(token).unwrap_or_default();
        let is_legacy = issuer == legacy_token::ISSUER;
        let is_ours = is_legacy || self.issuers.contains(&issuer);
        let keys = self.key.get().map_or(self.verifying.as_slice(), |keys| &keys.verifying);
        if !is_ours || keys.is_empty() {
            return Err(INVALID.to_owned());
        }
        let verified = if is_legacy {
            legacy_token::verify(core, keys, token, audiences).await
        } else {
            service_account::verify(core, keys, token, audiences).await
        };
        verified.map_err(|why| format!("[{INVALID}, {why}]"))
    }
}

impl Keys {
    fn new(signing: Arc<SigningKey>, verifying: &[PublicKey]) -> Keys {
        let own = [signing.public().clone()];
        Keys { verifying: if verifying.is_empty() { &own } else { verifying }.to_vec(), signing }
    }
}

/// The audiences that both know.
fn shared(own: &[String], asked: &[String]) -> Vec<String> {
    own.iter().filter(|own| asked.contains(own)).cloned().collect()
}

/// The token of `Authorization: Bearer …`. Two such headers are none: who knows which one a proxy has checked.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_in_one_header_of_the_right_form() {
        let token = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer_token(&headers).map(str::to_owned)
        };
        assert_eq!(token(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(token(&["bearer abc"]).as_deref(), Some("abc"));
        for bad in [
            &["Basic abc"][..],
            &["Bearer"],
            &["Bearer  abc"],
            &["Bearer a b"],
            &["Bearer a", "Bearer b"],
            &[],
        ] {
            assert_eq!(token(bad), None, "{bad:?}");
        }
    }
}
