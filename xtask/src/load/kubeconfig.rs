//! The kubeconfig that `setpoint up` writes.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Where the server is, whom to trust, and who we are.
pub(crate) struct Kubeconfig {
    /// `HOST:PORT`
    pub(crate) address: String,
    pub(crate) ca: Vec<u8>,
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Kubeconfig {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let (cluster, user) = (&file["clusters"][0]["cluster"], &file["users"][0]["user"]);
        let bytes =
            |value: &Value| Ok::<_, anyhow::Error>(STANDARD.decode(value.as_str().context("no data")?)?);
        let url = cluster["server"].as_str().context("no server")?;
        Ok(Self {
            address: url.trim_start_matches("https://").to_owned(),
            ca: bytes(&cluster["certificate-authority-data"])?,
            certificate: bytes(&user["client-certificate-data"])?,
            key: bytes(&user["client-key-data"])?,
        })
    }
}
