//! Before stage 1: how to reach an API server.
//!
//! A [`kube::Client`] is all that an informer needs; this module finds the configuration for one. The four
//! ways of talking to a server are `kube`'s:
//!
//! | client | what it is |
//! | --- | --- |
//! | REST | [`kube::Client::request`], [`kube::Client::send`]: any request to any path |
//! | typed | [`kube::Api<K>`] |
//! | dynamic | [`kube::Api<DynamicObject>`](kube::core::DynamicObject), with [`find_resource`] for what the server calls it |
//! | discovery | [`kube::discovery`] |
//!
//! In a test, the server is in the same process: any [`tower::Service`] makes a client, with
//! [`kube::Client::new`].
//!
//! [`tower::Service`]: https://docs.rs/tower/latest/tower/trait.Service.html

mod manners;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub use self::manners::Manners;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::GroupVersion;
use kube::discovery::Scope;
use kube::{Client, Config};
use setpoint_env::panic_text;

use crate::{Metrics, ScopedResource};

/// Where the configuration of a client comes from.
///
/// Explicit settings come first; without any, `KUBECONFIG` (several files are merged) or `~/.kube/config`;
/// and if there is none, the service account of the Pod that the program runs in.
///
/// The client has [`Manners`]: it waits when the server asks it to, and tries again. They can be set, and with them a
/// limit of requests a second, which is off unless it is set:
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint::ClientConfig;
/// use setpoint::client::Manners;
///
/// // 50 requests a second after the first 100, for all that use this client and its clones.
/// let client = ClientConfig::new().manners(Manners::default().rate_limit(50.0, 100)).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ClientConfig {
    master: Option<String>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    manners: Manners,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig that was named cannot be used.
    #[error("the kubeconfig {path} cannot be used")]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// The address of the server is not one.
    #[error("the server address {address:?} is not a URL")]
    Address {
        /// The address as it was given.
        address: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// The address of the server lacks its beginning.
    #[error("the server address {address:?} has no scheme: use https://HOST:PORT")]
    Scheme {
        /// The address as it was given.
        address: String,
    },
    /// Nothing says where the server is.
    #[error(
        "no cluster configuration: no --master or --kubeconfig was given; {kubeconfig_source}: {kubeconfig}; in-cluster: {in_cluster}"
    )]
    Nothing {
        /// Where a kubeconfig was looked for.
        kubeconfig_source: String,
        /// Why there is no kubeconfig.
        kubeconfig: String,
        /// Why there is no service account.
        in_cluster: String,
    },
    /// The configuration was found, but no client can be made from it.
    #[error("the client cannot be set up")]
    Client(#[source] Box<kube::Error>),
    /// The same, and the client has given up without an error.
    #[error("the client cannot be set up: {why}")]
    Unusable {
        /// Its last words.
        why: String,
    },
}

impl ClientConfig {
    /// Nothing explicit.
    pub fn new() -> ClientConfig {
        ClientConfig::default()
    }

    /// The URL of the server, whatever a kubeconfig says.
    pub fn master(mut self, url: impl Into<String>) -> ClientConfig {
        self.master = Some(url.into());
        self
    }

    /// The kubeconfig to read.
    pub fn kubeconfig(mut self, path: impl AsRef<Path>) -> ClientConfig {
        self.kubeconfig = Some(path.as_ref().to_owned());
        self
    }

    /// The context of the kubeconfig to use instead of its current one.
    pub fn context(mut self, name: impl Into<String>) -> ClientConfig {
        self.context = Some(name.into());
        self
    }

    /// How the client treats the server.
    #[doc(alias = "QPS")]
    pub fn manners(mut self, manners: Manners) -> ClientConfig {
        self.manners = manners;
        self
    }

    /// Counts requests, and how long they take, in `metrics` ([`Manners::metrics`]).
    pub fn metrics(mut self, metrics: &Metrics) -> ClientConfig {
        self.manners = self.manners.metrics(metrics);
        self
    }

