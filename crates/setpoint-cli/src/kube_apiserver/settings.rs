//! What flags make of a server, be it called `kube-apiserver` or `setpoint up`. What is not given stays as it is.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use setpoint_apiserver::audit::{AuditLog, Policy};
use setpoint_apiserver::pki::{Identity, Pem};
use setpoint_apiserver::{
    AdmissionPlugins, Authorization, Builder, FrontProxy, PublicKey, ServiceAccountTokens, ServiceIpRanges,
    SigningKey, TokenFile, pki,
};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::flags::Flags;
use super::read;

/// A server that is set up, and what its connections need.
pub(crate) struct Settings {
    pub(crate) builder: Builder,
    /// The authorities of all certificates that clients may show.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
}

/// The settings that differ where nothing is given.
pub(crate) struct Defaults {
    pub(crate) authorization: Authorization,
    pub(crate) is_anonymous_allowed: bool,
    /// Whether pods need service accounts.
    pub(crate) has_accounts: bool,
    pub(crate) ranges: ServiceIpRanges,
    /// Who issues tokens, if it is not the server's usual name.
    pub(crate) issuer: Option<String>,
    /// The authorities of client certificates that are trusted in any case.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    /// As whom the server speaks to those of APIServices.
    pub(crate) proxy: Option<ProxyClient>,
}

/// A client certificate that other servers take for that of a front proxy, and its authority.
pub(crate) struct ProxyClient {
    pub(crate) identity: Identity,
    pub(crate) authority: CertificateDer<'static>,
}

impl ProxyClient {
    /// The common name of its certificate.
    pub(crate) const NAME: &str = "front-proxy-client";
}

impl Flags {
    /// Sets a server up.
    pub(crate) fn apply(&self, builder: Builder, defaults: Defaults) -> anyhow::Result<Settings> {
        let authorization = self.authorization()?.unwrap_or(defaults.authorization);
        let is_anonymous_allowed = self.switch("anonymous-auth")?.unwrap_or(defaults.is_anonymous_allowed);
        if is_anonymous_allowed && authorization == Authorization::AlwaysAllow {
            tracing::warn!(
                "with the authorization mode AlwaysAllow requests without credentials are refused"
            );
        }
        let mut builder = builder
            .anonymous(is_anonymous_allowed)
            .authorization(authorization)
            .service_account_tokens(self.tokens(defaults.issuer)?);
        if let Some(plugins) = self.admission_plugins()? {
            builder = builder.admission_plugins(plugins);
        }
        if !self.names_plugin("ServiceAccount") {
            builder = builder.service_accounts(defaults.has_accounts);
        }
        if let Some(path) = self.text("token-auth-file") {
            builder = builder.tokens(TokenFile::read(Path::new(path))?);
        }
        if let Some(path) = self.text("audit-log-path") {
            let mut log = AuditLog::new(path);
            if let Some(policy) = self.text("audit-policy-file") {
                log = log.policy(Policy::read(Path::new(policy))?);
            }
            builder = builder.audit(log).with_context(|| format!("cannot write the audit log {path}"))?;
        }
        if let Some(interval) = self.duration("etcd-compaction-interval")? {
            builder = builder.compaction_interval(interval);
        }
        let builder = self.proxy(self.addresses(builder, defaults.ranges)?, defaults.proxy)?;
        self.certificates(builder, defaults.authorities)
    }

    /// As whom the server speaks to those of APIServices.
    fn proxy(&self, builder: Builder, default: Option<ProxyClient>) -> anyhow::Result<Builder> {
        match (self.text("proxy-client-cert-file"), self.text("proxy-client-key-file")) {
            (Some(certificate), Some(key)) => {
                let pem = Pem { certificate: read(certificate)?, key: read(key)? };
                let identity = Identity::from_pem(pem).context("--proxy-client-cert-file")?;
                Ok(builder.proxy_client(identity))
            }
            (None, None) => Ok(match default {
                Some(ProxyClient { identity, authority }) => builder
                    .proxy_client(identity)
                    .published_proxy(FrontProxy::usual(vec![authority]).allowed_names([ProxyClient::NAME])),
                None => builder,
            }),
            _ => bail!("--proxy-client-cert-file and --proxy-client-key-file go together"),
        }
    }

