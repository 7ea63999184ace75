//! What admission is asked about.

use serde_json::{Value, json};
use setpoint_kinds::Verb;

use crate::object;
use crate::options::WriteOptions;
use crate::request::ResourceRequest;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// As rules and reviews spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// One question to admission: who does what to which object.
#[derive(Clone, Debug)]
pub(crate) struct Attributes<'a> {
    pub request: &'a ResourceRequest,
    pub operation: Operation,
    /// The object as it was; none on create.
    pub old: Option<&'a Value>,
    pub dry_run: bool,
    /// The options of the request, as an object.
    pub options: Value,
}

impl<'a> Attributes<'a> {
    /// A create or an update.
    pub(crate) fn write(
        request: &'a ResourceRequest,
        operation: Operation,
        old: Option<&'a Value>,
        options: &WriteOptions,
    ) -> Attributes<'a> {
        let kind = match (operation, request.verb) {
            (Operation::Create, _) => "CreateOptions",
            (_, Verb::Patch) => "PatchOptions",
            _ => "UpdateOptions",
        };
        let mut text = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(value) = request.query.get(name) {
                text[name] = value.into();
            }
        }
        if options.dry_run {
            text["dryRun"] = json!(["All"]);
        }
        Attributes { request, operation, old, dry_run: options.dry_run, options: text }
    }

    /// A delete.
    pub(crate) fn delete(request: &'a ResourceRequest, old: &'a Value, dry_run: bool) -> Attributes<'a> {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        Attributes { request, operation: Operation::Delete, old: Some(old), dry_run, options }
    }

    /// The name of the object; empty on a create that leaves it to the server.
    pub(crate) fn name<'o>(&'o self, object: Option<&'o Value>) -> &'o str {
        match self.request.name.as_deref() {
            Some(name) => name,
            None => object.or(self.old).map(object::name).unwrap_or_default(),
        }
    }

    /// The namespace of the request; empty for objects of the cluster.
    pub(crate) fn namespace(&self) -> &str {
        self.request.namespace.as_deref().unwrap_or_default()
    }

    /// The subresource; empty for the object itself.
    pub(crate) fn subresource(&self) -> &str {
        self.request.subresource.as_deref().unwrap_or_default()
    }
}
