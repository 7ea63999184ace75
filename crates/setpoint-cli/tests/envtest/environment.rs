//! What Go's envtest does: `etcd` and `kube-apiserver` from a folder, with certificates and flags as it makes them.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use http::Request;
use kube::config::AuthInfo;
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::{SigningKey, User};
use setpoint_env::Env;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Anything that takes longer hangs.
pub(crate) const HANG: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// A folder with the binaries, the certificates and the objects of one environment.
pub(crate) struct Folder {
    folder: TempDir,
    authority: CertificateAuthority,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::generate(&Env::system()).unwrap();
        let made = Folder { folder, authority };
        assets(&made.path("assets"));
        let server = made.authority.issue_server(["127.0.0.1"]).unwrap().to_pem();
        std::fs::create_dir(made.path("certs")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(made.path("certs").join(name), text).unwrap();
        write("apiserver.crt", &server.certificate);
        write("apiserver.key", &server.key);
        write("client-cert-auth-ca.crt", made.authority.certificate_pem());
        let key = SigningKey::generate().to_pem();
        write("sa-signer.key", &key);
        write("sa-signer.crt", &key);
        made
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One of the programs, with its output in a file.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.path("assets").join(name));
        let log = File::options().create(true).append(true).open(self.path(&format!("{name}.log"))).unwrap();
        command.current_dir(self.folder.path()).kill_on_drop(true).env_remove("SETPOINT_CONTROLLERS");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    /// What a program has written so far.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    pub(crate) fn etcd_flags(&self, port: u16) -> Vec<String> {
        vec![
            format!("--advertise-client-urls=http://127.0.0.1:{port}"),
            format!("--data-dir={}", self.path("data").display()),
            format!("--listen-client-urls=http://127.0.0.1:{port}"),
            "--listen-peer-urls=http://localhost:0".to_owned(),
            "--unsafe-no-fsync=true".to_owned(),
        ]
    }

    pub(crate) fn server_flags(&self, port: u16, etcd: u16, more: &[&str]) -> Vec<String> {
        let certs = self.path("certs");
        let certs = certs.display();
        let mut flags = vec![
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={certs}"),
            format!("--client-ca-file={certs}/client-cert-auth-ca.crt"),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-key-file={certs}/sa-signer.crt"),
            format!("--service-account-signing-key-file={certs}/sa-signer.key"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        for flag in more {
            // Whoever says it again means it instead.
            let name = flag.split('=').next().unwrap_or(flag);
            flags.retain(|own| own.split('=').next() != Some(name));
            flags.push((*flag).to_owned());
        }
        flags
    }

    pub(crate) async fn start(&self, flags: &[&str]) -> Environment<'_> {
        self.start_with(flags, &[]).await
    }

    /// Starts both, and waits until they answer.
    pub(crate) async fn start_with(&self, flags: &[&str], variables: &[(&str, &str)]) -> Environment<'_> {
        let (port, etcd_port) = (free_port(), free_port());
        let etcd = self.program("etcd").args(self.etcd_flags(etcd_port)).spawn().unwrap();
        let mut server = self.program("kube-apiserver");
        server.args(self.server_flags(port, etcd_port, flags)).envs(variables.iter().copied());
        let server = server.spawn().unwrap();
        let mut environment = Environment { folder: self, etcd, server, port };
        environment.until_it_answers().await;
        environment
    }
}

/// An environment that runs.
pub(crate) struct Environment<'a> {
    folder: &'a Folder,
    pub(crate) etcd: Child,
    pub(crate) server: Child,
    pub(crate) port: u16,
}

impl Environment<'_> {
    async fn until_it_answers(&mut self) {
        let stranger = self.stranger();
        let begun = now();
        // Whoever must show who they are is answered, too.
        while status(&stranger, "/healthz").await.is_none_or(|code| code != 200 && code != 401) {
            let ended = self.server.try_wait().unwrap();
            let is_late = now().saturating_duration_since(begun) > HANG;
            assert!(ended.is_none() && !is_late, "{ended:?}: {}", self.folder.log("kube-apiserver"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn config(&self, user: AuthInfo) -> Config {
        let mut config = Config::new(format!("https://127.0.0.1:{}", self.port).parse().unwrap());
        config.root_cert = Some(vec![self.folder.authority.certificate_der().to_vec()]);
        config.auth_info = user;
        config
    }

    /// A client without credentials.
    pub(crate) fn stranger(&self) -> Client {
        Client::try_from(self.config(AuthInfo::default())).unwrap()
    }

    /// A client with a bearer token.
    pub(crate) fn bearer(&self, token: &str) -> Client {
        let user = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Client::try_from(self.config(user)).unwrap()
    }

    /// A client with a certificate.
    pub(crate) fn user(&self, user: &User) -> Client {
        self.user_of(&self.folder.authority, user)
    }

    /// A client with a certificate of some authority.
    pub(crate) fn user_of(&self, authority: &CertificateAuthority, user: &User) -> Client {
        use base64::Engine;
        let pem = authority.issue_client(user).unwrap().to_pem();
        let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let user = AuthInfo {
            client_certificate_data: Some(encode(pem.certificate)),
            client_key_data: Some(encode(pem.key).into()),
            ..AuthInfo::default()
        };
        Client::try_from(self.config(user)).unwrap()
    }

    pub(crate) fn admin(&self) -> Client {
        self.user(&User::admin())
    }

    /// Ends both as envtest does. Gives how long that took.
    pub(crate) async fn stop(&mut self) -> Duration {
        let begun = now();
        for child in [&mut self.server, &mut self.etcd] {
            terminate(child);
            let ended = tokio::time::timeout(HANG, child.wait()).await.expect("it does not stop").unwrap();
            assert_eq!(ended.code(), Some(0), "{}", self.folder.log("kube-apiserver"));
        }
        now().saturating_duration_since(begun)
    }
}

pub(crate) fn terminate(child: &Child) {
    let id = child.id().expect("it runs");
    kill_process(pid(id), Signal::TERM).unwrap();
}

pub(crate) fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().unwrap()).unwrap()
}

/// Runs `setpoint envtest` for a folder.
pub(crate) fn assets(folder: &Path) {
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["envtest", "--folder"])
        .arg(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// The code of an answer, if there is one.
pub(crate) async fn status(client: &Client, path: &str) -> Option<u16> {
    let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
    Some(client.send(request).await.ok()?.status().as_u16())
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[allow(clippy::disallowed_methods, reason = "this measures real processes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
