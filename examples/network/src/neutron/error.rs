//! What can go wrong, and what to do about it.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::TransportError;

/// Why Neutron did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NeutronError {
    /// No connection, or it broke.
    #[error("Neutron at {url} cannot be reached")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What the network says.
        source: TransportError,
    },
    /// No answer in time.
    #[error("Neutron did not answer within {0:?}")]
    Timeout(Duration),
    /// There is no token to send.
    #[error("the token file {path} cannot be read")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// 401.
    #[error("Neutron does not accept the token: {0}")]
    Unauthorized(String),
    /// 403.
    #[error("Neutron does not allow it: {0}")]
    Forbidden(String),
    /// 404.
    #[error("Neutron does not have it: {0}")]
    NotFound(String),
    /// 400.
    #[error("Neutron refuses it: {message}")]
    Invalid {
        /// Neutron's name for the error.
        kind: String,
        /// Neutron's words.
        message: String,
    },
    /// 409: in use, over quota, in conflict with something else.
    #[error("Neutron cannot do it now: {message}")]
    Conflict {
        /// Neutron's name for the error.
        kind: String,
        /// Neutron's words.
        message: String,
    },
    /// 412: somebody has changed it since it was read.
    #[error("it has changed in Neutron meanwhile")]
    Stale,
    /// 5xx.
    #[error("Neutron failed with {status}: {message}")]
    Server {
        /// The status.
        status: StatusCode,
        /// The beginning of what it says.
        message: String,
    },
    /// Another status.
    #[error("Neutron answered {status}: {message}")]
    Unexpected {
        /// The status.
        status: StatusCode,
        /// The beginning of what it says.
        message: String,
    },
    /// The answer is not Neutron's.
    #[error("the answer is not what Neutron sends: {start:?}")]
    NotNeutron {
        /// How the answer begins.
        start: String,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
    /// A list goes on for ever.
    #[error("Neutron sends a list without an end")]
    Endless,
    /// The request cannot be made, for example since the URL is none.
    #[error("the request to Neutron cannot be made; is the URL right?")]
    Request(#[source] http::Error),
    /// The body cannot be made.
    #[error("the request to Neutron cannot be encoded")]
    Encode(#[source] serde_json::Error),
}

impl NeutronError {
    /// Whether the same request may work a moment later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            NeutronError::Unreachable { .. } | NeutronError::Timeout(_) | NeutronError::Server { .. }
        ) || matches!(self, NeutronError::Unexpected { status, .. } if *status == StatusCode::TOO_MANY_REQUESTS)
    }

    /// The reason of a condition, for machines.
    pub fn reason(&self) -> &'static str {
        match self {
            NeutronError::Unreachable { .. } => "NeutronUnreachable",
            NeutronError::Timeout(_) => "NeutronTimeout",
            NeutronError::TokenFile { .. } | NeutronError::Unauthorized(_) => "NeutronUnauthorized",
            NeutronError::Forbidden(_) => "NeutronForbidden",
            NeutronError::Invalid { .. } => "NeutronRefused",
            NeutronError::Conflict { kind, .. } if kind == "OverQuota" => "QuotaExceeded",
            NeutronError::Conflict { kind, .. } if kind.ends_with("InUse") => "InUse",
            NeutronError::Conflict { .. } => "NeutronConflict",
            NeutronError::Stale => "NeutronChanged",
            NeutronError::NotNeutron { .. } | NeutronError::Endless => "NotNeutron",
            NeutronError::NotFound(_)
            | NeutronError::Server { .. }
            | NeutronError::Unexpected { .. }
            | NeutronError::Request(_)
            | NeutronError::Encode(_) => "NeutronFailed",
        }
    }

    /// What somebody can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            NeutronError::Unreachable { .. } | NeutronError::Timeout(_) => {
                "it is tried again; see that Neutron runs and that --neutron-url is right"
            }
            NeutronError::TokenFile { .. } | NeutronError::Unauthorized(_) => {
                "put a valid token into the file of --token-file"
            }
            NeutronError::Forbidden(_) => "let the project of the token create networks and subnets",
            NeutronError::Invalid { .. } => "change the spec, or what it collides with in Neutron",
            NeutronError::Conflict { kind, .. } if kind == "OverQuota" => {
                "raise the project's quota, or delete networks that nobody needs"
            }
            NeutronError::Conflict { kind, .. } if kind.ends_with("InUse") => {
                "remove the ports that are on it"
            }
            NeutronError::NotNeutron { .. } | NeutronError::Endless => {
                "see that --neutron-url is Neutron's and not another service's"
            }
            _ => "it is tried again; if it goes on, look into Neutron's log",
        }
    }
}

/// `{"NeutronError": {"type", "message", "detail"}}`
#[derive(Deserialize)]
struct Report {
    #[serde(rename = "NeutronError")]
    error: Details,
}

#[derive(Deserialize)]
struct Details {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: String,
}

/// The error that an answer stands for. Some are not JSON: then its first line says what there is to know.
pub(super) fn answer_error(status: StatusCode, body: &[u8]) -> NeutronError {
    let report = serde_json::from_slice::<Report>(body).map(|report| report.error);
    let Details { kind, message } =
        report.unwrap_or_else(|_| Details { kind: String::new(), message: beginning(body) });
    match status {
        StatusCode::BAD_REQUEST => NeutronError::Invalid { kind, message },
        StatusCode::UNAUTHORIZED => NeutronError::Unauthorized(message),
        StatusCode::FORBIDDEN => NeutronError::Forbidden(message),
        StatusCode::NOT_FOUND => NeutronError::NotFound(message),
        StatusCode::CONFLICT => NeutronError::Conflict { kind, message },
        StatusCode::PRECONDITION_FAILED => NeutronError::Stale,
        status if status.is_server_error() => NeutronError::Server { status, message },
        status => NeutronError::Unexpected { status, message },
    }
}

/// Reads an answer that should be JSON.
pub(super) fn check_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, NeutronError> {
    serde_json::from_slice(body).map_err(|source| NeutronError::NotNeutron { start: beginning(body), source })
}

/// The first line of a body, or the beginning of it.
fn beginning(body: &[u8]) -> String {
    const MOST: usize = 200;
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MOST)]);
    let line = text.trim_start().lines().next().unwrap_or_default();
    line.chars().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neutrons_words_are_kept() {
        let body = br#"{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded", "detail": ""}}"#;
        let error = answer_error(StatusCode::CONFLICT, body);
        assert_eq!(
            (error.reason(), error.to_string().as_str()),
            ("QuotaExceeded", "Neutron cannot do it now: Quota exceeded")
        );
    }

    #[test]
    fn an_error_that_is_no_json_is_told_by_its_first_line() {
        let error = answer_error(StatusCode::INTERNAL_SERVER_ERROR, b"<html>\n<h1>oh</h1>");
        assert_eq!(error.to_string(), "Neutron failed with 500 Internal Server Error: <html>");
        let long = vec![0xff; 100_000];
        assert!(answer_error(StatusCode::BAD_GATEWAY, &long).to_string().len() < 1000);
    }

    #[test]
    fn an_answer_that_is_not_neutrons_says_how_it_begins() {
        let error = check_json::<serde_json::Value>(b"hello\nworld").unwrap_err();
        assert_eq!(error.to_string(), r#"the answer is not what Neutron sends: "hello""#);
        assert_eq!(error.reason(), "NotNeutron");
    }
}
