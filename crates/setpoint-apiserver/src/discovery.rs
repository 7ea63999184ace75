//! Discovery: which groups, versions and resources there are. The same facts in two forms: one small document a
//! group-version ([`legacy`]), or everything at once ([`aggregated`]), which is what clients ask for first.

mod aggregated;
mod legacy;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::definitions::{group_priority, rank, version_priority};
use crate::indent::indent;
use crate::negotiate::{self, Media, Subject};
use crate::object;
use crate::options::Query;
use crate::response::{Body, respond as response};
use crate::status::{Result, Status};

/// What discovery tells about a resource in one version.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) singular: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<&'a str>,
    pub(crate) short_names: Vec<&'a str>,
    pub(crate) categories: Vec<&'a str>,
    pub(crate) subresources: Vec<SubEntry<'a>>,
}

/// What discovery tells about a subresource.
#[derive(Clone, Debug)]
pub(crate) struct SubEntry<'a> {
    pub(crate) name: &'a str,
    /// Group and version of its kind, where they are not those of the resource: `autoscaling`, `v1`.
    pub(crate) group_version: Option<(&'a str, &'a str)>,
    pub(crate) kind: &'a str,
    pub(crate) verbs: Vec<&'a str>,
}

impl<'a> From<&'a setpoint_kinds::Resource> for Entry<'a> {
    fn from(resource: &'a setpoint_kinds::Resource) -> Entry<'a> {
        let subresource = |sub: &'a setpoint_kinds::Subresource| SubEntry {
            name: sub.name,
            group_version: ((sub.group, sub.version) != (resource.group, resource.version))
                .then_some((sub.group, sub.version)),
            kind: sub.kind,
            verbs: sub.verbs.to_vec(),
        };
        Entry {
            group: resource.group,
            version: resource.version,
            plural: resource.plural,
            singular: resource.singular,
            kind: resource.kind,
            namespaced: resource.is_namespaced(),
            verbs: resource.verbs.to_vec(),
            short_names: resource.short_names.to_vec(),
            categories: resource.categories.to_vec(),
            subresources: resource.subresources.iter().map(subresource).collect(),
        }
    }
}

/// A version that another server answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) group_priority: u64,
    pub(crate) version_priority: u64,
    /// What it says itself, in the newer form.
    pub(crate) content: &'a Value,
}

/// All discovery documents, ready to be sent.
#[derive(Debug)]
pub(crate) struct Discovery {
    /// By path: `apis/apps/v1`.
    legacy: BTreeMap<String, Document>,
    core: Document,
    groups: Document,
}

#[derive(Debug)]
struct Document {
    value: Value,
    compact: Bytes,
    /// Quoted. It changes when the document does; it need not be the same in another build.
    etag: HeaderValue,
}

impl Document {
    fn new(value: Value) -> Document {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut compact = Vec::new();
        object::append_object(&mut compact, &value);
        let compact = Bytes::from(compact);
        let mut hasher = DefaultHasher::new();
        compact.hash(&mut hasher);
        let etag = HeaderValue::try_from(format!("\"{:016X}\"", hasher.finish()));
        Document { value, compact, etag: etag.expect("hexadecimal digits can stand in a header") }
    }

    fn body(&self, media: Media, pretty: bool) -> Result<Bytes> {
        Ok(match (media, pretty) {
            (Media::Json, true) => indent(&self.compact).into(),
            // Protobuf is not offered for these.
            (Media::Json | Media::Protobuf, _) => self.compact.clone(),
            (Media::Yaml, _) => serde_saphyr::to_string(&self.value).map_err(Status::internal)?.into(),
        })
    }
}

impl Discovery {
    /// Makes the documents. The order of the entries is the order of groups and, within a group, of preference.
    pub(crate) fn new<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Discovery {
        Discovery::with(entries, Vec::new())
    }

