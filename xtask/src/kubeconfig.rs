//! A kubeconfig: where a server is, whom to trust, and who we are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What a client needs to talk to one server.
#[derive(Clone)]
pub(crate) struct Kubeconfig {
    /// `HOST:PORT` of an `https://` server.
    pub(crate) address: String,
    pub(crate) ca: Vec<u8>,
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Kubeconfig {
    /// Reads the first cluster and the first user of a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: Value = serde_saphyr::from_str(&text).context("the kubeconfig is not YAML")?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let cluster = &file["clusters"][0]["cluster"];
        let user = &file["users"][0]["user"];
        let server = cluster["server"].as_str().context("the kubeconfig names no server")?;
        let address = server.strip_prefix("https://").context("the server is not https")?;
        Ok(Self {
            address: address.trim_end_matches('/').to_owned(),
            ca: bytes(cluster, "certificate-authority", folder)?,
            certificate: bytes(user, "client-certificate", folder)?,
            key: bytes(user, "client-key", folder)?,
        })
    }

    /// Writes a file that kubectl accepts (JSON is YAML).
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let file = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "peer",
            "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "admin"}}],
            "clusters": [{"name": "peer", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority-data": STANDARD.encode(&self.ca),
            }}],
            "users": [{"name": "admin", "user": {
                "client-certificate-data": STANDARD.encode(&self.certificate),
                "client-key-data": STANDARD.encode(&self.key),
            }}],
        });
        Ok(fs::write(path, file.to_string())?)
    }
}

/// A field that is either inline (`NAME-data`) or a path (`NAME`).
fn bytes(section: &Value, name: &str, folder: &Path) -> Result<Vec<u8>> {
    if let Some(data) = section[format!("{name}-data")].as_str() {
        return STANDARD.decode(data).with_context(|| format!("{name}-data is not base64"));
    }
    let path = section[name].as_str().with_context(|| format!("the kubeconfig has no {name}"))?;
    let path: PathBuf = folder.join(path);
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let written = Kubeconfig {
            address: "127.0.0.1:6443".to_owned(),
            ca: b"ca".to_vec(),
            certificate: b"certificate".to_vec(),
            key: b"key".to_vec(),
        };
        written.write(&path).unwrap();
        let read = Kubeconfig::read(&path).unwrap();
        assert_eq!(read.address, "127.0.0.1:6443");
        assert_eq!((read.ca, read.certificate, read.key), (written.ca, written.certificate, written.key));
    }

    #[test]
    fn certificates_may_be_files_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.crt"), "from a file").unwrap();
        let path = folder.path().join("kubeconfig");
        let text = "clusters:\n- cluster: {server: 'https://localhost:1', certificate-authority: ca.crt}\nusers:\n- \
                    user: {client-certificate-data: '', client-key-data: ''}\n";
        fs::write(&path, text).unwrap();
        assert_eq!(Kubeconfig::read(&path).unwrap().ca, b"from a file");
    }
}
