//! Paths → what is asked for.

use http::Method;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use setpoint_kinds::Verb;

use crate::options::Query;
use crate::status::{Result, Status};

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Something about the server: `/healthz`, `/apis/apps`.
    Server(Vec<String>),
    /// A collection, an object, or a part of one.
    Resource(ResourcePath),
}

/// The parts of `/apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// What follows the subresource: `/proxy/some/path`.
    pub rest: Vec<String>,
    /// The path has the old `/watch/` prefix.
    pub watch: bool,
}

/// What would end a segment of a path, or begin something else.
const IN_SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A path of which every server understands what [`Route::parse`] has understood: nothing is left to read in two ways.
pub(crate) fn plain_path(path: &str) -> Result<String> {
    let mut plain = String::new();
    for segment in segments(path)? {
        plain.push('/');
        plain.extend(utf8_percent_encode(&segment, IN_SEGMENT));
    }
    if path.len() > 1 && path.ends_with('/') {
        plain.push('/');
    }
    Ok(plain)
}

fn segments(path: &str) -> Result<Vec<String>> {
    let mut segments = Vec::new();
    for raw in path.split('/').filter(|segment| !segment.is_empty()) {
        let segment = percent_decode_str(raw).decode_utf8().map_err(|_| Status::no_such_path())?;
        if segment.contains('/') || segment == "." || segment == ".." {
            return Err(Status::no_such_path());
        }
        segments.push(segment.into_owned());
    }
    Ok(segments)
}

impl Route {
    /// Takes a path apart. Empty segments (`//`) count as absent, as in kube-apiserver; a segment that
    /// would decode to a path of its own (`%2f`, `..`) names nothing.
    pub(crate) fn parse(path: &str) -> Result<Route> {
        let segments = segments(path)?;
        let prefix = match segments.first().map(String::as_str) {
            Some("api") => 2,
            Some("apis") => 3,
            _ => return Ok(Route::Server(segments)),
        };
        if segments.len() <= prefix {
            return Ok(Route::Server(segments));
        }
        Ok(Route::Resource(ResourcePath::new(segments, prefix)))
    }
}

impl ResourcePath {
    /// Whether a GET of this path with this query is a watch.
    pub(crate) fn is_watch(&self, query: &Query) -> bool {
        self.watch || (self.name.is_none() && query.flag("watch"))
    }

    /// Whether a request goes on until somebody ends it, as kube-apiserver sees it: a watch, or one of these parts.
    pub(crate) fn is_long(&self, query: &Query) -> bool {
        const PARTS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
        self.is_watch(query) || self.subresource.as_deref().is_some_and(|part| PARTS.contains(&part))
    }

    /// The verb of a request with this path; `watch` is whether its query asks for a watch.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> Result<Verb> {
        let named = self.name.is_some();
        if self.watch && !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed());
        }
        Ok(match *method {
            // HEAD is a GET whose body is not sent.
            Method::GET | Method::HEAD if self.watch || (watch && !named) => Verb::Watch,
            Method::GET | Method::HEAD if named => Verb::Get,
            Method::GET | Method::HEAD => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if named => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ => return Err(Status::method_not_allowed()),
        })
    }

    fn new(segments: Vec<String>, prefix: usize) -> ResourcePath {
        let mut segments = segments.into_iter().skip(1).peekable();
        let group = if prefix == 3 { segments.next().unwrap_or_default() } else { String::new() };
        let version = segments.next().unwrap_or_default();
        let watch = segments.next_if(|segment| segment == "watch").is_some();
        let mut parts: Vec<String> = segments.collect();
        let mut namespace = None;
        if parts.len() > 2 && parts[0] == "namespaces" && !matches!(parts[2].as_str(), "status" | "finalize")
        {
            let tail = parts.split_off(2);
            namespace = parts.pop();
            parts = tail;
        }
        let mut parts = parts.into_iter();
        ResourcePath {
            group,
            version,
            namespace,
            resource: parts.next().unwrap_or_default(),
            name: parts.next(),
            subresource: parts.next(),
            rest: parts.collect(),
            watch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: &str) {
        let text = match Route::parse(path) {
            Err(status) => status.code.as_u16().to_string(),
            Ok(Route::Server(segments)) => format!("server {}", segments.join(" ")),
            Ok(Route::Resource(p)) => format!(
                "{}{}/{} ns={} {} {} {} {}",
                if p.watch { "watch " } else { "" },
                p.group,
                p.version,
                p.namespace.as_deref().unwrap_or("-"),
                p.resource,
                p.name.as_deref().unwrap_or("-"),
                p.subresource.as_deref().unwrap_or("-"),
                p.rest.join("+"),
            ),
        };
        assert_eq!(text.trim_end(), expect, "{path}");
    }

    #[test]
    fn paths_are_taken_apart() {
        check("/", "server");
        check("/healthz", "server healthz");
        check("/api", "server api");
        check("/api/v1", "server api v1");
        check("/apis/apps/v1", "server apis apps v1");
        check("/api/v1/pods", "/v1 ns=- pods - -");
        check("/api/v1/namespaces/default/pods/a", "/v1 ns=default pods a -");
        check("/api/v1/namespaces/default", "/v1 ns=- namespaces default -");
        check("/api/v1/namespaces/default/finalize", "/v1 ns=- namespaces default finalize");
        check("/api/v1/namespaces/default/status", "/v1 ns=- namespaces default status");
        check("/apis/apps/v1/namespaces/x/deployments/web/scale", "apps/v1 ns=x deployments web scale");
        check("/api/v1/watch/namespaces/x/pods/a", "watch /v1 ns=x pods a -");
        check("/api/v1/watch/pods", "watch /v1 ns=- pods - -");
        check("/api/v1/namespaces/x/services/s/proxy/a/b", "/v1 ns=x services s proxy a+b");
        check(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a",
            "rbac.authorization.k8s.io/v1 ns=- clusterroles system:a -",
        );
        check("/api/v1//namespaces//x/pods/", "/v1 ns=x pods - -");
    }

    #[test]
    fn a_path_that_is_handed_on_says_one_thing() {
        for (path, plain) in [
            ("/apis/g/v1//namespaces///x/pods", "/apis/g/v1/namespaces/x/pods"),
            ("/apis/g/v1/pods/%61%3Fb%20c%25", "/apis/g/v1/pods/a%3Fb%20c%25"),
            ("/apis/g/v1/namespaces/x/services/s/proxy/a/", "/apis/g/v1/namespaces/x/services/s/proxy/a/"),
            ("/apis/g/v1/pods/%c3%a4", "/apis/g/v1/pods/%C3%A4"),
        ] {
            assert_eq!(plain_path(path).unwrap(), plain);
        }
        assert!(plain_path("/apis/g/v1/pods/%2e%2e/secrets").is_err());
        assert!(plain_path("/apis/g/v1/a%2fb").is_err());
    }

    #[test]
    fn path_tricks_name_nothing() {
        check("/api/v1/namespaces/x/pods/..", "404");
        check("/api/v1/namespaces/x/pods/%2e%2e", "404");
        check("/api/v1/namespaces/x%2fy/pods", "404");
        check("/api/v1/namespaces/%ff/pods", "404");
    }
}
