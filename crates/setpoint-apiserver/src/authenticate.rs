//! Who sends a request.
//!
//! A client certificate was looked at when the connection began: its [`User`] travels with the request. What
//! is left are bearer tokens: those of a [token file](token_file), and those that the server itself has signed
//! for [service accounts](service_account). Nobody is anonymous.

pub(crate) mod impersonate;
mod jwt;
pub(crate) mod service_account;
mod signing_key;
mod token_file;

use std::sync::{Arc, OnceLock};

use http::request::Parts;
use http::{HeaderMap, header};

pub use signing_key::{KeyError, SigningKey};
pub use token_file::{TokenFile, TokenFileError};

use crate::server::Core;
use crate::status::{Result, Status};
use crate::user::User;

/// Who signs the tokens of service accounts, and whom they are for unless somebody says otherwise.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A longer token is none of ours.
const LONGEST_TOKEN: usize = 64 * 1024;

/// What the server knows its users by.
#[derive(Debug, Default)]
pub(crate) struct Authenticator {
    tokens: TokenFile,
    /// Made when it is first needed, unless the server was given one.
    key: OnceLock<SigningKey>,
}

/// A token that is good.
#[derive(Debug)]
pub(crate) struct Verified {
    pub user: User,
    /// Whom it is for, of those who were asked for.
    pub audiences: Vec<String>,
}

impl Authenticator {
    pub(crate) fn new(tokens: TokenFile, key: Option<SigningKey>) -> Authenticator {
        Authenticator { tokens, key: key.map(OnceLock::from).unwrap_or_default() }
    }

    /// The key of the tokens of service accounts.
    pub(crate) fn key(&self) -> &SigningKey {
        self.key.get_or_init(SigningKey::generate)
    }

    /// Who sends this request, or 401. A certificate is worth more than a token.
    pub(crate) async fn authenticate(&self, core: &Core, parts: &Parts) -> Result<Arc<User>> {
        if let Some(user) = User::of(&parts.extensions) {
            return Ok(Arc::clone(user));
        }
        let token = bearer_token(&parts.headers).ok_or_else(Status::unauthorized)?;
        match self.verify(core, token, &[ISSUER.to_owned()]).await {
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
            if !audiences.iter().any(|audience| audience == ISSUER) {
                return Err(INVALID.to_owned());
            }
            return Ok(Verified { user: user.clone().authenticated(), audiences: vec![ISSUER.to_owned()] });
        }
        // Without a key nothing was ever signed, and none is made to find that out.
        let Some(key) = self.key.get().filter(|_| jwt::issuer_of(token).as_deref() == Some(ISSUER)) else {
            return Err(INVALID.to_owned());
        };
        service_account::verify(core, key, token, audiences)
            .await
            .map_err(|why| format!("[{INVALID}, {why}]"))
    }
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
