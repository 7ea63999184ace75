//! Users that a proxy in front of the server has authenticated, and names in headers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Map, Value, json};
use setpoint_env::Env;

use crate::pki;
use crate::user::User;

/// A proxy that authenticates users, and tells the server in headers who they are.
///
/// It is known by a client certificate of an authority of its own. That authority has to be among those of
/// [`pki::server_config`], or no connection gets as far. Whoever else sends such headers is not heard.
///
/// ```
/// # fn of(ca: Vec<rustls::pki_types::CertificateDer<'static>>) -> setpoint_apiserver::FrontProxy {
/// setpoint_apiserver::FrontProxy::new(ca)
///     .allowed_names(["front-proxy"])
///     .username_headers(["X-Remote-User"])
///     .group_headers(["X-Remote-Group"])
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FrontProxy {
    authorities: Vec<CertificateDer<'static>>,
    allowed_names: Vec<String>,
    username_headers: Vec<String>,
    uid_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Proxies that have a certificate of these authorities. Without headers they cannot name anybody.
    pub fn new(authorities: Vec<CertificateDer<'static>>) -> FrontProxy {
        FrontProxy {
            authorities,
            allowed_names: Vec::new(),
            username_headers: Vec::new(),
            uid_headers: Vec::new(),
            group_headers: Vec::new(),
            extra_prefixes: Vec::new(),
        }
    }

    /// Proxies as kube-apiserver is one to the servers behind it: with its usual headers.
    pub fn usual(authorities: Vec<CertificateDer<'static>>) -> FrontProxy {
        FrontProxy::new(authorities)
            .username_headers(["X-Remote-User"])
            .uid_headers(["X-Remote-Uid"])
            .group_headers(["X-Remote-Group"])
            .extra_header_prefixes(["X-Remote-Extra-"])
    }

    /// The common names that certificates of proxies may have. Any, unless set.
    pub fn allowed_names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> FrontProxy {
        self.allowed_names = texts(names);
        self
    }

    /// The headers with the name of the user; the first that is there counts.
    pub fn username_headers<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> FrontProxy {
        self.username_headers = texts(names);
        self
    }

    /// The headers with the user's uid; the first that is there counts.
    pub fn uid_headers<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> FrontProxy {
        self.uid_headers = texts(names);
        self
    }

    /// The headers with the user's groups; all of them count.
    pub fn group_headers<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> FrontProxy {
        self.group_headers = texts(names);
        self
    }

    /// How headers begin that tell more about the user. The rest of their names says what.
    pub fn extra_header_prefixes<S: Into<String>>(
        mut self,
        prefixes: impl IntoIterator<Item = S>,
    ) -> FrontProxy {
        self.extra_prefixes = texts(prefixes);
        self
    }

    /// Who the headers say has sent the request.
    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| {
            names.iter().filter_map(|name| headers.get(name)).map(text).find(|value| !value.is_empty())
        };
        let name = first(&self.username_headers)?;
        let groups = self.group_headers.iter().flat_map(|name| headers.get_all(name)).map(text);
        let mut user = User::new(name, groups.filter(|group| !group.is_empty()));
        user.uid = first(&self.uid_headers).unwrap_or_default();
        user.extra = self.extra(headers);
        Some(user.authenticated())
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for name in headers.keys() {
                let Some(key) = name.as_str().strip_prefix(&prefix) else { continue };
                let key = percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), Into::into);
                extra.entry(key).or_default().extend(headers.get_all(name).iter().map(text));
            }
        }
        extra
    }
}

fn texts<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Vec<String> {
    values.into_iter().map(Into::into).collect()
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Whom the server trusts to name themselves, and whom to name others.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    client_authorities: Vec<CertificateDer<'static>>,
    proxy: Option<Proxy>,
    /// As what this server speaks for users to others. It is not heard here.
    outward: Option<FrontProxy>,
}

#[derive(Debug)]
struct Proxy {
    settings: FrontProxy,
    /// Each is none if it has no authority, and trusts nobody then.
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// The certificates of a connection's client, and what they are good for: worked out once.
#[derive(Debug)]
pub(crate) struct Chain {
    certificates: Vec<CertificateDer<'static>>,
    role: OnceLock<Role>,
}

#[derive(Clone, Copy, Debug)]
struct Role {
    is_client: bool,
    is_proxy: bool,
}

impl Chain {
    pub(crate) fn new(certificates: &[CertificateDer<'_>]) -> Chain {
        let certificates = certificates.iter().map(|one| one.clone().into_owned()).collect();
        Chain { certificates, role: OnceLock::new() }
    }
}

/// What the certificates of a connection say about a request.
pub(crate) enum Witness {
    /// The client is who its certificate says.
    Itself,
    /// Somebody else, for whom a proxy speaks.
    Proxied(User),
    /// Nobody: they are of a proxy that names nobody, or is not allowed to.
    Nobody,
}

impl Trust {
    pub(crate) fn new(client_authorities: Vec<CertificateDer<'static>>, proxy: Option<FrontProxy>) -> Trust {
        let proxy = proxy.map(|settings| Proxy {
            proxies: pki::verifier(&settings.authorities),
            clients: pki::verifier(&client_authorities),
            settings,
        });
        Trust { client_authorities, proxy, outward: None }
    }