    /// Where the server and its services are.
    fn addresses(&self, builder: Builder, default: ServiceIpRanges) -> anyhow::Result<Builder> {
        let ranges = match self.text("service-cluster-ip-range") {
            Some(text) => text.parse::<ServiceIpRanges>().context("--service-cluster-ip-range")?,
            None => default,
        };
        let Some(address) = self.parsed::<IpAddr>("advertise-address")? else {
            return Ok(builder.service_cluster_ip_ranges(ranges));
        };
        ensure!(
            ranges.is_ipv6() == address.is_ipv6(),
            "service IP family \"{ranges}\" must match public address family \"{address}\""
        );
        Ok(builder.service_cluster_ip_ranges(ranges).advertise_address(address))
    }

    /// Whose certificates count, and for what.
    fn certificates(
        &self,
        mut builder: Builder,
        mut authorities: Vec<CertificateDer<'static>>,
    ) -> anyhow::Result<Settings> {
        if let Some(path) = self.text("client-ca-file") {
            authorities.extend(authorities_of(path)?);
        }
        let mut trusted = authorities.clone();
        builder = builder.client_authorities(authorities);
        let headers = |name: &str| {
            let names = self.list(name);
            ensure!(names.iter().all(|name| !name.trim().is_empty()), "empty value in {name:?}");
            Ok(names)
        };
        let (names, users) =
            (headers("requestheader-allowed-names")?, headers("requestheader-username-headers")?);
        let (uids, groups) = (headers("requestheader-uid-headers")?, headers("requestheader-group-headers")?);
        let extra = headers("requestheader-extra-headers-prefix")?;
        if let Some(path) = self.text("requestheader-client-ca-file") {
            let proxies = authorities_of(path)?;
            trusted.extend(proxies.iter().cloned());
            let proxy = FrontProxy::new(proxies).allowed_names(names).username_headers(users);
            let proxy = proxy.uid_headers(uids).group_headers(groups).extra_header_prefixes(extra);
            builder = builder.front_proxy(proxy);
        }
        Ok(Settings { builder, trusted })
    }

    /// The plugins that are asked for, if any are named.
    pub(super) fn admission_plugins(&self) -> anyhow::Result<Option<AdmissionPlugins>> {
        let only = self.list("admission-control");
        let [enable, disable] = SWITCHES.map(|name| self.list(name));
        let is_switched = !(enable.is_empty() && disable.is_empty());
        if only.is_empty() {
            return Ok(if is_switched { Some(AdmissionPlugins::new(enable, disable)?) } else { None });
        }
        ensure!(
            !is_switched,
            "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"
        );
        Ok(Some(AdmissionPlugins::only(only)?))
    }

    /// Whether somebody has said if this plugin shall run.
    fn names_plugin(&self, plugin: &str) -> bool {
        let is_named = |name| self.list(name).iter().any(|named| named == plugin);
        !self.list("admission-control").is_empty() || SWITCHES.into_iter().any(is_named)
    }

    fn authorization(&self) -> anyhow::Result<Option<Authorization>> {
        let modes = self.list("authorization-mode");
        for mode in &modes {
            match mode.as_str() {
                "RBAC" | "AlwaysAllow" | "AlwaysDeny" => {}
                "Node" | "ABAC" | "Webhook" => {
                    tracing::warn!(mode, "this authorization mode is not implemented and has no effect");
                }
                _ => bail!("--authorization-mode: {mode:?} is not a valid mode"),
            }
        }
        let has = |mode: &str| modes.iter().any(|given| given == mode);
        Ok(if has("AlwaysAllow") {
            Some(Authorization::AlwaysAllow)
        } else if has("RBAC") {
            Some(Authorization::Rbac)
        } else if modes.is_empty() {
            None
        } else {
            Some(Authorization::AlwaysDeny)
        })
    }

    fn tokens(&self, issuer: Option<String>) -> anyhow::Result<ServiceAccountTokens> {
        let mut tokens = ServiceAccountTokens::new().audiences(self.list("api-audiences"));
        let issuers = self.list("service-account-issuer");
        tokens = tokens.issuers(if issuers.is_empty() { issuer.into_iter().collect() } else { issuers });
        if let Some(path) = self.text("service-account-signing-key-file") {
            tokens = tokens.signing_key(SigningKey::from_pem(&read(path)?).with_context(|| path.to_owned())?);
        }
        for path in self.list("service-account-key-file") {
            tokens = tokens.verifying_keys(PublicKey::all_from_pem(&read(&path)?).context(path)?);
        }
        Ok(tokens)
    }
}

/// The flags that switch single plugins.
const SWITCHES: [&str; 2] = ["enable-admission-plugins", "disable-admission-plugins"];

fn authorities_of(path: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    pki::certificates(&read(path)?).with_context(|| path.to_owned())
}
