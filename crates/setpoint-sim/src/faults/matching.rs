//! Which requests a rule meets.

use std::fmt;

use crate::request::{RequestInfo, Verb};

/// Selects requests by client, verb, resource, namespace and name. What is not said is not asked for.
///
/// A resource is spelled as in an RBAC rule, with kubectl's group: `pods`, `deployments.apps`, `pods/status`
/// (only that subresource), `pods/*` (the object and its subresources). `pods` alone leaves subresources out.
///
/// ```
/// use setpoint_sim::Match;
///
/// let _ = Match::watch("pods").client("controller");
/// let _ = Match::update("deployments.apps/status").namespace("default").name("web");
/// let _ = Match::writes().client("controller").nth(3); // the controller's third write
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Match {
    client: Option<String>,
    verbs: Vec<Verb>,
    resource: Option<Resource>,
    namespace: Option<String>,
    name: Option<String>,
    method: Option<String>,
    path: Option<String>,
    nth: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    plural: String,
    group: Option<String>,
    subresource: Option<String>,
}

impl Match {
    /// Every request.
    pub fn any() -> Match {
        Match::default()
    }

    /// Every request that can change the server's state.
    pub fn writes() -> Match {
        let verbs = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection];
        Match { verbs: verbs.to_vec(), ..Match::default() }
    }

    /// Reads of one object.
    pub fn get(resource: &str) -> Match {
        Match::any().verb(Verb::Get).resource(resource)
    }

    /// Lists.
    pub fn list(resource: &str) -> Match {
        Match::any().verb(Verb::List).resource(resource)
    }

    /// Watches.
    pub fn watch(resource: &str) -> Match {
        Match::any().verb(Verb::Watch).resource(resource)
    }

    /// Creates.
    pub fn create(resource: &str) -> Match {
        Match::any().verb(Verb::Create).resource(resource)
    }

    /// Updates.
    pub fn update(resource: &str) -> Match {
        Match::any().verb(Verb::Update).resource(resource)
    }

    /// Patches.
    pub fn patch(resource: &str) -> Match {
        Match::any().verb(Verb::Patch).resource(resource)
    }

    /// Deletes of one object.
    pub fn delete(resource: &str) -> Match {
        Match::any().verb(Verb::Delete).resource(resource)
    }

    /// One more verb; with none, every verb is meant.
    pub fn verb(mut self, verb: Verb) -> Match {
        self.verbs.push(verb);
        self
    }

    /// Only this resource.
    pub fn resource(mut self, resource: &str) -> Match {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (plural, group) = match resource.split_once('.') {
            Some((plural, group)) => (plural, Some(group.to_owned())),
            None => (resource, None),
        };
        let subresource = (subresource != "*").then(|| subresource.to_owned());
        self.resource = Some(Resource { plural: plural.to_owned(), group, subresource });
        self
    }

    /// Only the client of this name.
    pub fn client(mut self, name: &str) -> Match {
        self.client = Some(name.to_owned());
        self
    }

    /// Only requests to this namespace.
    pub fn namespace(mut self, namespace: &str) -> Match {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only requests for the object of this name.
    pub fn name(mut self, name: &str) -> Match {
        self.name = Some(name.to_owned());
        self
    }

    /// Only requests with this method to this path, without its query: for servers beside the Kubernetes API.
    pub fn http(mut self, method: &str, path: &str) -> Match {
        self.method = Some(method.to_owned());
        self.path = Some(path.to_owned());
        self
    }

    /// Only the nth of the requests that are selected otherwise, from 1.
    pub fn nth(mut self, n: u64) -> Match {
        self.nth = Some(n);
        self
    }

    /// As it is written in a test.
    pub(crate) fn code(&self) -> String {
        let mut code = "Match::any()".to_owned();
        let mut call = |method: &str, argument: String| {
            code.push_str(&format!(".{method}({argument})"));
        };
        self.verbs.iter().for_each(|verb| call("verb", format!("Verb::{verb:?}")));
        if let Some(Resource { plural, group, subresource }) = &self.resource {
            let group = group.as_ref().map(|group| format!(".{group}")).unwrap_or_default();
            let subresource = match subresource.as_deref() {
                Some("") => String::new(),
                Some(subresource) => format!("/{subresource}"),
                None => "/*".to_owned(),
            };
            call("resource", format!("{:?}", format!("{plural}{group}{subresource}")));
        }
        for (method, value) in
            [("client", &self.client), ("namespace", &self.namespace), ("name", &self.name)]
        {
            value.iter().for_each(|value| call(method, format!("{value:?}")));
        }
        if let (Some(method), Some(path)) = (&self.method, &self.path) {
            call("http", format!("{method:?}, {path:?}"));
        }
        self.nth.iter().for_each(|nth| call("nth", nth.to_string()));
        code
    }

    /// The requests that are like this one: by the same client, of the same kind, to the same object.
    pub(crate) fn like(client: &str, request: &RequestInfo) -> Match {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let is_other = request.verb == Verb::NonResource;
        Match {
            client: Some(client.to_owned()),
            verbs: vec![request.verb],
            resource: some(&request.resource).map(|plural| Resource {
                plural,
                group: some(&request.group),
                subresource: Some(request.subresource.clone()),
            }),
            namespace: some(&request.namespace),
            name: some(&request.name),
            method: is_other.then(|| request.method.to_string()),
            path: is_other.then(|| request.bare_path().to_owned()),
            nth: None,
        }
    }

    /// Whether the request is selected, but for its place in the order.
    pub(crate) fn selects(&self, client: &str, request: &RequestInfo) -> bool {
        let equal = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
        equal(&self.client, client)
            && (self.verbs.is_empty() || self.verbs.contains(&request.verb))
            && self.resource.as_ref().is_none_or(|resource| {
                resource.plural == request.resource
                    && equal(&resource.group, &request.group)
                    && equal(&resource.subresource, &request.subresource)
            })
            && equal(&self.namespace, &request.namespace)
            && equal(&self.name, &request.name)
            && equal(&self.method, request.method.as_str())
            && equal(&self.path, request.bare_path())
    }

    /// Whether it can select a watch.
    pub(crate) fn can_be_watch(&self) -> bool {
        self.verbs.is_empty() || self.verbs.contains(&Verb::Watch)
    }

    pub(crate) fn wants_nth(&self, n: u64) -> bool {
        self.nth.is_none_or(|nth| nth == n)
    }
}