    /// The same with what other servers answer, each at the place that its priorities give it.
    pub(crate) fn with<'a>(
        entries: impl IntoIterator<Item = Entry<'a>>,
        remotes: Vec<Remote<'a>>,
    ) -> Discovery {
        let mut groups = Group::collect(entries);
        remotes.into_iter().for_each(|remote| Group::insert(&mut groups, remote));
        let (core, named): (Vec<_>, Vec<_>) = groups.iter().partition(|group| group.name.is_empty());
        Discovery {
            legacy: legacy::documents(&groups).map(|(path, value)| (path, Document::new(value))).collect(),
            core: Document::new(aggregated::list(&core)),
            groups: Document::new(aggregated::list(&named)),
        }
    }

    /// Answers `/api`, `/apis` and what is below them; the first two in one document for all, if that `is_aggregated`.
    pub(crate) fn respond(
        &self,
        segments: &[&str],
        headers: &HeaderMap,
        is_aggregated: bool,
    ) -> Result<Response<Body>> {
        let whole = match segments {
            ["api"] => Some(&self.core),
            ["apis"] => Some(&self.groups),
            _ => None,
        };
        if let Some(document) = whole.filter(|_| is_aggregated)
            && negotiate::asks_for(headers, aggregated::GROUP, aggregated::VERSION, aggregated::KIND)
        {
            return aggregated_response(document, headers);
        }
        let representation = negotiate::representation(headers, &Query::default(), Subject::Server)?;
        let document = self.legacy.get(&segments.join("/")).ok_or_else(Status::no_such_path)?;
        let body = document.body(representation.media, representation.pretty)?;
        Ok(response(StatusCode::OK, representation.media.content_type(), body))
    }
}

fn aggregated_response(document: &Document, headers: &HeaderMap) -> Result<Response<Body>> {
    let known = headers.get(header::IF_NONE_MATCH) == Some(&document.etag);
    let pretty = negotiate::representation(headers, &Query::default(), Subject::Server)
        .is_ok_and(|asked| asked.pretty);
    let (code, body) = match known {
        true => (StatusCode::NOT_MODIFIED, Bytes::new()),
        false => (StatusCode::OK, document.body(Media::Json, pretty)?),
    };
    let mut response = response(code, aggregated::CONTENT_TYPE, body);
    let headers = response.headers_mut();
    headers.insert(header::ETAG, document.etag.clone());
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if known {
        headers.remove(header::CONTENT_TYPE);
    }
    Ok(response)
}

/// A group, with its versions in the order of preference.
struct Group<'a> {
    name: &'a str,
    /// The greatest that one of its remote versions asks for.
    priority: u64,
    versions: Vec<Version<'a>>,
}

struct Version<'a> {
    name: &'a str,
    content: Content<'a>,
}

enum Content<'a> {
    Local(Vec<Entry<'a>>),
    Remote(Remote<'a>),
}

impl<'a> Group<'a> {
    fn collect(entries: impl IntoIterator<Item = Entry<'a>>) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for entry in entries {
            let at = groups.iter().position(|group| group.name == entry.group).unwrap_or_else(|| {
                groups.push(Group { name: entry.group, priority: 0, versions: vec![] });
                groups.len() - 1
            });
            let versions = &mut groups[at].versions;
            match versions.iter_mut().find(|version| version.name == entry.version) {
                Some(Version { content: Content::Local(entries), .. }) => entries.push(entry),
                _ => versions.push(Version { name: entry.version, content: Content::Local(vec![entry]) }),
            }
        }
        groups
    }

    /// Puts a version of another server into its group, in the place of one of ours, and the group where it belongs.
    fn insert(groups: &mut Vec<Group<'a>>, remote: Remote<'a>) {
        let known = groups.iter().position(|group| group.name == remote.group);
        let mut group =
            known.map_or(Group { name: remote.group, priority: 0, versions: vec![] }, |at| groups.remove(at));
        group.versions.retain(|version| version.name != remote.version);
        group.versions.push(Version { name: remote.version, content: Content::Remote(remote) });
        group
            .versions
            .sort_by_key(|version| std::cmp::Reverse((version.priority(group.name), rank(version.name))));
        group.priority = group.priority.max(remote.group_priority);
        let place = (std::cmp::Reverse(group.total_priority()), group.name);
        let at = groups.iter().position(|other| {
            !other.name.is_empty() && (std::cmp::Reverse(other.total_priority()), other.name) > place
        });
        groups.insert(at.unwrap_or(groups.len()), group);
    }

    fn total_priority(&self) -> u64 {
        let has_own = self.versions.iter().any(|version| matches!(version.content, Content::Local(_)));
        let own = if has_own { group_priority(self.name) } else { 0 };
        self.priority.max(own.into())
    }
}

impl Version<'_> {
    fn priority(&self, group: &str) -> u64 {
        match &self.content {
            Content::Local(_) => version_priority(group, self.name).into(),
            Content::Remote(remote) => remote.version_priority,
        }
    }
}

