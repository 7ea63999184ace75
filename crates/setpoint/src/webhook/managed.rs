//! Certificates that a webhook server makes itself: kept in a Secret, the same for all replicas, rotated before they end.
//!
//! Every replica looks at the Secret now and then, and whichever finds that something has to follow writes it, at the
//! version that it has read: of several, one succeeds, and the others read what it wrote. What the Secret holds is what all
//! of them show, and what they put into `caBundle`.

mod authority;
mod bundles;
mod state;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};
use setpoint_env::Env;

use self::bundles::Caller;
use self::state::{State, Terms};
use super::CertificateError;
use super::certificates::{Current, Pair, parse};
use crate::{Permissions, Verb};

/// How often the Secret and the bundles are looked at.
const LOOK: Duration = Duration::from_secs(30);
/// How long the first certificate may take: the API server may have to come up, or the roles.
const FIRST: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(2);
/// How often it is tried again at once when another replica was faster.
const TRIES: usize = 8;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Certificates for a webhook server that it makes itself: no cert-manager, nothing to mount.
///
/// An authority (a year, unless set) and a certificate (90 days) are kept in a Secret that all replicas share. Each is
/// renewed when two thirds of its life are over. A new authority is trusted beside the old one for an hour before it signs,
/// and the old one for an hour after: no call fails meanwhile. A Secret that is deleted or damaged is written again. The
/// `caBundle` of the configurations that are named is kept up to date, whoever edits it; other fields are left alone.
///
/// ```no_run
/// use setpoint::ClientConfig;
/// use setpoint::webhook::{ManagedCertificates, WebhookServer};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ClientConfig::new().connect().await?;
/// let certificates = ManagedCertificates::new(client, "shop-system", "shop-webhooks")
///     .service("shop", "shop-system")
///     .mutating("shop")
///     .validating("shop")
///     .conversion("orders.shop.example.com");
/// let server = WebhookServer::new(certificates);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ManagedCertificates {
    client: Client,
    namespace: String,
    secret: String,
    terms: Terms,
    callers: Vec<Caller>,
}

