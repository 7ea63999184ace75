//! The parameters of a policy: objects that a binding refers to.

use std::sync::Arc;

use serde_json::Value;

use super::policy::Policy;
use crate::convert;
use crate::handlers::get::read;
use crate::label_query;
use crate::object;
use crate::resource::{Registry, Resource};
use crate::selector::LabelSelector;
use crate::server::Core;
use crate::status::Result;
use crate::storage::{ListQuery, Record};

/// No more objects than this are looked at for one binding.
const MAX_PARAMS: usize = 1000;

/// The objects, of which each is asked about once; one `None` if there are no parameters. The inner error says what is
/// wrong with the binding.
pub(super) async fn collect(
    core: &Core,
    policy: &Policy,
    reference: &Value,
    namespace: &str,
) -> Result<Result<Vec<Option<Value>>, String>> {
    let Some((version, kind)) = policy.param_kind.as_ref().filter(|_| !reference.is_null()) else {
        return Ok(Ok(vec![None]));
    };
    let Some(resource) = find(core, version, kind) else {
        return Ok(Err(format!("paramKind kind `{version}, Kind={kind}` not known")));
    };
    let own = reference["namespace"].as_str().filter(|own| !own.is_empty());
    let namespace = match (resource.is_namespaced(), own, namespace) {
        (false, Some(_), _) => {
            let why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
            return Ok(Err(why.to_owned()));
        }
        (false, None, _) => None,
        (true, Some(own), _) => Some(own),
        (true, None, "") => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Ok(Err(why.to_owned()));
        }
        (true, None, namespace) => Some(namespace),
    };
    let found = match reference["name"].as_str().filter(|name| !name.is_empty()) {
        Some(name) => read(core, &resource.key(namespace, name)).await?.into_iter().collect(),
        None => select(core, &resource, namespace, &reference["selector"]).await?,
    };
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Ok(Err(why.to_owned()));
    }
    let served = |record: Arc<Record>| {
        let stored = object::decode(&record.value, record.revision);
        Some(convert::to_served(&resource, stored))
    };
    Ok(Ok(found.into_iter().map(served).collect()))
}

fn find(core: &Core, version: &str, kind: &str) -> Option<Arc<Resource>> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let built_in = Registry::built_in().of_kind(group, version, kind);
    built_in.or_else(|| {
        let served = core.definitions.served();
        served.resources_of(group, version).find(|resource| resource.kind() == kind).cloned()
    })
}

async fn select(
    core: &Core,
    resource: &Resource,
    namespace: Option<&str>,
    selector: &Value,
) -> Result<Vec<Arc<Record>>> {
    let is_empty = selector.as_object().is_none_or(serde_json::Map::is_empty);
    let labels = if is_empty { String::new() } else { label_query::of(selector) };
    let labels = LabelSelector::parse(&labels)?;
    let query = ListQuery::all(resource.collection())
        .under(namespace.map_or_else(String::new, |namespace| format!("{namespace}/")));
    let page = core.storage.list(&query).await?;
    let selected = page.records.into_iter();
    let selected =
        selected.filter(|record| labels.matches(|key| record.attributes.label(&record.value, key)));
    Ok(selected.take(MAX_PARAMS).collect())
}
