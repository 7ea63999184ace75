//! Who asks, and what they may do: the server in front is asked, and its answers are remembered for a short time, as Go's
//! library does.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, PostParams};
use lru::LruCache;
use parking_lot::Mutex;
use ring::digest;
use rustls::pki_types::CertificateDer;
use setpoint_env::{Env, Later};
use tokio::time::Instant;

use crate::authenticate::FrontProxy;
use crate::authorize::Attributes;
use crate::pki;
use crate::rbac::Decision;
use crate::status::{Result, Status};
use crate::user::User;

/// How long an answer counts.
const MEMORY: Duration = Duration::from_secs(10);
/// How often it is looked whom to trust.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many answers are remembered.
const MOST: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");
/// How long the server in front may take.
const LIMIT: Duration = Duration::from_secs(10);
/// What everybody may see: whoever runs this server has to know whether it is well.
const OPEN_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Why cannot read from the API server which callers to trust.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// The ConfigMap cannot be read.
    #[error(
        "the ConfigMap {NAMESPACE}/{NAME} cannot be read; bind this server's account to the role \
         extension-apiserver-authentication-reader in {NAMESPACE}"
    )]
    Read(#[from] kube::Error),
    /// It has a certificate that is none.
    #[error("the ConfigMap {NAMESPACE}/{NAME} has a {key} that cannot be used")]
    Certificates {
        /// Which part of it.
        key: String,
        /// Why.
        source: pki::Error,
    },
    /// It names proxies, or their headers, in a way that cannot be read.
    #[error("the ConfigMap {NAMESPACE}/{NAME} has a {key} that is not a list of names")]
    Names {
        /// Which part of it.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// The server in front of an extension server, which decides who asks and what they may do.
///
/// The account of `client` needs the ClusterRole `system:auth-delegator`, and in `kube-system` the Role
/// `extension-apiserver-authentication-reader`.
#[derive(Clone)]
pub struct Delegation {
    client: Client,
    interval: Duration,
}

impl std::fmt::Debug for Delegation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegation").finish_non_exhaustive()
    }
}

/// Whom the server in front trusts.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// As it was read.
    pub(super) data: BTreeMap<String, String>,
    pub(super) clients: Vec<CertificateDer<'static>>,
    pub(super) proxy: Option<FrontProxy>,
    proxies: Vec<CertificateDer<'static>>,
}

impl Published {
    /// All authorities of certificates that clients may show.
    pub(super) fn authorities(&self) -> Vec<CertificateDer<'static>> {
        self.clients.iter().chain(&self.proxies).cloned().collect()
    }
}

impl Delegation {
    /// To the server of this client.
    pub fn to(client: Client) -> Delegation {
        Delegation { client, interval: INTERVAL }
    }

    /// How often it is looked whom to trust; once a minute unless set.
    #[must_use]
    pub fn refreshed_every(self, interval: Duration) -> Delegation {
        Delegation { interval, ..self }
    }

    /// Tells of everybody who is to be trusted from now on, for as long as it is polled.
    pub(super) async fn follow(&self, mut known: BTreeMap<String, String>, changed: impl Fn(Published)) {
        loop {
            tokio::time::sleep(self.interval).await;
            match self.published().await {
                Ok(published) if published.data == known => {}
                Ok(published) => {
                    tracing::info!("the authorities that the API server trusts have changed");
                    known.clone_from(&published.data);
                    changed(published);
                }
                // Who was trusted still is.
                Err(error) => {
                    tracing::warn!(%error, "cannot check which authorities the API server trusts now")
                }
            }
        }
    }

    /// Reads whom the server trusts.
    pub(super) async fn published(&self) -> Result<Published, DelegationError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let data = maps.get_opt(NAME).await?.and_then(|map| map.data).unwrap_or_default();
        let certificates = |key: &str| match data.get(key) {
            None => Ok(Vec::new()),
            Some(text) => pki::certificates(text)
                .map_err(|source| DelegationError::Certificates { key: key.to_owned(), source }),
        };
        // An empty list of names means any proxy: what cannot be read must not become one.
        let names = |key: &str| -> Result<Vec<String>, DelegationError> {
            let key = format!("requestheader-{key}");
            let Some(text) = data.get(&key) else { return Ok(Vec::new()) };
            serde_json::from_str(text).map_err(|source| DelegationError::Names { key, source })
        };
        let (clients, proxies) =
            (certificates("client-ca-file")?, certificates("requestheader-client-ca-file")?);
        let proxy = match proxies.is_empty() {
            true => None,
            false => Some(
                FrontProxy::new(proxies.clone())
                    .allowed_names(names("allowed-names")?)
                    .username_headers(names("username-headers")?)
                    .uid_headers(names("uid-headers")?)
                    .group_headers(names("group-headers")?)
                    .extra_header_prefixes(names("extra-headers-prefix")?),
            ),
        };
        Ok(Published { data, clients, proxy, proxies })
    }

    pub(super) fn start(&self, env: &Env) -> Delegated {
        Delegated {
            client: self.client.clone(),
            env: env.clone(),
            users: Mutex::new(LruCache::new(MOST)),
            decisions: Mutex::new(LruCache::new(MOST)),
        }
    }
}