/// The documents of the built-in kinds.
pub(crate) fn built_in() -> &'static Discovery {
    static BUILT_IN: LazyLock<Discovery> =
        LazyLock::new(|| Discovery::new(setpoint_kinds::table().resources().iter().map(Entry::from)));
    &BUILT_IN
}

/// Answers `/version`. Clients read the minor version (kubectl: skew; helm: `kubeVersion`), so this is the release of
/// Kubernetes whose API is served; ours is build metadata, which no comparison looks at.
pub(crate) fn version() -> Response<Body> {
    let release = setpoint_kinds::table().kubernetes_version();
    let mut parts = release.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let info = json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "gitVersion": format!("v{release}+setpoint-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", operating_system(), architecture()),
    });
    response(StatusCode::OK, "application/json", format!("{info:#}"))
}

/// The names that Go has for these.
fn operating_system() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                              application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                              application/json";

    fn entries() -> Vec<Entry<'static>> {
        let apps = Entry {
            group: "apps",
            version: "v1",
            plural: "deployments",
            singular: "deployment",
            kind: "Deployment",
            namespaced: true,
            verbs: vec!["get", "list"],
            short_names: vec!["deploy"],
            categories: vec!["all"],
            subresources: vec![
                SubEntry {
                    name: "scale",
                    group_version: Some(("autoscaling", "v1")),
                    kind: "Scale",
                    verbs: vec!["get"],
                },
                SubEntry { name: "status", group_version: None, kind: "Deployment", verbs: vec!["get"] },
            ],
        };
        let nodes = Entry {
            group: "",
            plural: "nodes",
            singular: "node",
            kind: "Node",
            namespaced: false,
            short_names: vec![],
            categories: vec![],
            subresources: vec![],
            ..apps.clone()
        };
        let old = Entry { version: "v1beta1", subresources: vec![], ..apps.clone() };
        vec![nodes, apps, old]
    }

    fn get(path: &str, accept: &'static str) -> Result<Response<Body>> {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
        Discovery::new(entries()).respond(&segments, &headers, true)
    }

    async fn json(response: Response<Body>) -> Value {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn plain_documents_are_those_of_kube_apiserver() {
        assert_eq!(
            json(get("/api", "application/json").unwrap()).await,
            json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
            })
        );
        let group = json!({
            "name": "apps",
            "versions": [
                {"groupVersion": "apps/v1", "version": "v1"}, {"groupVersion": "apps/v1beta1", "version": "v1beta1"}
            ],
            "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}
        });
        assert_eq!(
            json(get("/apis", "application/json").unwrap()).await,
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
        );
        let mut alone = group;
        alone["kind"] = json!("APIGroup");
        alone["apiVersion"] = json!("v1");
        assert_eq!(json(get("/apis/apps", AGGREGATED).unwrap()).await, alone);
        assert_eq!(
            json(get("/api/v1", "*/*").unwrap()).await,
            json!({
                "kind": "APIResourceList", "groupVersion": "v1",
                "resources": [{
                    "name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "verbs": ["get", "list"]
                }]
            })
        );
        assert_eq!(
            json(get("/apis/apps/v1", "").unwrap()).await,
            json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1",
                "resources": [
                    {
                        "name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
                        "verbs": ["get", "list"], "shortNames": ["deploy"], "categories": ["all"]
                    },
                    {
                        "name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
                        "version": "v1", "kind": "Scale", "verbs": ["get"]
                    },
                    {
                        "name": "deployments/status", "singularName": "", "namespaced": true, "kind": "Deployment",
                        "verbs": ["get"]
                    }
                ]
            })
        );
        assert_eq!(get("/apis/none", "").unwrap_err().code, 404);
        assert_eq!(get("/apis/apps/v2", "").unwrap_err().code, 404);
    }

    #[tokio::test]
    async fn what_other_servers_answer_stands_where_its_priority_puts_it() {
        let content = json!({"version": "v2", "freshness": "Stale"});
        let remote = |group, version, group_priority, version_priority| Remote {
            group,
            version,
            group_priority,
            version_priority,
            content: &content,
        };
        let custom = |group| Entry { group, version: "v1", ..entries().remove(1) };
        let own = || entries().into_iter().chain([custom("crd.b.example"), custom("crd.d.example")]);
        let remotes = vec![
            remote("first.example", "v2", 20_000, 1),
            remote("crd.c.example", "v2", 1000, 1),
            remote("last.example", "v1", 500, 10),
            remote("last.example", "v2", 900, 20),
            remote("crd.b.example", "v2", 100, 200),
            remote("crd.d.example", "v1", 100, 100),
        ];
        let discovery = Discovery::with(own(), remotes);
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(AGGREGATED))]);
        let all = json(discovery.respond(&["apis"], &headers, true).unwrap()).await;
        let shown: Vec<String> = all["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| {
                let versions = group["versions"].as_array().unwrap().iter();
                let versions: Vec<String> = versions
                    .map(|version| format!("{}:{}", version["version"], version["freshness"]))
                    .collect();
                format!("{} {}", group["metadata"]["name"], versions.join(" ")).replace('"', "")
            })
            .collect();
        assert_eq!(
            shown,
            [
                "first.example v2:Stale",
                "apps v1:Current v1beta1:Current",
                "crd.b.example v2:Stale v1:Current",
                "crd.c.example v2:Stale",
                "last.example v2:Stale v2:Stale",
                "crd.d.example v2:Stale",
            ]
        );
        let group =
            json(discovery.respond(&["apis", "last.example"], &HeaderMap::new(), true).unwrap()).await;
        assert_eq!(group["preferredVersion"]["version"], "v2");
        assert_eq!(group["versions"][1]["groupVersion"], "last.example/v1");
    }

    #[tokio::test]
    async fn the_aggregated_document_has_everything_and_a_tag() {
        let response = get("/apis", AGGREGATED).unwrap();
        let header = |name| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(
            header(header::CONTENT_TYPE),
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        assert_eq!((header(header::VARY), header(header::CACHE_CONTROL)), ("Accept".into(), "public".into()));
        let etag = header(header::ETAG);
        let plain = json!({"group": "", "version": "", "kind": "Deployment"});
        let resource = json!({
            "resource": "deployments", "responseKind": plain, "scope": "Namespaced", "singularResource": "deployment",
            "verbs": ["get", "list"], "shortNames": ["deploy"], "categories": ["all"]
        });
        let mut with_parts = resource.clone();
        with_parts["subresources"] = json!([
            {
                "subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                "verbs": ["get"]
            },
            {"subresource": "status", "responseKind": plain, "verbs": ["get"]}
        ]);
        assert_eq!(
            json(response).await,
            json!({
                "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
                "items": [{
                    "metadata": {"name": "apps"},
                    "versions": [
                        {"version": "v1", "resources": [with_parts], "freshness": "Current"},
                        {"version": "v1beta1", "resources": [resource], "freshness": "Current"}
                    ]
                }]
            })
        );
        let headers = HeaderMap::from_iter([
            (header::ACCEPT, HeaderValue::from_static(AGGREGATED)),
            (header::IF_NONE_MATCH, HeaderValue::try_from(etag).unwrap()),
        ]);
        let again = Discovery::new(entries()).respond(&["apis"], &headers, true).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(again.headers().contains_key(header::ETAG));
    }

    #[tokio::test]
    async fn built_in_kinds_are_listed_core_first() {
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(AGGREGATED))]);
        let core = json(built_in().respond(&["api"], &headers, true).unwrap()).await;
        assert_eq!(core["items"][0]["metadata"]["name"], "");
        let groups = json(built_in().respond(&["apis"], &headers, true).unwrap()).await;
        let names: Vec<_> =
            groups["items"].as_array().unwrap().iter().map(|group| &group["metadata"]["name"]).collect();
        assert!(names.contains(&&json!("apps")) && !names.contains(&&json!("")));
        let pods = json(built_in().respond(&["api", "v1"], &HeaderMap::new(), true).unwrap()).await;
        let names =
            pods["resources"].as_array().unwrap().iter().map(|resource| resource["name"].as_str().unwrap());
        assert!(names.clone().any(|name| name == "pods/eviction"));
        assert!(names.is_sorted());
    }

    #[tokio::test]
    async fn the_version_is_a_semantic_one() {
        let info = json(version()).await;
        assert_eq!((info["major"].as_str(), info["minor"].as_str()), (Some("1"), Some("37")));
        let text = info["gitVersion"].as_str().unwrap();
        assert!(text.starts_with("v1.37.") && text.contains("+setpoint-"), "{text}");
    }
}
