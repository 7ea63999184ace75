//! All stored roles and bindings, by the subjects that they are for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::rule::{Rule, or_default};
use crate::label_query;
use crate::resource::Registry;
use crate::selector::LabelSelector;
use crate::storage::{ListQuery, ReadError, Record, Storage, Watch};
use crate::user::User;

/// A name, and the namespace unless it is of the cluster.
type Place = (Option<Box<str>>, Box<str>);

/// The roles and bindings at one moment, and where to read what happened since.
#[derive(Default)]
pub(super) struct Index {
    roles: BTreeMap<Place, Role>,
    bindings: BTreeMap<Place, Binding>,
    /// Which bindings name a subject.
    by_subject: BTreeMap<Subject, BTreeSet<Place>>,
    watches: Option<[(Content, Watch); 4]>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (roles, bindings) = (self.roles.len(), self.bindings.len());
        f.debug_struct("Index").field("roles", &roles).field("bindings", &bindings).finish_non_exhaustive()
    }
}

/// What a collection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Roles,
    Bindings,
}

const COLLECTIONS: [(&str, Content); 4] = [
    ("clusterroles", Content::Roles),
    ("roles", Content::Roles),
    ("clusterrolebindings", Content::Bindings),
    ("rolebindings", Content::Bindings),
];

/// A role.
#[derive(Debug, Default)]
pub(super) struct Role {
    pub rules: Vec<Rule>,
    pub labels: BTreeMap<String, String>,
    /// The roles that it gathers its rules from, if it is made of others.
    pub selectors: Vec<LabelSelector>,
}

#[derive(Debug)]
struct Binding {
    subjects: Vec<(Subject, String)>,
    role: RoleRef,
}

/// A role as bindings name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct RoleRef {
    pub kind: String,
    pub name: String,
}

