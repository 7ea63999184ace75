//! What a request asks for: read from its method, path, query and, for a create, its body.

use std::fmt;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

/// What a request does, in Kubernetes' words. Unlike the verbs of the server and of controllers (`setpoint_kinds::Verb`)
/// these have one for what is not about a resource, since that goes through the same network, and fails with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many objects.
    List,
    /// Follow many objects.
    Watch,
    /// Make an object, or post to a subresource.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete many objects.
    DeleteCollection,
    /// Anything that is not about a resource: discovery, health, version.
    NonResource,
}

impl Verb {
    /// Whether the request can change the server's state.
    pub fn is_write(self) -> bool {
        matches!(self, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::NonResource => "request",
        })
    }
}

/// One request, as far as faults and traces care. Parts that a request does not have are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestInfo {
    /// The HTTP method.
    pub method: Method,
    /// Path and query, as sent.
    pub path: String,
    /// What the request does.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource: `pods`.
    pub resource: String,
    /// The namespace; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// The object's name: from the path, from a `metadata.name` field selector, or from a JSON body.
    pub name: String,
    /// The subresource: `status`.
    pub subresource: String,
    query: Vec<(String, String)>,
}

impl RequestInfo {
    /// Reads a request. The body is looked at only to find the name of an object that is created.
    pub fn parse(method: &Method, uri: &Uri, body: &[u8]) -> RequestInfo {
        let mut info = RequestInfo {
            method: method.clone(),
            path: uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string),
            verb: Verb::NonResource,
            group: String::new(),
            resource: String::new(),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            query: parse_query(uri.query().unwrap_or_default()),
        };
        let segments: Vec<String> =
            uri.path().split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["api", _version, rest @ ..] => info.locate(rest, body),
            ["apis", group, _version, rest @ ..] => {
                info.group = (*group).to_owned();
                info.locate(rest, body);
            }
            _ => {}
        }
        info
    }

    /// The value of a query parameter.
    pub fn query(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// The resource as kubectl spells it: `pods`, `deployments.apps`.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// The path without its query.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// The path of the object in the API: without query and subresource.
    pub(crate) fn object_path(&self) -> String {
        let path = self.bare_path();
        let end = format!("/{}", self.subresource);
        let path =
            if self.subresource.is_empty() { path } else { path.strip_suffix(end.as_str()).unwrap_or(path) };
        path.to_owned()
    }

    /// Reads the part of the path behind the version.
    fn locate(&mut self, segments: &[&str], body: &[u8]) {
        let (legacy_watch, segments) = match segments {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            other => (false, other),
        };
        let segments = match segments {
            ["namespaces", namespace, resource, rest @ ..] if !matches!(*resource, "status" | "finalize") => {
                self.namespace = (*namespace).to_owned();
                self.resource = (*resource).to_owned();
                rest
            }
            [resource, rest @ ..] => {
                self.resource = (*resource).to_owned();
                rest
            }
            [] => return, // discovery of one group-version
        };
        if let [name, rest @ ..] = segments {
            self.name = (*name).to_owned();
            self.subresource = rest.join("/");
        }
        self.verb = self.find_verb(legacy_watch);
        if self.name.is_empty() {
            self.name = match self.verb {
                Verb::Create => name_in_body(body),
                _ => self.name_in_field_selector(),
            };
        }
    }

    fn find_verb(&self, legacy_watch: bool) -> Verb {
        let one = !self.name.is_empty();
        match self.method.as_str() {
            "GET" | "HEAD" if legacy_watch => Verb::Watch,
            "GET" | "HEAD" if one => Verb::Get,
            "GET" | "HEAD" if self.query("watch").is_some_and(truthy) => Verb::Watch,
            "GET" | "HEAD" => Verb::List,
            "POST" => Verb::Create,
            "PUT" => Verb::Update,
            "PATCH" => Verb::Patch,
            "DELETE" if one => Verb::Delete,
            "DELETE" => Verb::DeleteCollection,
            _ => Verb::NonResource,
        }
    }

    fn name_in_field_selector(&self) -> String {
        let selector = self.query("fieldSelector").unwrap_or_default();
        let names = selector.split(',').filter_map(|term| term.strip_prefix("metadata.name="));
        names.map(|name| name.trim_start_matches('=')).next().unwrap_or_default().to_owned()
    }
}