    /// Finds the configuration and makes a client.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let mut config = self.find().await?;
        // kube's own would also try writes again that may have happened, and what must not be tried again at once.
        config.default_retry = false;
        let manners =
            self.manners.clone().for_host(config.cluster_url.authority().map_or("", |host| host.as_str()));
        Ok(manners.around(build(config)?))
    }

    /// Finds the configuration. Unless it has a `User-Agent`, requests name the program: it is the field manager of writes that
    /// name none.
    pub async fn find(&self) -> Result<Config, ConnectError> {
        let master = self.master.as_ref().map(|address| {
            let parsed = address.parse::<http::Uri>();
            parsed.map_err(|source| ConnectError::Address { address: address.clone(), source })
        });
        let master = master.transpose()?;
        let mut config = match (&self.kubeconfig, &master) {
            (Some(path), _) => self.read(path).await?,
            (None, Some(url)) => Config::new(url.clone()),
            (None, None) => self.infer().await?,
        };
        if let Some(url) = master {
            config.cluster_url = url;
        }
        if !config.headers.iter().any(|(name, _)| *name == USER_AGENT) {
            config.headers.extend(user_agent().map(|agent| (USER_AGENT, agent)));
        }
        check(&config)?;
        Ok(config)
    }

    async fn read(&self, path: &Path) -> Result<Config, ConnectError> {
        let fail = |source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
        check_whole(path).map_err(fail)?;
        let kubeconfig = Kubeconfig::read_from(path).map_err(fail)?;
        Config::from_custom_kubeconfig(kubeconfig, &self.options()).await.map_err(fail)
    }

    async fn infer(&self) -> Result<Config, ConnectError> {
        let kubeconfig = match self.read_default().await {
            Ok(config) => return Ok(config),
            Err(error) => error.to_string(),
        };
        let in_cluster = match Config::incluster() {
            Ok(config) => return Ok(config),
            Err(error) => error.to_string(),
        };
        let kubeconfig_source = match std::env::var("KUBECONFIG") {
            Ok(paths) => format!("KUBECONFIG={paths}"),
            Err(_) => "~/.kube/config".to_owned(),
        };
        Err(ConnectError::Nothing { kubeconfig_source, kubeconfig, in_cluster })
    }

    async fn read_default(&self) -> Result<Config, KubeconfigError> {
        default_paths().iter().try_for_each(|path| check_whole(path))?;
        Config::from_kubeconfig(&self.options()).await
    }

    fn options(&self) -> KubeConfigOptions {
        KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() }
    }
}

/// Makes a client of a configuration, without [`Manners`]. What [`kube::Client`] would panic at is an error.
pub fn build(config: Config) -> Result<Client, ConnectError> {
    check(&config)?;
    // A token that cannot be in a header is one such thing. It may come from a credential plugin, in here.
    match catch_unwind(AssertUnwindSafe(|| Client::try_from(config))) {
        Ok(client) => client.map_err(|error| ConnectError::Client(Box::new(error))),
        Err(panic) => Err(ConnectError::Unusable { why: panic_text(&*panic).to_owned() }),
    }
}

/// Who asks, as client-go says it. A server names the field manager of a write after it, if the write names none, and audits it.
fn user_agent() -> Option<HeaderValue> {
    let program = std::env::args_os().next()?;
    let name = Path::new(&program).file_stem()?.to_string_lossy();
    let name: String = name.chars().filter(|char| char.is_ascii_graphic() && *char != '/').collect();
    let (os, arch, version) = (std::env::consts::OS, std::env::consts::ARCH, env!("CARGO_PKG_VERSION"));
    HeaderValue::from_str(&format!("{name}/{version} ({os}/{arch}) setpoint/{version}")).ok()
}

/// A client panics at its first request if it does not know where to send it.
fn check(config: &Config) -> Result<(), ConnectError> {
    let url = &config.cluster_url;
    if url.scheme().is_none() || url.authority().is_none() {
        return Err(ConnectError::Scheme { address: url.to_string() });
    }
    Ok(())
}

/// Where kubeconfigs are unless one is named.
fn default_paths() -> Vec<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<PathBuf> =
        std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    if !named.is_empty() {
        return named;
    }
    std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect()
}

/// `kube` reads UTF-16, too, and panics at a file that ends in the middle of a character. What cannot be read is for it to
/// tell.
fn check_whole(path: &Path) -> Result<(), KubeconfigError> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let is_utf16 = [[0xff, 0xfe], [0xfe, 0xff]].iter().any(|mark| bytes.starts_with(mark));
    if !is_utf16 || bytes.len().is_multiple_of(2) {
        return Ok(());
    }
    let why = "it is UTF-16 and ends in the middle of a character";
    Err(KubeconfigError::ReadConfig(io::Error::new(io::ErrorKind::InvalidData, why), path.to_owned()))
}

