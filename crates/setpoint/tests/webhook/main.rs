//! Webhooks over real TLS: our webhook server on one side, our API server on the other.

mod admission;
mod bad_webhooks;
mod certificates;
mod support;