/// As a failure report prints it: `POST configmaps/default/a`.
impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.verb == Verb::NonResource {
            return write!(f, "{} {}", self.method, self.path);
        }
        match self.verb {
            Verb::Watch => write!(f, "WATCH {}", self.group_resource())?,
            _ => write!(f, "{} {}", self.method, self.group_resource())?,
        }
        for part in [&self.namespace, &self.name, &self.subresource] {
            if !part.is_empty() {
                write!(f, "/{part}")?;
            }
        }
        Ok(())
    }
}

/// kube-apiserver takes every value but these two for true.
fn truthy(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}

fn name_in_body(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        name: String,
    }
    serde_json::from_slice::<Object>(body).map(|object| object.metadata.name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str, body: &str) -> RequestInfo {
        RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap(), body.as_bytes())
    }

    #[test]
    fn requests_are_read_as_kube_apiserver_reads_them() {
        let cases = [
            ("GET", "/api/v1/pods?&limit=500", Verb::List, "GET pods"),
            ("GET", "/api/v1/namespaces/ns/pods/a", Verb::Get, "GET pods/ns/a"),
            ("GET", "/api/v1/namespaces/ns/pods/a?watch=1", Verb::Get, "GET pods/ns/a"),
            ("GET", "/api/v1/pods?watch=true", Verb::Watch, "WATCH pods"),
            ("GET", "/api/v1/pods?watch", Verb::Watch, "WATCH pods"),
            ("GET", "/api/v1/pods?watch=false", Verb::List, "GET pods"),
            ("GET", "/api/v1/watch/namespaces/ns/pods/a", Verb::Watch, "WATCH pods/ns/a"),
            ("GET", "/api/v1/pods?watch=1&fieldSelector=metadata.name%3Da", Verb::Watch, "WATCH pods/a"),
            ("GET", "/api/v1/namespaces", Verb::List, "GET namespaces"),
            ("GET", "/api/v1/namespaces/ns", Verb::Get, "GET namespaces/ns"),
            ("PUT", "/api/v1/namespaces/ns/finalize", Verb::Update, "PUT namespaces/ns/finalize"),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/ns/deployments/web/scale",
                Verb::Patch,
                "PATCH deployments.apps/ns/web/scale",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/ns/deployments",
                Verb::DeleteCollection,
                "DELETE deployments.apps/ns",
            ),
            ("GET", "/apis/apps/v1", Verb::NonResource, "GET /apis/apps/v1"),
            ("GET", "/healthz", Verb::NonResource, "GET /healthz"),
        ];
        for (method, uri, verb, text) in cases {
            let info = parse(method, uri, "");
            assert_eq!((info.verb, info.to_string().as_str()), (verb, text), "{method} {uri}");
        }
    }

    #[test]
    fn a_create_has_its_name_from_its_body_and_a_body_that_is_no_json_has_none() {
        let uri = "/api/v1/namespaces/default/configmaps";
        let named = parse("POST", uri, r#"{"data":{"x":"y"},"metadata":{"name":"a"}}"#);
        assert_eq!(named.to_string(), "POST configmaps/default/a");
        for body in ["", "k8s\0…", r#"{"metadata":{"generateName":"a-"}}"#, "[]"] {
            assert_eq!(parse("POST", uri, body).name, "", "{body:?}");
        }
    }

    #[test]
    fn query_values_are_decoded() {
        let info = parse("GET", "/api/v1/pods?labelSelector=a%3Db+c&resourceVersion=7", "");
        assert_eq!(info.query("labelSelector"), Some("a=b c"));
        assert_eq!(info.query("resourceVersion"), Some("7"));
        assert_eq!(info.query("limit"), None);
    }
}