impl ManagedCertificates {
    /// Certificates in the Secret `secret` of a namespace. The Secret is made if it is not there.
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        secret: impl Into<String>,
    ) -> ManagedCertificates {
        let terms = Terms {
            names: Vec::new(),
            authority_life: DAY.saturating_mul(365),
            certificate_life: DAY.saturating_mul(90),
        };
        let (namespace, secret) = (namespace.into(), secret.into());
        ManagedCertificates { client, namespace, secret, terms, callers: Vec::new() }
    }

    /// Callers reach the server through this Service.
    pub fn service(self, name: &str, namespace: &str) -> ManagedCertificates {
        self.name(format!("{name}.{namespace}.svc"))
    }

    /// Callers reach the server by this DNS name or address.
    pub fn name(mut self, name: impl Into<String>) -> ManagedCertificates {
        self.terms.names.push(canonical(name.into()));
        self.terms.names.sort_unstable();
        self.terms.names.dedup();
        self
    }

    /// Keeps the bundles of this MutatingWebhookConfiguration up to date.
    pub fn mutating(mut self, name: impl Into<String>) -> ManagedCertificates {
        self.callers.push(Caller::Mutating(name.into()));
        self
    }

    /// Keeps the bundles of this ValidatingWebhookConfiguration up to date.
    pub fn validating(mut self, name: impl Into<String>) -> ManagedCertificates {
        self.callers.push(Caller::Validating(name.into()));
        self
    }

    /// Keeps the bundle of the conversion of this CustomResourceDefinition up to date.
    pub fn conversion(mut self, name: impl Into<String>) -> ManagedCertificates {
        self.callers.push(Caller::Conversion(name.into()));
        self
    }

    /// How long an authority and a certificate live.
    pub fn lives(mut self, authority: Duration, certificate: Duration) -> ManagedCertificates {
        (self.terms.authority_life, self.terms.certificate_life) = (authority, certificate);
        self
    }

    /// What an API server has to allow. The Secret has a Role of its own, in its namespace.
    pub fn permissions(&self) -> Permissions {
        let mut needs = Permissions::default();
        needs.certificates.insert((self.namespace.clone(), self.secret.clone()));
        for caller in &self.callers {
            let (group, resource) = match caller {
                Caller::Mutating(_) => ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
                Caller::Validating(_) => ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
                Caller::Conversion(_) => ("apiextensions.k8s.io", "customresourcedefinitions"),
            };
            needs.add(group, resource, &[Verb::Get, Verb::Patch]);
        }
        needs
    }

    /// The first certificate, when the Secret has one and those who call know whom to trust.
    pub(super) async fn first(&self, env: &Env) -> Result<(Keeper, Pair), CertificateError> {
        let mut keeper = Keeper { plan: self.clone(), env: env.clone(), known: None };
        let ends = setpoint_env::Later::later(env.instant(), FIRST);
        loop {
            match keeper.look().await {
                Ok(pair) => return Ok((keeper, pair)),
                Err(error) if env.instant() >= ends => return Err(error),
                Err(error) => {
                    tracing::warn!(error = report(&error), "there is no certificate for the webhooks yet");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Keeps the certificates of one replica.
#[derive(Clone)]
pub(super) struct Keeper {
    plan: ManagedCertificates,
    env: Env,
    /// What the Secret had when it was last read. If it is lost, it is written again.
    known: Option<State>,
}

impl Keeper {
    /// Looks again and again, and lets new connections get what it finds.
    pub(super) async fn run(mut self, mut shown: Pair, current: Arc<Current>) {
        loop {
            // Not all replicas at the same moment.
            tokio::time::sleep(self.env.jitter(LOOK, 0.2)).await;
            match self.look().await {
                Ok(pair) if pair == shown => {}
                Ok(pair) => match parse(&pair) {
                    Ok(key) => {
                        current.set(key);
                        tracing::info!("the webhook server has a new certificate");
                        shown = pair;
                    }
                    Err(error) => tracing::warn!(%error, "the webhook server keeps its certificate"),
                },
                Err(error) => {
                    tracing::warn!(error = report(&error), "the webhook server keeps its certificate");
                }
            }
        }
    }

    /// Brings the Secret and then the bundles to what they have to be: what to show.
    async fn look(&mut self) -> Result<Pair, CertificateError> {
        let state = self.agree().await?;
        for caller in &self.plan.callers {
            // The others are told all the same, and this one at the next look.
            if let Err(error) = caller.tell(&self.plan.client, &state.bundle()).await {
                tracing::warn!(%error, ?caller, "cannot update the caBundle of a webhook yet; retrying");
            }
        }
        let pair = state.pair();
        self.known = Some(state);
        Ok(pair)
    }

    /// What all replicas have agreed on.
    async fn agree(&self) -> Result<State, CertificateError> {
        let ManagedCertificates { client, namespace, secret: name, terms, .. } = &self.plan;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let failed =
            |source| CertificateError::Api { what: format!("the Secret {namespace}/{name}"), source };
        let mut tried = 0;
        loop {
            let live = secrets.get_opt(name).await.map_err(failed)?;
            let data = live.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
            let found = State::read(&data).ok();
            let base = match (&found, &self.known) {
                (Some(state), _) | (None, Some(state)) => state.clone(),
                (None, None) => State::new(&self.env, terms)?,
            };
            let wanted = base.next(&self.env, terms)?.unwrap_or(base);
            if found.as_ref() == Some(&wanted) {
                return Ok(wanted);
            }
            match self.write(&secrets, live, &wanted).await {
                Ok(()) => return Ok(wanted),
                Err(kube::Error::Api(status)) if status.code == 409 && tried < TRIES => tried += 1,
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Writes the Secret, if nobody else has written it meanwhile.
    async fn write(
        &self,
        secrets: &Api<Secret>,
        live: Option<Secret>,
        wanted: &State,
    ) -> Result<(), kube::Error> {
        let is_new = live.is_none();
        let mut secret = live.unwrap_or_else(|| Secret {
            metadata: kube::api::ObjectMeta {
                name: Some(self.plan.secret.clone()),
                namespace: Some(self.plan.namespace.clone()),
                ..Default::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        });
        secret.data.get_or_insert_default().extend(wanted.data());
        if is_new {
            secrets.create(&PostParams::default(), &secret).await?;
        } else {
            // It has the version that was read.
            secrets.replace(&self.plan.secret, &PostParams::default(), &secret).await?;
        }
        Ok(())
    }
}

/// Addresses have several spellings; a certificate knows one.
fn canonical(name: String) -> String {
    name.parse::<IpAddr>().map_or(name, |address| address.to_string())
}

/// An error and where it comes from.
fn report(error: &CertificateError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
