//! Cluster roles that are made of others.

use std::sync::Weak;
use std::time::Duration;

use serde_json::Value;

use super::index::Index;
use super::rule::Rule;
use crate::bounds;
use crate::contention::Attempts;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;
use crate::storage::{Action, Change, Expect, Watch};

/// A role may be made of roles that are made of others. A chain that is longer than this settles with the
/// next change of any role.
const PASSES: usize = 8;
/// How long the background waits before it tries again what failed.
const RETRY: Duration = Duration::from_secs(1);

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

/// Does in the background what a request did not finish: because it failed, or because its time was over. It lasts as long
/// as the server, and does not keep it alive.
pub(crate) async fn keep(core: Weak<Core>) {
    let Some(mut watch) = core.upgrade().and_then(|core| changes(&core)) else { return };
    let mut unfinished = false;
    loop {
        let pause = async {
            if unfinished {
                tokio::time::sleep(RETRY).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = watch.changed() => {}
            () = pause => {}
        }
        let Some(running) = core.upgrade() else { return };
        // What has changed is read by the index; the place in the history only has to move on.
        if watch.ready().is_err() {
            let Some(newer) = changes(&running) else { return };
            watch = newer;
        }
        // Before that nobody has asked for roles, and whoever asks first gathers them.
        if !running.rbac.is_prepared.initialized() {
            continue;
        }
        let gathered = gather(&running).await;
        unfinished = gathered.is_err();
        if let Err(error) = gathered {
            tracing::warn!(%error, "aggregated cluster roles could not be brought up to date");
        }
    }
}

/// Changes of cluster roles from now on.
fn changes(core: &Core) -> Option<Watch> {
    let resource = Registry::built_in().expect(super::GROUP, "v1", "clusterroles");
    core.storage.watch(resource.collection(), core.storage.revision()).ok()
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
    let mut attempts = Attempts::of_server(core, key.clone());
    let mut current = attempts.first().await?;
    while let Some(record) = current {
        let mut role = object::decode(&record.value, record.revision);
        role["rules"] = serde_json::to_value(rules).unwrap_or(Value::Null);
        let value = object::encode(&role);
        if let Err(exceeded) = bounds::check_stored(&value, Some(&record.value)) {
            tracing::warn!(role = name, %exceeded, "an aggregated cluster role keeps its rules");
            return Ok(());
        }
        let action = Action::Put { value, expires: None };
        let change = Change { key: key.clone(), expect: Expect::Revision(record.revision), action };
        match core.storage.commit(change).await {
            Ok(_) => return Ok(()),
            Err(error) => error.into_current()?,
        };
        current = attempts.next().await?;
    }
    Ok(())
}