/// Somebody, as authentication knows them: a service account is a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    User(String),
    Group(String),
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredRole {
    metadata: StoredMeta,
    #[serde(deserialize_with = "or_default")]
    rules: Vec<Rule>,
    #[serde(deserialize_with = "or_default")]
    aggregation_rule: Aggregation,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredMeta {
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Aggregation {
    #[serde(deserialize_with = "or_default")]
    cluster_role_selectors: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredBinding {
    #[serde(deserialize_with = "or_default")]
    subjects: Vec<StoredSubject>,
    role_ref: RoleRef,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSubject {
    kind: String,
    name: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
}

impl StoredSubject {
    /// Whom it means in a binding of this namespace, and how a decision names it.
    fn resolve(self, namespace: Option<&str>) -> Option<(Subject, String)> {
        let StoredSubject { kind, name, namespace: own } = self;
        match kind.as_str() {
            "User" => Some((Subject::User(name.clone()), format!("User {name:?}"))),
            "Group" => Some((Subject::Group(name.clone()), format!("Group {name:?}"))),
            "ServiceAccount" => {
                let namespace = if own.is_empty() { namespace? } else { &own };
                let text = format!("ServiceAccount {:?}", format!("{name}/{namespace}"));
                Some((Subject::User(User::service_account_name(namespace, &name)), text))
            }
            _ => None,
        }
    }
}

/// Why a rule applies: a binding, and which of its subjects.
pub(super) struct Source<'a> {
    place: &'a Place,
    binding: &'a Binding,
    subject: &'a str,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            (None, name) => write!(f, "ClusterRoleBinding {name:?}")?,
            (Some(namespace), name) => write!(f, "RoleBinding {:?}", format!("{name}/{namespace}"))?,
        }
        let RoleRef { kind, name } = &self.binding.role;
        write!(f, " of {kind} {name:?} to {}", self.subject)
    }
}

impl Index {
    /// Whether nothing was committed since the last [`Index::follow`].
    pub(super) fn is_current(&self) -> bool {
        self.watches.as_ref().is_some_and(|watches| watches.iter().all(|(_, watch)| !watch.has_changed()))
    }

    /// Applies what was committed since the last time. False if there are gaps: the first time, and when so much has happened
    /// that history does not reach back. Then it has to be loaded again.
    pub(super) fn follow(&mut self) -> bool {
        let Some(mut watches) = self.watches.take() else { return false };
        for (content, watch) in &mut watches {
            loop {
                let Ok(batch) = watch.ready() else { return false };
                for event in &batch.events {
                    self.apply(*content, &event.record, event.deleted);
                }
                if !batch.more {
                    break;
                }
            }
        }
        self.watches = Some(watches);
        true
    }

    /// All roles and bindings as they are now.
    pub(super) async fn load(storage: &dyn Storage) -> Result<Index, ReadError> {
        let mut index = Index::default();
        let mut watches = Vec::with_capacity(COLLECTIONS.len());
        for (plural, content) in COLLECTIONS {
            let collection = Registry::built_in().expect(super::GROUP, "v1", plural).collection();
            let query = ListQuery::all(collection);
            let page = storage.list(&query).await?;
            for record in &page.records {
                index.apply(content, record, false);
            }
            watches.push((content, storage.watch(collection, page.revision)?));
        }
        index.watches = watches.try_into().ok();
        Ok(index)
    }

    fn apply(&mut self, content: Content, record: &Record, deleted: bool) {
        let place: Place = match record.path.split_once('/') {
            Some((namespace, name)) => (Some(namespace.into()), name.into()),
            None => (None, record.path.clone()),
        };
        match content {
            Content::Roles if deleted => drop(self.roles.remove(&place)),
            Content::Roles => drop(self.roles.insert(place, read_role(&record.value))),
            Content::Bindings => {
                self.unbind(&place);
                if !deleted {
                    self.bind(place, &record.value);
                }
            }
        }
    }

    fn unbind(&mut self, place: &Place) {
        let Some(binding) = self.bindings.remove(place) else { return };
        for (subject, _) in binding.subjects {
            if let Some(places) = self.by_subject.get_mut(&subject) {
                places.remove(place);
                if places.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
    }

    fn bind(&mut self, place: Place, value: &[u8]) {
        let stored: StoredBinding = serde_json::from_slice(value).unwrap_or_default();
        let namespace = place.0.as_deref();
        let subjects: Vec<_> = stored.subjects.into_iter().filter_map(|s| s.resolve(namespace)).collect();
        for (subject, _) in &subjects {
            self.by_subject.entry(subject.clone()).or_default().insert(place.clone());
        }
        self.bindings.insert(place, Binding { subjects, role: stored.role_ref });
    }

    /// Gives the visitor the rules of each binding that applies to the user in this namespace, or why there
    /// are none, until it has seen enough and says `false`.
    pub(super) fn visit(
        &self,
        user: &User,
        namespace: &str,
        mut visitor: impl FnMut(&Source<'_>, Result<&[Rule], String>) -> bool,
    ) {
        let subjects = std::iter::once(Subject::User(user.name.clone()))
            .chain(user.groups.iter().map(|group| Subject::Group(group.clone())));
        let subjects: BTreeSet<Subject> = subjects.collect();
        let applies = |place: &&Place| match &place.0 {
            None => true,
            Some(own) => **own == *namespace,
        };
        let named = subjects.iter().filter_map(|subject| self.by_subject.get(subject)).flatten();
        let places: BTreeSet<&Place> = named.filter(applies).collect();
        for place in places {
            let binding = &self.bindings[place];
            let text = binding.subjects.iter().find(|(subject, _)| subjects.contains(subject));
            let source = Source { place, binding, subject: text.map_or("", |(_, text)| text) };
            if !visitor(&source, self.rules_of(&binding.role, place.0.as_deref())) {
                return;
            }
        }
    }

    /// The rules of the role that a binding in this namespace names.
    pub(super) fn rules_of(&self, role: &RoleRef, namespace: Option<&str>) -> Result<&[Rule], String> {
        let RoleRef { kind, name } = role;
        let place = match kind.as_str() {
            "ClusterRole" => (None, name.as_str().into()),
            "Role" => (namespace.map(Into::into), name.as_str().into()),
            _ => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        match self.roles.get(&place) {
            Some(role) => Ok(&role.rules),
            None => Err(format!("{}.{} {name:?} not found", kind.to_lowercase(), super::GROUP)),
        }
    }

    /// The roles of the cluster, by name.
    pub(super) fn cluster_roles(&self) -> impl Iterator<Item = (&str, &Role)> {
        let roles = self.roles.iter().take_while(|((namespace, _), _)| namespace.is_none());
        roles.map(|((_, name), role)| (&**name, role))
    }
}

fn read_role(value: &[u8]) -> Role {
    let stored: StoredRole = serde_json::from_slice(value).unwrap_or_default();
    let selectors = stored.aggregation_rule.cluster_role_selectors.iter();
    Role {
        rules: stored.rules,
        labels: stored.metadata.labels,
        selectors: selectors
            .filter_map(|selector| LabelSelector::parse(&label_query::of(selector)).ok())
            .collect(),
    }
}
