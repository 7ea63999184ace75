//! Cluster roles that are made of others.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::Value;

use super::index::Index;
use super::rule::Rule;
use crate::background::Upkeep;
use crate::bounds;
use crate::contention;
use crate::object;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::Result;
use crate::storage::Action;

/// A role may be made of roles that are made of others. A chain that is longer than this settles with the
/// next change of any role.
const PASSES: usize = 8;

/// Brings the rules of every aggregated role up to date, as kube-controller-manager does; here it is done
/// before the change of a role is answered, so it also happens where no controllers run.
pub(crate) async fn gather(core: &Core) -> Result<()> {
    for _ in 0..PASSES {
        let wanted = core.rbac.read(core, outdated).await?;
        if wanted.is_empty() {
            return Ok(());
        }
        for (name, rules) in wanted {
            write(core, &name, &rules).await?;
        }
    }
    tracing::warn!("aggregated ClusterRoles have not converged");
    Ok(())
}

/// What is done in the background: what a request did not finish, because it failed, or because its time was over.
pub(crate) fn upkeep() -> Upkeep {
    Upkeep {
        collection: Arc::clone(resource().collection()),
        wake: Arc::default(),
        tend: |core| tend(core).boxed(),
    }
}

async fn tend(core: &Core) -> Result<bool> {
    // Before that nobody has asked for roles, and whoever asks first gathers them.
    if core.rbac.is_prepared.initialized() {
        gather(core).await?;
    }
    Ok(false)
}

fn resource() -> &'static Arc<Resource> {
    Registry::built_in().expect(super::GROUP, "v1", "clusterroles")
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
    contention::swap(core, resource().key(None, name), |record| {
        let mut role = object::decode(&record.value, record.revision);
        role["rules"] = serde_json::to_value(rules).unwrap_or(Value::Null);
        let value = object::encode(&role);
        if let Err(exceeded) = bounds::check_stored(&value, Some(&record.value)) {
            tracing::warn!(role = name, %exceeded, "an aggregated ClusterRole keeps its old rules: the new ones are too large");
            return None;
        }
        Some(Action::Put { value, ttl: None })
    })
    .await
}