    /// Others are told to trust this proxy, which is this server, unless there is one that it trusts itself.
    pub(crate) fn outward(self, outward: Option<FrontProxy>) -> Trust {
        Trust { outward, ..self }
    }

    /// How the names of headers begin that name users, in lower case.
    pub(crate) fn name_headers(&self) -> Vec<String> {
        let Some(Proxy { settings, .. }) = &self.proxy else { return Vec::new() };
        let lists = [
            &settings.username_headers,
            &settings.uid_headers,
            &settings.group_headers,
            &settings.extra_prefixes,
        ];
        lists.into_iter().flatten().map(|name| name.to_ascii_lowercase().replace('_', "-")).collect()
    }

    /// For whom a request on a connection with this chain speaks. Without a proxy there is only one kind of client
    /// certificate, and the handshake has looked at it.
    pub(crate) fn witness(&self, chain: &Chain, headers: &HeaderMap, env: &Env) -> Witness {
        let Some(proxy) = &self.proxy else { return Witness::Itself };
        let role = *chain.role.get_or_init(|| proxy.role(&chain.certificates, env));
        match proxy.settings.user(headers).filter(|_| role.is_proxy) {
            Some(user) => Witness::Proxied(user),
            None if role.is_client => Witness::Itself,
            None => Witness::Nobody,
        }
    }

    /// What other servers have to know to trust the same: the data of the ConfigMap
    /// `extension-apiserver-authentication`. None if there is nothing to say.
    pub(crate) fn published(&self) -> Option<Value> {
        let mut data = Map::new();
        if !self.client_authorities.is_empty() {
            data.insert("client-ca-file".to_owned(), bundle(&self.client_authorities).into());
        }
        let inward = self.proxy.as_ref().map(|proxy| &proxy.settings);
        if let Some(settings) = inward.or(self.outward.as_ref()) {
            data.insert("requestheader-client-ca-file".to_owned(), bundle(&settings.authorities).into());
            for (name, values) in [
                ("allowed-names", &settings.allowed_names),
                ("extra-headers-prefix", &settings.extra_prefixes),
                ("group-headers", &settings.group_headers),
                ("uid-headers", &settings.uid_headers),
                ("username-headers", &settings.username_headers),
            ] {
                data.insert(format!("requestheader-{name}"), json!(values).to_string().into());
            }
        }
        (!data.is_empty()).then_some(Value::Object(data))
    }
}

impl Proxy {
    fn role(&self, chain: &[CertificateDer<'static>], env: &Env) -> Role {
        let is_trusted = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            let (Some(verifier), Some((own, others))) = (verifier, chain.split_first()) else { return false };
            let seconds = u64::try_from(env.now().as_second()).unwrap_or(0);
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            verifier.verify_client_cert(own, others, now).is_ok()
        };
        let name = chain.first().and_then(|own| pki::user_of(own)).map(|user| user.name).unwrap_or_default();
        let allowed = &self.settings.allowed_names;
        let is_allowed = allowed.is_empty() || allowed.contains(&name);
        Role { is_client: is_trusted(&self.clients), is_proxy: is_allowed && is_trusted(&self.proxies) }
    }
}

fn bundle(certificates: &[CertificateDer<'static>]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let one = |one: &CertificateDer<'static>| {
        pem::encode_config(&pem::Pem::new("CERTIFICATE", one.to_vec()), config)
    };
    certificates.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_a_user_as_in_kube_apiserver() {
        let proxy = FrontProxy::new(Vec::new())
            .username_headers(["X-First", "X-Remote-User"])
            .uid_headers(["X-Remote-Uid"])
            .group_headers(["X-Remote-Group"])
            .extra_header_prefixes(["X-Remote-Extra-"]);
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            headers
        };
        let given = headers(&[
            ("x-first", ""),
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscope", "one"),
            ("x-remote-extra-example.com%2fscope", "two"),
        ]);
        let user = proxy.user(&given).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["a", "b", User::AUTHENTICATED]);
        assert_eq!(user.extra["example.com/scope"], ["one", "two"]);
        assert_eq!(proxy.user(&headers(&[("x-remote-group", "system:masters")])), None);
    }
}
