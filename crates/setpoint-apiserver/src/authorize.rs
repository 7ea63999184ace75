//! Who may do what.

use crate::rbac::Decision;
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
use crate::user::User;

/// Members may do everything, whatever roles say.
const MASTERS: &str = "system:masters";

/// Decides what users may do. Members of `system:masters` may do everything in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authorization {
    /// Roles and their bindings.
    #[default]
    Rbac,
    /// Every authenticated user may do everything.
    AlwaysAllow,
    /// Nobody else may do anything.
    AlwaysDeny,
}

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
    pub path: Option<String>,
}

/// Whether the user is one of those for whom there are no rules.
pub(crate) fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// Whether the user may do it, and why.
pub(crate) async fn decide(core: &Core, user: &User, attributes: &Attributes) -> Result<Decision> {
    if is_master(user) {
        return Ok(Decision { allowed: true, reason: String::new() });
    }
    if let Some(delegated) = &core.delegated {
        return delegated.decide(user, attributes).await;
    }
    match core.authorization {
        Authorization::Rbac => core.rbac.decide(core, user, attributes).await,
        Authorization::AlwaysAllow => Ok(Decision { allowed: true, reason: String::new() }),
        Authorization::AlwaysDeny => {
            Ok(Decision { allowed: false, reason: "Everything is forbidden.".to_owned() })
        }
    }
}

/// The same as a result: 403 in kube-apiserver's words.
pub(crate) async fn authorize(core: &Core, user: &User, attributes: &Attributes) -> Result<()> {
    let Decision { allowed, reason } = decide(core, user, attributes).await?;
    if allowed { Ok(()) } else { Err(refusal(user, attributes, &reason)) }
}

/// 403 in kube-apiserver's words.
pub(crate) fn refusal(user: &User, attributes: &Attributes, reason: &str) -> Status {
    let Attributes { verb, group, resource, subresource, namespace, name, path } = attributes;
    let what = match path {
        Some(path) => format!("path {path:?}"),
        None => {
            let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
            let scope = match namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            format!("resource {:?} in API group {group:?} {scope}", format!("{resource}{part}"))
        }
    };
    // Not even a browser shall take an error for a page.
    let said = format!("User {:?} cannot {verb} {what}", user.name);
    let said = said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let why = if reason.is_empty() { said } else { format!("{said}: {reason}") };
    Status::forbidden(GroupResource { group, resource }, name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_what_and_where() {
        let jane = User::new("jane", ["developers"]);
        let pods = Attributes {
            verb: "list".into(),
            resource: "pods".into(),
            namespace: "default".into(),
            ..Attributes::default()
        };
        assert_eq!(
            refusal(&jane, &pods, "").message,
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the \
             namespace \"default\""
        );
        let path = Attributes { verb: "get".into(), path: Some("/<b>".into()), ..Attributes::default() };
        assert_eq!(
            refusal(&jane, &path, "RBAC: no").message,
            "forbidden: User \"jane\" cannot get path \"/&lt;b&gt;\": RBAC: no"
        );
    }
}
