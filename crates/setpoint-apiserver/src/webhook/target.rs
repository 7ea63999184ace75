//! A `clientConfig` → where to connect, and whom to trust there.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::CallError;
use crate::server::Core;
use crate::upstream::{Trusted, Unlocated, Where, service};

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// The whole URL; what the certificate must be for is its host.
    pub(crate) url: String,
    /// Where that host is.
    pub(crate) place: Where,
    pub(crate) trusted: Trusted,
}

impl Target {
    pub(super) async fn find(core: &Core, config: &Value, limit: Duration) -> Result<Target, CallError> {
        let bundle = config["caBundle"].as_str().unwrap_or_default();
        let ca_bundle = STANDARD
            .decode(bundle)
            .map_err(|error| CallError::Unreachable(format!("caBundle is not base64: {error}")))?;
        let trusted = Trusted::Bundle(ca_bundle);
        let query = format!("timeout={}s", limit.as_secs());
        if let Some(url) = config["url"].as_str() {
            return Ok(Target { url: asked(url, &query), place: Where::Url, trusted });
        }
        let given = &config["service"];
        let text = |field: &str| given[field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let port = given["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let place = match service::locate(core, namespace, name, port).await {
            Ok(located) => located.place,
            Err(Unlocated::NoEndpoints { own: Some(own), .. }) => Where::At(vec![own]),
            Err(error) => return Err(CallError::Unreachable(error.to_string())),
        };
        // Without a port, so that the one of the address counts.
        let url = asked(&format!("https://{name}.{namespace}.svc/{}", text("path")), &query);
        Ok(Target { url, place, trusted })
    }
}

/// The URL that is called: its path as Go's clients clean it, and a query more. Some webhooks are configured with two slashes
/// in a row, which their servers answer with a redirect.
fn asked(url: &str, query: &str) -> String {
    let (address, own) = url.split_once('?').map_or((url, None), |(address, own)| (address, Some(own)));
    let host = address.find("://").map_or(0, |at| at + 3);
    let slash = address[host..].find('/').map_or(address.len(), |at| host + at);
    let mut path = Vec::new();
    for part in address[slash..].split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()),
            part => path.push(part),
        }
    }
    let own = own.map(|own| format!("{own}&")).unwrap_or_default();
    format!("{}/{}?{own}{query}", &address[..slash], path.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cleaned_as_go_cleans_it() {
        for (url, called) in [
            ("https://hook.test:8443//validate", "https://hook.test:8443/validate?timeout=5s"),
            ("https://hook.test/a//b/./c/../d/", "https://hook.test/a/b/d?timeout=5s"),
            ("https://hook.test", "https://hook.test/?timeout=5s"),
            ("https://hook.test/", "https://hook.test/?timeout=5s"),
            ("https://hook.test/../..", "https://hook.test/?timeout=5s"),
            ("https://hook.test/a?b=c//d", "https://hook.test/a?b=c//d&timeout=5s"),
        ] {
            assert_eq!(asked(url, "timeout=5s"), called);
        }
    }
}
