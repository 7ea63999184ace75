//! Who is let in: by the name that the browser asked for, by the page that asks, and by token.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap};
use http::{Method, Request, StatusCode};
use kube::Client;
use lru::LruCache;
use parking_lot::Mutex;
use setpoint_env::Env;
use tokio::time::Instant;

use setpoint::server::{self, Refused, Reviewer, Who};

/// The name of the cookie; browsers accept it only over TLS, for this host alone.
pub(crate) const COOKIE: &str = "__Host-setpoint";
const MOST_SESSIONS: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// How long somebody who is away stays known.
const SESSION_TIME: Duration = Duration::from_secs(3600);

pub(crate) struct Guard {
    is_local: bool,
    has_tls: bool,
    env: Env,
    reviewer: Reviewer,
    sessions: Mutex<LruCache<String, Session>>,
}

struct Session {
    token: Arc<str>,
    used: Instant,
}

impl Guard {
    pub(crate) fn new(address: SocketAddr, has_tls: bool, client: Client, env: Env) -> Guard {
        Guard {
            is_local: address.ip().is_loopback(),
            has_tls,
            reviewer: Reviewer::new(client, env.clone(), "/dashboard"),
            sessions: Mutex::new(LruCache::new(MOST_SESSIONS)),
            env,
        }
    }

    /// Whether the request is for us, and from our own page. What another site makes a browser send is refused, and so is
    /// what comes under a name that another site has made to point here (DNS rebinding).
    pub(crate) fn check_source<B>(&self, request: &Request<B>) -> Result<(), Refused> {
        let refuse = |code, why: &str| Err(Refused(code, why.to_owned()));
        let headers = request.headers();
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let Some(host) = named.or_else(|| request.uri().authority().map(|authority| authority.as_str()))
        else {
            return refuse(StatusCode::BAD_REQUEST, "the request names no host");
        };
        if self.is_local && !is_local_name(host) {
            return refuse(
                StatusCode::MISDIRECTED_REQUEST,
                "this page answers to localhost and 127.0.0.1 only",
            );
        }
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        match headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("null")) {
            Some(origin) if origin != self.origin_of(host) => {
                return refuse(StatusCode::FORBIDDEN, "the request comes from another site");
            }
            None if !is_reading => {
                return refuse(StatusCode::FORBIDDEN, "the request does not say which site it comes from");
            }
            _ => {}
        }
        let fetched = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let is_opened = fetched("sec-fetch-mode") == Some("navigate") && is_reading;
        match fetched("sec-fetch-site") {
            Some("cross-site" | "same-site") if !is_opened => {
                refuse(StatusCode::FORBIDDEN, "the request comes from another site")
            }
            _ => Ok(()),
        }
    }

    fn origin_of(&self, host: &str) -> String {
        format!("{}://{host}", if self.has_tls { "https" } else { "http" })
    }

    /// Who asks. On this machine alone everybody is let in, and is nobody in particular.
    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<Option<Who>, Refused> {
        if self.is_local {
            return Ok(None);
        }
        let Some(token) = server::bearer(headers).map(Arc::from).or_else(|| self.session(headers)) else {
            return Err(Refused(StatusCode::UNAUTHORIZED, "show a bearer token".to_owned()));
        };
        self.reviewer.review(&token).await.map(Some)
    }

    /// Whether somebody may do something with objects of a kind. On this machine alone, everybody may.
    pub(crate) async fn may(
        &self,
        who: Option<&Who>,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<(), Refused> {
        match who {
            None => Ok(()),
            Some(who) => self.reviewer.may(who, verb, group, resource, namespace).await,
        }
    }

    /// Remembers somebody who has shown a token: the value of the cookie.
    pub(crate) async fn begin(&self, token: &str) -> Result<String, Refused> {
        self.reviewer.review(token).await?;
        let id = format!("{}{}", self.env.uuid(), self.env.uuid()).replace('-', "");
        let session = Session { token: token.into(), used: self.env.instant() };
        self.sessions.lock().put(id.clone(), session);
        Ok(format!("{COOKIE}={id}; Path=/; Secure; HttpOnly; SameSite=Strict"))
    }

    fn session(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, id) = pairs.into_iter().find(|(name, _)| *name == COOKIE)?;
        let now = self.env.instant();
        let mut sessions = self.sessions.lock();
        let session = sessions.get_mut(id)?;
        if now.saturating_duration_since(session.used) > SESSION_TIME {
            sessions.pop(id);
            return None;
        }
        session.used = now;
        Some(session.token.clone())
    }
}

/// Whether a host, with or without a port, is this machine by its very name. A port may be another one: of a tunnel.
fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for good in
            ["localhost", "localhost:6480", "127.0.0.1:1", "127.1.2.3", "[::1]:6480", "[::1]", "LOCALHOST:5"]
        {
            assert!(is_local_name(good), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example:6480",
            "10.0.0.1:6480",
            "[fe80::1]",
            "",
            ":6480",
            "0.0.0.0",
        ] {
            assert!(!is_local_name(bad), "{bad}");
        }
    }
}