type Remembered<T> = Mutex<LruCache<Vec<u8>, (Instant, T)>>;

/// A delegation at work.
pub(crate) struct Delegated {
    client: Client,
    env: Env,
    /// By the digest of the token; none for one that is no good.
    users: Remembered<Option<User>>,
    decisions: Remembered<(bool, String)>,
}

impl std::fmt::Debug for Delegated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegated").finish_non_exhaustive()
    }
}

impl Delegated {
    /// Whose token it is.
    pub(crate) async fn authenticate(&self, token: &str) -> Result<Option<User>> {
        let key = digest::digest(&digest::SHA256, token.as_bytes()).as_ref().to_vec();
        if let Some(known) = self.recall(&self.users, &key) {
            return Ok(known);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = self.ask(Api::all(self.client.clone()), review).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.authenticated.unwrap_or_default().then(|| {
            let info = status.user.unwrap_or_default();
            let mut user = User::new(info.username.unwrap_or_default(), info.groups.unwrap_or_default());
            user.uid = info.uid.unwrap_or_default();
            user.extra = info.extra.unwrap_or_default();
            user.authenticated()
        });
        self.remember(&self.users, key, user.clone());
        Ok(user)
    }

    /// Whether a user may do something.
    pub(crate) async fn decide(&self, user: &User, attributes: &Attributes) -> Result<Decision> {
        if attributes.path.as_deref().is_some_and(|path| OPEN_PATHS.contains(&path)) {
            return Ok(Decision { allowed: true, reason: String::new() });
        }
        let spec = spec(user, attributes);
        let key = digest::digest(&digest::SHA256, format!("{spec:?}").as_bytes()).as_ref().to_vec();
        if let Some((allowed, reason)) = self.recall(&self.decisions, &key) {
            return Ok(Decision { allowed, reason });
        }
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = self.ask(Api::all(self.client.clone()), review).await?;
        let status = answer.status.unwrap_or_default();
        let (allowed, reason) = (status.allowed, status.reason.unwrap_or_default());
        self.remember(&self.decisions, key, (allowed, reason.clone()));
        Ok(Decision { allowed, reason })
    }

    async fn ask<K>(&self, api: Api<K>, review: K) -> Result<K>
    where
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let asked = tokio::time::timeout(LIMIT, api.create(&PostParams::default(), &review)).await;
        let failed = |why: String| Status::internal(format!("the server in front cannot be asked: {why}"));
        asked.map_err(|_| failed("it took too long".to_owned()))?.map_err(|error| failed(error.to_string()))
    }

    fn recall<T: Clone>(&self, memory: &Remembered<T>, key: &Vec<u8>) -> Option<T> {
        let mut memory = memory.lock();
        let (until, known) = memory.get(key)?;
        (*until > self.env.instant()).then(|| known.clone())
    }

    fn remember<T>(&self, memory: &Remembered<T>, key: Vec<u8>, value: T) {
        memory.lock().put(key, (self.env.instant().later(MEMORY), value));
    }
}

fn spec(user: &User, attributes: &Attributes) -> SubjectAccessReviewSpec {
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    let verb = Some(attributes.verb.clone());
    let of_resource = || ResourceAttributes {
        group: text(&attributes.group),
        resource: text(&attributes.resource),
        subresource: text(&attributes.subresource),
        namespace: text(&attributes.namespace),
        name: text(&attributes.name),
        verb: verb.clone(),
        ..ResourceAttributes::default()
    };
    let path = attributes.path.clone();
    SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        groups: Some(user.groups.clone()),
        uid: text(&user.uid),
        extra: Some(user.extra.clone()),
        resource_attributes: path.is_none().then(of_resource),
        non_resource_attributes: path
            .map(|path| NonResourceAttributes { path: Some(path), verb: verb.clone() }),
    }
}
