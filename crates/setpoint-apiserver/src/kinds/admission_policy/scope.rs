//! What expressions of admission policies and match conditions can mention.

use std::collections::BTreeMap;

use crate::cel::{Kind, Object};

/// Where an expression stands.
pub(in crate::kinds) struct Scope {
    params: bool,
    /// The types of the variables so far, if the policy has some.
    pub(super) variables: Option<BTreeMap<String, Kind<Known>>>,
}

impl Scope {
    /// Without variables; with `params`, if there are some.
    pub(in crate::kinds) fn new(params: bool) -> Scope {
        Scope { params, variables: None }
    }

    pub(super) fn kinds(&self) -> Vec<(&'static str, Kind<Known>)> {
        let mut kinds = vec![
            ("object", Kind::Dyn),
            ("oldObject", Kind::Dyn),
            ("request", Kind::Object(Known::Request)),
            ("namespaceObject", Kind::Object(Known::Namespace)),
        ];
        if self.params {
            kinds.push(("params", Kind::Dyn));
        }
        if let Some(variables) = &self.variables {
            kinds.push(("variables", Kind::Object(Known::Variables(variables.clone()))));
        }
        kinds
    }
}

/// The type of a variable: of an expression that is neither a scalar nor a list or map of these, nothing is kept.
pub(super) fn of_variable(kind: Kind<Known>) -> Kind<Known> {
    match kind {
        Kind::List(item) => Kind::list(of_variable((*item).clone())),
        Kind::Map(entry) => Kind::map(of_variable(entry.0.clone()), of_variable(entry.1.clone())),
        Kind::Object(_) | Kind::Opaque(_) | Kind::Optional(_) | Kind::Type(_) => Kind::Dyn,
        scalar => scalar,
    }
}

/// The types that have fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    Request,
    GroupVersionKind,
    GroupVersionResource,
    UserInfo,
    Namespace,
    NamespaceMetadata,
    NamespaceSpec,
    NamespaceStatus,
    NamespaceCondition,
    Variables(BTreeMap<String, Kind<Known>>),
}

impl Object for Known {
    fn name(&self) -> String {
        let name = match self {
            Known::Request => "AdmissionRequest",
            Known::GroupVersionKind => "GroupVersionKind",
            Known::GroupVersionResource => "GroupVersionResource",
            Known::UserInfo => "UserInfo",
            Known::Namespace => "Namespace",
            Known::NamespaceMetadata => "NamespaceMetadata",
            Known::NamespaceSpec => "NamespaceSpec",
            Known::NamespaceStatus => "NamespaceStatus",
            Known::NamespaceCondition => "NamespaceCondition",
            Known::Variables(_) => "variables",
        };
        format!("kubernetes.{name}")
    }

    fn field(&self, name: &str) -> Option<Kind<Known>> {
        let texts = || Kind::list(Kind::String);
        Some(match (self, name) {
            (Known::Variables(variables), name) => variables.get(name)?.clone(),
            (Known::Request, "kind" | "requestKind") => Kind::Object(Known::GroupVersionKind),
            (Known::Request, "resource" | "requestResource") => Kind::Object(Known::GroupVersionResource),
            (Known::Request, "subResource" | "requestSubResource" | "name" | "namespace" | "operation")
            | (Known::GroupVersionKind, "group" | "version" | "kind")
            | (Known::GroupVersionResource, "group" | "version" | "resource")
            | (Known::UserInfo, "username" | "uid") => Kind::String,
            (Known::Request, "userInfo") => Kind::Object(Known::UserInfo),
            (Known::Request, "dryRun") => Kind::Bool,
            (Known::Request, "options") => Kind::Dyn,
            (Known::UserInfo, "groups") => texts(),
            (Known::UserInfo, "extra") => Kind::map(Kind::String, texts()),
            (Known::Namespace, "metadata") => Kind::Object(Known::NamespaceMetadata),
            (Known::Namespace, "spec") => Kind::Object(Known::NamespaceSpec),
            (Known::Namespace, "status") => Kind::Object(Known::NamespaceStatus),
            (Known::NamespaceMetadata, "name" | "generateName" | "namespace" | "UID" | "resourceVersion")
            | (Known::NamespaceStatus, "phase")
            | (Known::NamespaceCondition, "status" | "type" | "message" | "reason") => Kind::String,
            (Known::NamespaceMetadata, "labels" | "annotations") => Kind::map(Kind::String, Kind::String),
            (Known::NamespaceMetadata, "creationTimestamp" | "deletionTimestamp")
            | (Known::NamespaceCondition, "lastTransitionTime") => Kind::Timestamp,
            (Known::NamespaceMetadata, "deletionGracePeriodSeconds" | "generation") => Kind::Int,
            (Known::NamespaceMetadata | Known::NamespaceSpec, "finalizers") => texts(),
            (Known::NamespaceStatus, "conditions") => Kind::list(Kind::Object(Known::NamespaceCondition)),
            _ => return None,
        })
    }
}
