//! Continue tokens: where the next page starts, and at which revision.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::{Result, Status};
use crate::storage::Revision;

/// Where the next page starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The revision of the first page; none: whatever is newest.
    pub revision: Option<Revision>,
    /// The path of the last object of the page before.
    pub after: String,
    /// How many objects the pages before had. A client can write what it likes: it is good for an estimate only.
    pub before: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    v: String,
    rv: i64,
    start: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<usize>,
}

const VERSION: &str = "meta.k8s.io/v1";
/// The revision of a token that goes on at the newest state.
const NEWEST: i64 = -1;

impl Token {
    /// `prefix` is the listed prefix; the token names the rest of the path only.
    pub(super) fn to_text(&self, prefix: &str) -> String {
        let start = self.after.strip_prefix(prefix).unwrap_or(&self.after).to_owned();
        let rv = self.revision.map_or(NEWEST, |revision| i64::try_from(revision).unwrap_or(NEWEST));
        encode(&Encoded { v: VERSION.to_owned(), rv, start: format!("{start}\0"), before: self.before })
    }

    pub(super) fn parse(text: &str, prefix: &str) -> Result<Token> {
        let encoded = decode(text).map_err(|why| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        })?;
        let after = format!("{prefix}{}", encoded.start.trim_end_matches('\0'));
        let revision = match encoded.rv {
            NEWEST => None,
            rv => Some(u64::try_from(rv).map_err(|_| invalid("negative resourceVersion"))?),
        };
        Ok(Token { revision, after, before: encoded.before })
    }

    /// The same token for the newest state.
    pub(super) fn without_revision(text: &str) -> Option<String> {
        let encoded = decode(text).ok()?;
        Some(encode(&Encoded { rv: NEWEST, ..encoded }))
    }
}

fn invalid(why: &str) -> Status {
    Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
}

fn encode(token: &Encoded) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).expect("a token is plain data"))
}

fn decode(text: &str) -> Result<Encoded, String> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| error.to_string())?;
    let token: Encoded = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if token.v != VERSION {
        return Err(format!("server does not recognize this encoded version {:?}", token.v));
    }
    if token.start.is_empty() || token.start.contains("..") || token.rv == 0 {
        return Err("the token names no object and no revision".to_owned());
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_was() {
        for revision in [Some(7), None] {
            let token = Token { revision, after: "default/web".into(), before: Some(2) };
            assert_eq!(Token::parse(&token.to_text("default/"), "default/").unwrap(), token);
        }
    }

    #[test]
    fn a_token_can_be_freed_of_its_revision() {
        let token = Token { revision: Some(7), after: "default/web".into(), before: Some(2) };
        let text = Token::without_revision(&token.to_text("")).unwrap();
        assert_eq!(Token::parse(&text, "").unwrap().revision, None);
    }

    #[test]
    fn rubbish_is_refused() {
        for text in ["", "x", "!!!", "e30", &URL_SAFE_NO_PAD.encode(r#"{"v":"v9","rv":1,"start":"a"}"#)] {
            assert_eq!(Token::parse(text, "").unwrap_err().code, 400, "{text}");
        }
    }
}
