//! Cluster roles that are made of others.

use std::sync::Arc;

use serde_json::Value;

use super::index::Index;
use super::rule::Rule;
use crate::bounds;
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;
use crate::storage::{Action, Change, Expect};

/// A role may be made of roles that are made of others. A chain that is longer than this settles with the
/// next change of any role.
const PASSES: usize = 8;

/// Brings the rules of every aggregated role up to date, as kube-controller-manager does; here it is done
/// before the change of a role is answered, so it also happens where no controllers run.
pub(crate) async fn gather(core: &Core) -> Result<()> {
    for _ in 0..PASSES {
        let wanted = outdated(&*core.rbac.read(core)?);
        if wanted.is_empty() {
            return Ok(());
        }
        for (name, rules) in wanted {
            write(core, &name, &rules).await?;
        }
    }
    tracing::warn!("aggregated cluster roles have not settled");
    Ok(())
}

/// The aggregated roles whose rules are not what they should be.
fn outdated(index: &Index) -> Vec<(String, Vec<Rule>)> {
    let aggregated = index.cluster_roles().filter(|(_, role)| !role.selectors.is_empty());
    let mut outdated = Vec::new();
    for (name, role) in aggregated {
        let mut rules: Vec<Rule> = Vec::new();
        for selector in &role.selectors {
            let selected = index.cluster_roles().filter(|(other, candidate)| {
                *other != name && selector.matches(|key| candidate.labels.get(key).map(String::as_str))
            });
            for rule in selected.flat_map(|(_, role)| &role.rules) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        if rules != role.rules {
            outdated.push((name.to_owned(), rules));
        }
    }
    outdated
}

async fn write(core: &Core, name: &str, rules: &[Rule]) -> Result<()> {
    let resource = Registry::built_in().expect(super::GROUP, "v1", "clusterroles");
    let key = resource.key(None, name);
    let Some(record) = read(core, &key).await? else { return Ok(()) };
    let mut role = object::decode(&record.value, record.revision);
    role["rules"] = serde_json::to_value(rules).unwrap_or(Value::Null);
    let value = object::encode(&role);
    if let Err(exceeded) = bounds::check_stored(&value, Some(&record.value)) {
        tracing::warn!(role = name, %exceeded, "an aggregated cluster role keeps its rules");
        return Ok(());
    }
    let action = Action::Put { value, expires: None };
    let change = Change { key, expect: Expect::Revision(record.revision), action };
    match core.storage.commit(change).await {
        Ok(_) => Ok(()),
        // Somebody has changed it meanwhile: the next pass looks again.
        Err(error) => Ok(error.into_current().map(|_: Option<Arc<_>>| ())?),
    }
}
