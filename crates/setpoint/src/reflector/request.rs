//! The requests of a reflector. Nothing here talks to a server.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use setpoint_kinds::protobuf::MEDIA_TYPE;
use tokio::sync::Notify;

use crate::{ResourceVersion, Scope};

/// What is listed and watched: one resource, in one scope, under selectors.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// `pods`, `deployments.apps`: for people.
    pub(crate) resource: String,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) path: String,
    pub(crate) scope: Scope,
    pub(crate) label_selector: Option<String>,
    pub(crate) field_selector: Option<String>,
    /// Ask for metadata only.
    pub(crate) metadata_only: bool,
    /// Ask for protobuf, or for JSON if the server has none.
    pub(crate) protobuf: bool,
    /// Calls for a list in place of the watch that there is.
    pub(crate) again: Arc<Notify>,
}

/// Which objects a list asks for.
#[derive(Debug)]
pub(super) enum ListRange<'a> {
    /// Everything in one answer; at least as new as the version, or up to date if there is none.
    Whole(Option<&'a str>),
    /// A page of the newest state.
    Page { limit: u32, continue_token: Option<&'a str> },
}

const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl Target {
    /// Lets the reflector list the newest state: in place of its watch, or of what it waits for after a failure.
    pub(crate) fn list_again(&self) {
        self.again.notify_one();
    }

    pub(super) fn list(&self, range: &ListRange<'_>) -> http::Request<Body> {
        let mut query = self.query();
        match range {
            ListRange::Whole(version) => query.push("resourceVersion", *version),
            ListRange::Page { limit, continue_token } => {
                query.push("limit", Some(limit.to_string().as_str()));
                query.push("continue", *continue_token);
            }
        }
        self.request(query, "PartialObjectMetadataList")
    }

    /// A page of what `path` has now, or of the object of one name in it, under the same selectors: the metadata alone,
    /// in JSON.
    pub(crate) fn metadata_page(
        &self,
        path: &str,
        name: Option<&str>,
        limit: u32,
        continue_token: Option<&str>,
    ) -> http::Request<Vec<u8>> {
        let by_name = name.map(|name| format!("metadata.name={name}"));
        let fields: Vec<&str> =
            self.field_selector.as_deref().into_iter().chain(by_name.as_deref()).collect();
        let fields = Some(fields.join(",")).filter(|fields| !fields.is_empty());
        let mut query = Query(path.to_owned(), '?');
        query.push("labelSelector", self.label_selector.as_deref());
        query.push("fieldSelector", fields.as_deref());
        query.push("limit", Some(limit.to_string().as_str()));
        query.push("continue", continue_token);
        let json = "application/json";
        let accept = format!("{json};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{json}");
        let request = http::Request::get(query.0).header(ACCEPT, accept).body(Vec::new());
        request.expect("a path and an encoded query are a valid URI")
    }

    pub(super) fn streaming_list(
        &self,
        version: Option<&ResourceVersion>,
        timeout: Duration,
    ) -> http::Request<Body> {
        let mut query = self.watch_query(version, timeout);
        query.push("sendInitialEvents", Some("true"));
        query.push("resourceVersionMatch", Some("NotOlderThan"));
        self.request(query, "PartialObjectMetadata")
    }

    pub(super) fn watch(&self, version: &ResourceVersion, timeout: Duration) -> http::Request<Body> {
        self.request(self.watch_query(Some(version), timeout), "PartialObjectMetadata")
    }

    fn watch_query(&self, version: Option<&ResourceVersion>, timeout: Duration) -> Query {
        let mut query = self.query();
        query.push("watch", Some("true"));
        query.push("allowWatchBookmarks", Some("true"));
        query.push("timeoutSeconds", Some(timeout.as_secs().to_string().as_str()));
        query.push("resourceVersion", version.map(ToString::to_string).as_deref());
        query
    }

    fn query(&self) -> Query {
        let mut query = Query(self.path.clone(), '?');
        query.push("labelSelector", self.label_selector.as_deref());
        query.push("fieldSelector", self.field_selector.as_deref());
        query
    }

    fn request(&self, query: Query, partial: &str) -> http::Request<Body> {
        const JSON: &str = "application/json";
        let accept = match (self.metadata_only, self.protobuf) {
            (false, false) => JSON.to_owned(),
            (false, true) => format!("{MEDIA_TYPE},{JSON}"),
            (true, protobuf) => {
                let as_partial = format!("as={partial};g=meta.k8s.io;v=v1");
                let first = if protobuf { format!("{MEDIA_TYPE};{as_partial},") } else { String::new() };
                format!("{first}{JSON};{as_partial},{JSON}")
            }
        };
        // A server may compress a watch event by event, which nobody can read as one stream.
        let request = http::Request::get(query.0).header(ACCEPT, accept).header(ACCEPT_ENCODING, "identity");
        request.body(Body::empty()).expect("a path and an encoded query are a valid URI")
    }

    /// Whether a list of this kind answers a request for this target's kind.
    pub(super) fn accepts_list(&self, api_version: &str, kind: &str) -> bool {
        if self.metadata_only && kind == "PartialObjectMetadataList" {
            return true;
        }
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        // A custom resource may choose the name of its list; the built-in groups follow the rule.
        let may_choose = group.contains('.') && !group.ends_with(".k8s.io");
        api_version == self.api_version
            && (kind == format!("{}List", self.kind) || (may_choose && kind != "Status"))
    }
}

struct Query(String, char);

impl Query {
    fn push(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.0.push(self.1);
            self.1 = '&';
            self.0.push_str(name);
            self.0.push('=');
            self.0.extend(utf8_percent_encode(value, QUERY));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Target {
        Target {
            resource: "pods".to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            path: "/api/v1/pods".to_owned(),
            scope: Scope::Cluster,
            label_selector: Some("app in (a,b)".to_owned()),
            field_selector: None,
            metadata_only: false,
            protobuf: false,
            again: Arc::default(),
        }
    }

    #[test]
    fn requests_ask_for_what_the_server_documents() {
        let pods = pods();
        let check = |request: http::Request<Body>, expected: &str| {
            assert_eq!(
                request.uri().to_string(),
                format!("/api/v1/pods?labelSelector=app%20in%20%28a%2Cb%29{expected}")
            );
            assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
        };
        check(pods.list(&ListRange::Whole(None)), "");
        check(pods.list(&ListRange::Whole(Some("7"))), "&resourceVersion=7");
        check(
            pods.list(&ListRange::Page { limit: 500, continue_token: Some("a=") }),
            "&limit=500&continue=a%3D",
        );
        check(
            pods.streaming_list(None, Duration::from_secs(300)),
            "&watch=true&allowWatchBookmarks=true&timeoutSeconds=300&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        );
        check(
            pods.watch(&"7".into(), Duration::from_secs(301)),
            "&watch=true&allowWatchBookmarks=true&timeoutSeconds=301&resourceVersion=7",
        );
    }

    #[test]
    fn one_object_is_asked_for_by_a_list_since_listing_is_what_an_informer_may() {
        let pods = Target { field_selector: Some("spec.nodeName=n".to_owned()), ..pods() };
        let request = pods.metadata_page("/api/v1/namespaces/x/pods", Some("a"), 500, None);
        assert_eq!(
            request.uri().to_string(),
            "/api/v1/namespaces/x/pods?labelSelector=app%20in%20%28a%2Cb%29\
             &fieldSelector=spec.nodeName%3Dn%2Cmetadata.name%3Da&limit=500"
        );
    }

    #[test]
    fn protobuf_is_asked_for_with_json_as_the_second_choice() {
        let accept = |metadata_only, protobuf| {
            let target = Target { metadata_only, protobuf, ..pods() };
            target.watch(&"7".into(), Duration::from_secs(1)).headers()[ACCEPT].to_str().unwrap().to_owned()
        };
        assert_eq!(accept(false, false), "application/json");
        assert_eq!(accept(false, true), "application/vnd.kubernetes.protobuf,application/json");
        let json = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(accept(true, false), json);
        let protobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(accept(true, true), format!("{protobuf},{json}"));
    }

    #[test]
    fn a_list_of_another_kind_is_not_accepted() {
        let mut target = pods();
        assert!(target.accepts_list("v1", "PodList"));
        assert!(!target.accepts_list("v1", "NodeList"));
        assert!(!target.accepts_list("apps/v1", "PodList"));
        target.metadata_only = true;
        assert!(target.accepts_list("meta.k8s.io/v1", "PartialObjectMetadataList"));
    }
}
