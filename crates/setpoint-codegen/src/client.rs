//! CRDs → a typed clientset, listers and informers, with the look of code-generator's.

mod render;

use crate::definition::Definition;
use crate::error::Error;
use crate::types::{Taken, names};

/// A kind of the clientset, and its Rust type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKind {
    /// `samplecontroller.k8s.io`; empty for the core group.
    pub group: String,
    /// `v1alpha1`
    pub version: String,
    /// `foos`
    pub plural: String,
    /// The path of its type: `crate::api::v1alpha1::Foo`.
    pub path: String,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

/// Generates the module of a clientset, for several groups and versions at once.
///
/// ```
/// # fn main() -> Result<(), setpoint_codegen::Error> {
/// use setpoint_codegen::{ClientKind, Clientset};
///
/// let foos: ClientKind = "samplecontroller.k8s.io/v1alpha1/foos=crate::api::Foo".parse()?;
/// let code = Clientset::new().kind(foos).render()?;
/// assert!(code.contains("pub fn samplecontroller_v1alpha1(&self) -> SamplecontrollerV1alpha1 {"));
/// assert!(code.contains("pub fn foos(&self, namespace: &str) -> Api<Foo> {"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Clientset {
    kinds: Vec<ClientKind>,
}

/// A group in a version, with the names that it has in code.
struct Group {
    /// `samplecontroller.k8s.io/v1alpha1`
    label: String,
    /// `samplecontroller_v1alpha1`
    method: String,
    /// `SamplecontrollerV1alpha1`
    class: String,
    kinds: Vec<Named>,
}

/// A kind, with the names that it has in code.
struct Named {
    kind: ClientKind,
    /// `foos`
    method: String,
    /// `Foo`, or the whole path if another kind has that name too.
    class: String,
    /// `FooLister`
    lister: String,
}

impl Clientset {
    /// An empty clientset.
    pub fn new() -> Clientset {
        Clientset::default()
    }

    /// Adds a kind.
    pub fn kind(mut self, kind: ClientKind) -> Clientset {
        self.kinds.push(kind);
        self
    }

    /// Adds every served version of these CRDs, whose types [`Types`](crate::Types) wrote into the module `types`.
    pub fn definitions(mut self, definitions: &[Definition], types: &str) -> Clientset {
        let places = crate::types::modules(definitions, None);
        for (definition, version, module) in places {
            let module = module.map(|name| format!("::{name}")).unwrap_or_default();
            let kind = names::escape(&names::root_name(&definition.names.kind));
            self.kinds.push(ClientKind {
                group: definition.group.clone(),
                version: version.name.clone(),
                plural: definition.names.plural.clone(),
                path: format!("{types}{module}::{kind}"),
                is_namespaced: definition.is_namespaced,
            });
        }
        self
    }

    /// The code of the module.
    pub fn render(&self) -> Result<String, Error> {
        let mut kinds = self.kinds.clone();
        kinds.sort_by_key(|kind| (kind.group.clone(), kind.version.clone(), kind.plural.clone()));
        for pair in kinds.windows(2) {
            let same = |kind: &ClientKind| (kind.group.clone(), kind.version.clone(), kind.plural.clone());
            if same(&pair[0]) == same(&pair[1]) {
                let ClientKind { group, version, plural, .. } = &pair[0];
                return Err(Error::new(format!("{group}/{version}/{plural}"), "is there twice"));
            }
        }
        if kinds.is_empty() {
            return Err(Error::new("", "there is no kind to make a client for"));
        }
        Ok(render::module(&groups(&kinds)))
    }
}

impl std::str::FromStr for ClientKind {
    type Err = Error;

    /// `GROUP/VERSION/PLURAL=RUST::PATH`, and `:cluster` after the plural if it has no namespaces.
    fn from_str(text: &str) -> Result<ClientKind, Error> {
        let wrong = || Error::new(text, "must be GROUP/VERSION/PLURAL[:cluster]=RUST::PATH");
        let (resource, path) = text.split_once('=').ok_or_else(wrong)?;
        let (resource, is_namespaced) = match resource.strip_suffix(":cluster") {
            Some(resource) => (resource, false),
            None => (resource, true),
        };
        let mut parts = resource.rsplitn(3, '/');
        let (plural, version) = (parts.next().ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
        let group = parts.next().unwrap_or_default();
        let is_word = |part: &str| {
            let part = part.strip_prefix("r#").unwrap_or(part);
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let is_label = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
        if plural.is_empty()
            || version.is_empty()
            || !path.split("::").all(is_word)
            || ![plural, version, group].into_iter().all(is_label)
        {
            return Err(wrong());
        }
        let own = |text: &str| text.to_owned();
        Ok(ClientKind {
            group: own(group),
            version: own(version),
            plural: own(plural),
            path: own(path),
            is_namespaced,
        })
    }
}

fn groups(kinds: &[ClientKind]) -> Vec<Group> {
    let short = |group: &str| match group.split('.').next() {
        None | Some("") => "core".to_owned(),
        Some(first) => first.to_owned(),
    };
    let mut names_of_groups: Vec<&str> = kinds.iter().map(|kind| kind.group.as_str()).collect();
    names_of_groups.dedup();
    let is_clear =
        |group: &str| names_of_groups.iter().filter(|other| short(other) == short(group)).count() == 1;
    let mut classes = Taken::types();
    ["Api", "Client", "Clientset", "SharedInformerFactory"].iter().for_each(|name| drop(classes.take(name)));
    let mut types = Taken::types();
    let mut groups: Vec<Group> = Vec::new();
    for kind in kinds {
        let label = if kind.group.is_empty() {
            kind.version.clone()
        } else {
            format!("{}/{}", kind.group, kind.version)
        };
        if groups.last().is_none_or(|group| group.label != label) {
            let name = if is_clear(&kind.group) { short(&kind.group) } else { kind.group.clone() };
            let name = format!("{name}_{}", kind.version);
            let (method, class) = (names::snake(&name), classes.take(&names::pascal(&name)));
            groups.push(Group { label, method, class, kinds: Vec::new() });
        }
        let last = kind.path.rsplit("::").next().unwrap_or_default();
        let is_taken = types.take(last) != last
            || kinds.iter().filter(|other| other.path.ends_with(&format!("::{last}"))).count() > 1;
        let class = if is_taken || !kind.path.contains("::") { kind.path.clone() } else { last.to_owned() };
        let lister = format!("{}Lister", last.trim_start_matches("r#"));
        let method = names::escape(&names::snake(&kind.plural));
        if let Some(group) = groups.last_mut() {
            group.kinds.push(Named { kind: kind.clone(), method, class, lister });
        }
    }
    groups
}