/// `update deployments.apps/status of client controller in namespace default, name web, number 3`.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs: Vec<_> = self.verbs.iter().map(ToString::to_string).collect();
        f.write_str(if verbs.is_empty() { "any request" } else { "" })?;
        f.write_str(&verbs.join("|"))?;
        if let Some(Resource { plural, group, subresource }) = &self.resource {
            write!(f, " {plural}")?;
            group.iter().try_for_each(|group| write!(f, ".{group}"))?;
            match subresource.as_deref() {
                Some("") => {}
                Some(subresource) => write!(f, "/{subresource}")?,
                None => f.write_str("/*")?,
            }
        }
        if let (Some(method), Some(path)) = (&self.method, &self.path) {
            write!(f, " {method} {path}")?;
        }
        self.client.iter().try_for_each(|client| write!(f, " of client {client}"))?;
        self.namespace.iter().try_for_each(|namespace| write!(f, " in namespace {namespace}"))?;
        self.name.iter().try_for_each(|name| write!(f, ", name {name}"))?;
        self.nth.iter().try_for_each(|nth| write!(f, ", number {nth}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str) -> RequestInfo {
        RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap(), b"")
    }

    #[test]
    fn each_condition_can_exclude_a_request() {
        let put = request("PUT", "/apis/apps/v1/namespaces/default/deployments/web");
        let status = request("PUT", "/apis/apps/v1/namespaces/default/deployments/web/status");
        let wanted = Match::update("deployments.apps").client("a").namespace("default").name("web");
        assert!(wanted.selects("a", &put));
        assert!(!wanted.selects("b", &put));
        assert!(!wanted.selects("a", &status));
        assert!(!wanted.clone().namespace("other").selects("a", &put));
        assert!(!wanted.clone().name("other").selects("a", &put));
        assert!(!wanted.clone().resource("deployments.extensions").selects("a", &put));
        assert!(wanted.clone().resource("deployments").selects("a", &put));
        assert!(!Match::patch("deployments").selects("a", &put));
        assert!(Match::update("deployments/status").selects("a", &status));
        assert!(Match::update("deployments/*").selects("a", &status));
        assert!(Match::update("deployments/*").selects("a", &put));
        assert!(Match::writes().selects("a", &status));
        assert!(!Match::writes().selects("a", &request("GET", "/api/v1/pods")));
    }

    #[test]
    fn a_match_as_code_selects_what_it_selects() {
        let post = request("POST", "/v2.0/subnets");
        let code = Match::like("a", &post).nth(2).code();
        let wanted =
            r#"Match::any().verb(Verb::NonResource).client("a").http("POST", "/v2.0/subnets").nth(2)"#;
        assert_eq!(code, wanted);
    }

    #[test]
    fn a_match_reads_as_a_sentence() {
        let text = Match::update("deployments.apps/status").client("a").namespace("b").name("c").nth(3);
        assert_eq!(
            text.to_string(),
            "update deployments.apps/status of client a in namespace b, name c, number 3"
        );
        assert_eq!(Match::any().client("a").to_string(), "any request of client a");
    }
}
