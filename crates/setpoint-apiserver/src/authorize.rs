//! Who may do what.

use crate::status::{GroupResource, Result, Status};
use crate::user::User;

/// Members may do everything.
const MASTERS: &str = "system:masters";

/// What somebody wants to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// For requests that are not about a resource.
    pub path: String,
}

/// Whether the user may do it. Until there are roles, administrators may do everything, others nothing.
pub(crate) fn allows(user: &User, _attributes: &Attributes) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// The same as a result: 403 in kube-apiserver's words.
pub(crate) fn authorize(user: &User, attributes: &Attributes) -> Result<()> {
    if allows(user, attributes) {
        return Ok(());
    }
    let Attributes { verb, group, resource, subresource, namespace, name, path } = attributes;
    if resource.is_empty() {
        let why = format!("User {:?} cannot {verb} path {path:?}", user.name);
        return Err(Status::forbidden(GroupResource { group: "", resource: "" }, "", &why));
    }
    let what = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let scope = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = format!("User {:?} cannot {verb} resource {what:?} in API group {group:?} {scope}", user.name);
    Err(Status::forbidden(GroupResource { group, resource }, name, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_what_and_where() {
        let attributes = Attributes {
            verb: "list".into(),
            resource: "pods".into(),
            namespace: "default".into(),
            ..Attributes::default()
        };
        let status = authorize(&User::new("jane", ["developers"]), &attributes).unwrap_err();
        assert_eq!(
            status.message,
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the \
             namespace \"default\""
        );
        assert!(authorize(&User::admin(), &attributes).is_ok());
    }
}
