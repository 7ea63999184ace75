//! Nobody grants more than they have: neither by what a role says, nor by whom it is bound to.

use serde_json::Value;

use super::index::{Index, RoleRef};
use super::rule::{Missing, Rule, missing, quoted};
use crate::authorize::{self, Attributes};
use crate::object::{self, metadata_mut};
use crate::request::ResourceRequest;
use crate::server::Core;
use crate::status::{Result, Status};

/// Whether the user may create this object, if it is a role or a binding.
pub(crate) async fn check_create(core: &Core, request: &ResourceRequest, object: &Value) -> Result<()> {
    check(core, request, object, None).await
}

/// The same for a change of it.
pub(crate) async fn check_update(
    core: &Core,
    request: &ResourceRequest,
    old: &Value,
    new: &Value,
) -> Result<()> {
    let resource = &request.resource;
    if resource.group() != super::GROUP || changes_only_ownership(old, new) {
        return Ok(());
    }
    check(core, request, new, Some(old)).await
}

async fn check(core: &Core, request: &ResourceRequest, object: &Value, old: Option<&Value>) -> Result<()> {
    let resource = &request.resource;
    if resource.group() != super::GROUP || authorize::is_master(&request.user) {
        return Ok(());
    }
    match resource.plural() {
        "roles" | "clusterroles" => role(core, request, object, old).await,
        "rolebindings" | "clusterrolebindings" => binding(core, request, object).await,
        _ => Ok(()),
    }
}

/// What the garbage collector changes grants nothing.
pub(crate) fn changes_only_ownership(old: &Value, new: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "selfLink"] {
            metadata_mut(&mut object).remove(field);
        }
        object
    };
    strip(old) == strip(new)
}

async fn role(core: &Core, request: &ResourceRequest, role: &Value, old: Option<&Value>) -> Result<()> {
    let escalate = Attributes {
        verb: "escalate".into(),
        group: super::GROUP.into(),
        resource: request.resource.plural().into(),
        namespace: request.namespace.clone().unwrap_or_default(),
        name: request.name.clone().unwrap_or_default(),
        ..Attributes::default()
    };
    if authorize::decide(core, &request.user, &escalate).await?.allowed {
        return Ok(());
    }
    let rules: Vec<Rule> = serde_json::from_value(role["rules"].clone()).unwrap_or_default();
    confirm(core, request, role, &rules).await?;
    let gathers = |role: &Value| {
        role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|all| !all.is_empty())
    };
    if (gathers(role) || old.is_some_and(gathers))
        && confirm(core, request, role, &Rule::full()).await.is_err()
    {
        // It could gather anything.
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Status::forbidden(request.resource.group_resource(), object::name(role), why));
    }
    Ok(())
}

async fn binding(core: &Core, request: &ResourceRequest, binding: &Value) -> Result<()> {
    let reference: RoleRef = serde_json::from_value(binding["roleRef"].clone()).unwrap_or_default();
    let namespace = request.namespace.as_deref();
    let resource = match reference.kind.as_str() {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        // Validation says what is wrong with it.
        _ => return Ok(()),
    };
    let bind = Attributes {
        verb: "bind".into(),
        group: super::GROUP.into(),
        resource: resource.into(),
        namespace: namespace.unwrap_or_default().into(),
        name: reference.name.clone(),
        ..Attributes::default()
    };
    if authorize::decide(core, &request.user, &bind).await?.allowed {
        return Ok(());
    }
    let rules_of = |index: &Index| index.rules_of(&reference, namespace).map(<[Rule]>::to_vec);
    match core.rbac.read(core, rules_of).await? {
        Ok(rules) => confirm(core, request, binding, &rules).await,
        // It is the role that is missing, but kube-apiserver says it so.
        Err(_) => Err(Status::not_found(request.resource.group_resource(), &reference.name)),
    }
}

/// Whether the user has all of these rights in the namespace of the request.
async fn confirm(core: &Core, request: &ResourceRequest, object: &Value, rules: &[Rule]) -> Result<()> {
    let user = &request.user;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let (owned, errors) = core.rbac.rules(core, user, namespace).await?;
    let why = match missing(&owned, rules) {
        Missing::Nothing => return Ok(()),
        Missing::TooMany => "the rules are too many to be checked".to_owned(),
        Missing::Rules(texts) => {
            let errors = errors.map(|why| format!("; resolution errors: [{why}]")).unwrap_or_default();
            format!(
                "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
                user.name,
                quoted(&user.groups),
                texts.join("\n")
            )
        }
    };
    Err(Status::forbidden(request.resource.group_resource(), object::name(object), &why))
}