/// What the server knows about a resource, by group, version and plural name: what a dynamic client, informer or
/// [watch](crate::Watch::dynamic) needs. `None` if the server has no such resource in that version.
pub async fn find_resource(
    client: &Client,
    group: &str,
    version: &str,
    plural: &str,
) -> Result<Option<ScopedResource>, kube::Error> {
    let found = kube::discovery::pinned_group(client, &GroupVersion::gv(group, version)).await;
    let group = match found {
        Ok(group) => group,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut resources = group.versioned_resources(version).into_iter();
    let found = resources.find(|(api, _)| api.plural == plural);
    Ok(found.map(|(api, known)| ScopedResource { api, is_namespaced: known.scope == Scope::Namespaced }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let error = ClientConfig::new().kubeconfig("/no/such/file").find().await.unwrap_err();
        assert_eq!(error.to_string(), "the kubeconfig /no/such/file cannot be used");
    }

    #[tokio::test]
    async fn requests_name_the_program() {
        let config = ClientConfig::new().master("http://localhost:8001").find().await.unwrap();
        let (_, agent) = config.headers.iter().find(|(name, _)| *name == USER_AGENT).unwrap();
        // The program is this test: `setpoint-HASH`.
        assert!(agent.to_str().unwrap().starts_with("setpoint-"), "{agent:?}");
        assert!(agent.to_str().unwrap().contains(" setpoint/"), "{agent:?}");
    }

    #[tokio::test]
    async fn an_explicit_address_needs_no_kubeconfig() {
        let config = ClientConfig::new().master("http://localhost:8001").find().await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "http://localhost:8001/");
    }

    #[tokio::test]
    async fn an_address_that_is_no_url_is_an_error() {
        let error = ClientConfig::new().master("http://local host").find().await.unwrap_err();
        assert!(error.to_string().contains("local host"));
    }

    /// A kubeconfig with these fields of its cluster and of its user.
    fn kubeconfig(cluster: &str, user: &str) -> Vec<u8> {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{{cluster}}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        );
        text.into_bytes()
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_refused_with_words() {
        let server = "server: 'https://127.0.0.1:1'";
        let data = "client-certificate-data: AAAA, client-key-data: AAAA";
        let plugin = |printed: &str| {
            let credential = format!("{{apiVersion: client.authentication.k8s.io/v1, status: {printed}}}");
            format!("exec: {{command: echo, args: ['{credential}'], interactiveMode: Never}}")
        };
        let cases = [
            (vec![], "the kubeconfig {path} cannot be used"),
            (b"\xff\xfeabc".to_vec(), "the kubeconfig {path} cannot be used"),
            (b"\xfe\xffabc".to_vec(), "the kubeconfig {path} cannot be used"),
            (b"\xff\xfe\x00\xd8".to_vec(), "the kubeconfig {path} cannot be used"),
            (b"\xef\xbb\xbf\xff".to_vec(), "the kubeconfig {path} cannot be used"),
            (b"\x80".to_vec(), "the kubeconfig {path} cannot be used"),
            (kubeconfig("", ""), "the kubeconfig {path} cannot be used"),
            (kubeconfig("server: 'a b'", ""), "the kubeconfig {path} cannot be used"),
            (kubeconfig("server: ''", ""), "the kubeconfig {path} cannot be used"),
            (
                kubeconfig("server: '127.0.0.1:1'", ""),
                "the server address \"127.0.0.1:1\" has no scheme: use https://HOST:PORT",
            ),
            (
                kubeconfig("server: /path", ""),
                "the server address \"/path\" has no scheme: use https://HOST:PORT",
            ),
            (
                kubeconfig(&format!("{server}, certificate-authority-data: '!'"), ""),
                "the kubeconfig {path} cannot be used",
            ),
            (
                kubeconfig(&format!("{server}, certificate-authority: /no/such/file"), ""),
                "the kubeconfig {path} cannot be used",
            ),
            (kubeconfig(&format!("{server}, proxy-url: 'a b'"), ""), "the kubeconfig {path} cannot be used"),
            (kubeconfig(&format!("{server}, tls-server-name: 'a b'"), ""), "the client cannot be set up"),
            (kubeconfig(server, data), "the client cannot be set up"),
            (kubeconfig(server, "client-certificate-data: '!'"), "the client cannot be set up"),
            (kubeconfig(server, "tokenFile: /no/such/file"), "the client cannot be set up"),
            (kubeconfig(server, "as: \"a\\nb\""), "the client cannot be set up"),
            (
                kubeconfig(server, "auth-provider: {name: gcp, config: {access-token: a, expiry: never}}"),
                "the client cannot be set up",
            ),
            (
                kubeconfig(server, "token: \"abc\\n\""),
                "the client cannot be set up: token is not valid header: InvalidHeaderValue",
            ),
            (kubeconfig(server, "exec: {command: /no/such/file}"), "the client cannot be set up"),
            (
                kubeconfig(server, &plugin("{token: a, expirationTimestamp: never}")),
                "the client cannot be set up",
            ),
            (
                kubeconfig(server, &plugin("{token: \"a\\nb\"}")),
                "the client cannot be set up: token is not valid header: InvalidHeaderValue",
            ),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, words) in cases {
            std::fs::write(file.path(), &content).unwrap();
            let refused = ClientConfig::new().kubeconfig(file.path()).connect().await;
            let words = words.replace("{path}", &file.path().display().to_string());
            let shown = String::from_utf8_lossy(&content);
            assert_eq!(refused.map(drop).unwrap_err().to_string(), words, "{shown}");
        }
        std::fs::write(file.path(), kubeconfig(server, "token: abc")).unwrap();
        ClientConfig::new().kubeconfig(file.path()).connect().await.unwrap();
    }
}
