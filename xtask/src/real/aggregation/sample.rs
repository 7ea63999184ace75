//! The sample-apiserver as a process: Flunders and Fischers, kept in an etcd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use tempfile::TempDir;

use crate::real::process::Running;
use crate::real::servers::{etcd_command, free_port, spawn};

/// A server that can be started and killed; what it has stored stays.
pub(super) struct Sample {
    process: Option<Running>,
    _etcd: Running,
    program: PathBuf,
    kubeconfig: PathBuf,
    etcd_url: String,
    pub(super) port: u16,
    /// The authority of its certificate, as an APIService has it.
    pub(super) bundle: String,
    folder: TempDir,
}

impl Sample {
    pub(super) fn new(program: &Path, etcd: &Path, kubeconfig: &Path) -> Result<Sample> {
        let folder = TempDir::new()?;
        let etcd_url = format!("http://127.0.0.1:{}", free_port()?);
        let etcd = spawn(etcd_command(etcd, &["--unsafe-no-fsync"], &etcd_url)?, folder.path(), "etcd.log")?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "sample-ca");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut server = CertificateParams::new(vec!["api.wardle.svc".to_owned()])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let server = server.signed_by(&key, &authority)?;
        fs::write(folder.path().join("server.crt"), server.pem())?;
        fs::write(folder.path().join("server.key"), key.serialize_pem())?;
        Ok(Sample {
            process: None,
            _etcd: etcd,
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            etcd_url,
            port: free_port()?,
            bundle: STANDARD.encode(authority.pem()),
            folder,
        })
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--etcd-servers={}", self.etcd_url))
            .arg(format!("--secure-port={}", self.port))
            .args([
                "--bind-address=127.0.0.1",
                "--tls-cert-file=server.crt",
                "--tls-private-key-file=server.key",
            ]);
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            command.arg(format!("--{flag}={}", self.kubeconfig.display()));
        }
        self.process = Some(spawn(command, self.folder.path(), "sample-apiserver.log")?);
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        self.process = None;
    }
}
