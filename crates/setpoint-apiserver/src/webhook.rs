//! Calls to webhooks: one HTTPS client for admission and conversion.
//!
//! A call ends within its time, reads no more than a bound, follows no redirect, and talks TLS to whom the
//! configuration trusts. Connections are kept and used again.

mod post;
mod target;

use std::time::Duration;

use serde_json::Value;

use crate::server::Core;
pub(crate) use post::post;
pub(crate) use target::Target;

/// Why a webhook gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CallError {
    /// The configuration leads nowhere.
    #[error("{0}")]
    Unreachable(String),
    /// It could not be reached, did not speak TLS as it should, or broke off.
    #[error("Post \"{url}\": {why}")]
    Failed { url: String, why: String },
    /// It took too long.
    #[error("Post \"{url}\": context deadline exceeded")]
    Timeout { url: String },
    /// It answered, but not with 200.
    #[error("the webhook answered {code}: {text}")]
    Refused { code: u16, text: String },
    /// It answered with something that is not JSON, or too much of it.
    #[error("the webhook's answer cannot be used: {0}")]
    Unusable(String),
}

/// Sends a review to the webhook of a `clientConfig`, and returns what it answers.
pub(crate) async fn call(
    core: &Core,
    client_config: &Value,
    review: &Value,
    limit: Duration,
) -> Result<Value, CallError> {
    let target = Target::find(core, client_config, limit).await?;
    let url = target.url.clone();
    match tokio::time::timeout(limit, post(&core.webhooks, target, review.to_string().into())).await {
        Ok(answer) => answer,
        Err(_) => Err(CallError::Timeout { url }),
    }
}
