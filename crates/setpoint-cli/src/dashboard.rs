//! The page of `setpoint up --dashboard` and `setpoint demo --web`.

use std::net::SocketAddr;

use anyhow::{Context, anyhow};
use setpoint_dashboard::DashboardError;

/// Where the page is, unless it is said.
pub(crate) const ADDRESS: &str = "127.0.0.1:6480";

/// Reads `IP:PORT` or `:PORT`.
pub(crate) fn parse(text: &str) -> anyhow::Result<SocketAddr> {
    let whole = if text.starts_with(':') {
        format!("127.0.0.1{text}")
    } else {
        text.replace("localhost:", "127.0.0.1:")
    };
    whole.parse().with_context(|| {
        format!("bad address {text:?}: the dashboard takes IP:PORT or :PORT, such as {ADDRESS}")
    })
}

/// Says what to do when the page cannot be served.
pub(crate) fn with_advice(error: DashboardError) -> anyhow::Error {
    let advice = match &error {
        DashboardError::Listen { .. } => "; port 0 picks a free one",
        _ => "",
    };
    anyhow!("{:#}{advice}", anyhow::Error::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine() {
        assert_eq!(parse(":8080").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(parse("localhost:1").unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(parse("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
        assert!(parse("nowhere").unwrap_err().to_string().contains("127.0.0.1:6480"));
    }
}
