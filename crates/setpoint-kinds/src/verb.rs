//! What a request does.

/// What can be done with the objects of a resource.
///
/// ```
/// use setpoint_kinds::{Verb, table};
///
/// let pods = table().resource("", "v1", "pods").unwrap();
/// assert!(pods.has_verb(Verb::DeleteCollection.as_str()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one by its name.
    Get,
    /// Read all.
    List,
    /// Follow their changes.
    Watch,
    /// Make one.
    Create,
    /// Replace one.
    Update,
    /// Change part of one.
    Patch,
    /// Delete one.
    Delete,
    /// Delete all that match.
    DeleteCollection,
}

impl Verb {
    /// As discovery, RBAC, audit and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it changes something.
    pub fn is_write(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}
