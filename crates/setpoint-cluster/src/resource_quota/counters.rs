//! Counts the objects of kinds that a quota limits by number: `count/deployments.apps`. Only kinds that some quota names
//! are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint::discovery::{self, ServedResource};
use setpoint::kube::core::{DynamicObject, PartialObjectMeta};
use setpoint::kube::{self, Client};
use setpoint::{Deleted, HandlerFns, SharedInformer};
use setpoint_apiserver::quota::{Amounts, Counted};
use setpoint_env::Env;
use setpoint_kinds::Quantity;
use tokio::time::{Instant, timeout};

use super::releases::Releases;

type Metadata = PartialObjectMeta<DynamicObject>;
/// A group and a plural.
type Kind = (String, String);

/// How long the first list of a kind may take.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// How often the server is asked for its kinds: a version may be served no more, and another one instead.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// Why something cannot be counted.
#[derive(Debug, thiserror::Error)]
pub(super) enum CountError {
    #[error("cannot read the discovery of the server")]
    Kinds(#[source] kube::Error),
    #[error("{0} cannot be listed; their usage is unknown")]
    NotSynced(String),
}

pub(super) struct Counters {
    client: Client,
    env: Env,
    releases: Arc<Releases>,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    kinds: BTreeMap<Kind, Counter>,
    /// When the server was asked for its kinds.
    asked: Option<Instant>,
}

/// Counts the objects of one kind, in the version that the server had when it was asked.
struct Counter {
    version: String,
    informer: SharedInformer<Metadata>,
}

/// The kinds that a quota limits by nothing but their number.
fn kinds(hard: &Amounts) -> BTreeSet<Kind> {
    let kind = |name: &str| {
        let (plural, group) = match name.strip_prefix("count/") {
            Some(counted) => counted.split_once('.').unwrap_or((counted, "")),
            None => (name, ""),
        };
        let counted = Counted::of(group, plural)?;
        let is_meant = counted.is_number() && !counted.tracked(hard).is_empty();
        is_meant.then(|| (group.to_owned(), plural.to_owned()))
    };
    hard.names().filter_map(kind).collect()
}

impl Counters {
    pub(super) fn new(client: Client, env: Env, releases: Arc<Releases>) -> Arc<Counters> {
        Arc::new(Counters { client, env, releases, watched: Mutex::default() })
    }

    /// Puts the numbers of the kinds that a quota names into `used`. A kind that the server does not have has none.
    pub(super) async fn count(
        &self,
        quota: &Value,
        hard: &Amounts,
        namespace: &str,
        used: &mut Amounts,
    ) -> Result<(), CountError> {
        let kinds = kinds(hard);
        self.watch(&kinds).await?;
        for (group, plural) in kinds {
            let kind = (group.clone(), plural.clone());
            let informer = self.watched.lock().kinds.get(&kind).map(|counter| counter.informer.clone());
            let (Some(informer), Some(counted)) = (informer, Counted::of(&group, &plural)) else { continue };
            if timeout(SYNC_LIMIT, informer.wait_for_sync()).await.is_err() {
                return Err(CountError::NotSynced(plural));
            }
            let is_counted = counted.is_in_scope(quota, &Value::Null);
            let number = if is_counted { informer.lister().namespace(namespace).list().len() } else { 0 };
            let number = Quantity::whole_number(i64::try_from(number).unwrap_or(i64::MAX));
            counted.tracked(hard).iter().for_each(|name| used.set(name, number));
        }
        Ok(())
    }

    /// Watches kinds that are not watched yet, and those of which the server has another version now.
    async fn watch(&self, kinds: &BTreeSet<Kind>) -> Result<(), CountError> {
        let are_watched = {
            let mut watched = self.watched.lock();
            let now = self.env.instant();
            let is_fresh = watched.asked.is_some_and(|asked| now.duration_since(asked) < ASK_AGAIN);
            let are_watched = kinds.iter().all(|kind| watched.kinds.contains_key(kind));
            if is_fresh && are_watched {
                return Ok(());
            }
            // Others need not ask at the same time.
            watched.asked = Some(now);
            are_watched
        };
        let found = match discovery::served(&self.client).await {
            Ok(found) => found,
            // What is watched can be counted all the same.
            Err(error) if are_watched => {
                tracing::warn!(%error, "cannot read the discovery of the server; counting the versions known so far");
                return Ok(());
            }
            Err(error) => return Err(CountError::Kinds(error)),
        };
        let mut outdated = Vec::new();
        {
            let mut watched = self.watched.lock();
            for resource in found {
                let kind = (resource.api.group.clone(), resource.api.plural.clone());
                let known = watched.kinds.get(&kind).map(|counter| counter.version == resource.api.version);
                // Another worker may have been faster.
                let is_wanted = if known.is_some() { known == Some(false) } else { kinds.contains(&kind) };
                if is_wanted && resource.is_namespaced && resource.has("watch") {
                    let version = resource.api.version.clone();
                    let counter = Counter { version, informer: self.informer(&resource) };
                    outdated.extend(watched.kinds.insert(kind, counter));
                }
            }
        }
        for counter in outdated {
            counter.informer.shutdown().await;
        }
        Ok(())
    }

    fn informer(&self, resource: &ServedResource) -> SharedInformer<Metadata> {
        let informer =
            SharedInformer::dynamic_metadata(self.client.clone(), resource).env(self.env.clone()).build();
        let releases = self.releases.clone();
        let handler = HandlerFns::new().on_delete(move |gone: &Deleted<Metadata>| {
            releases.in_namespace(gone.object.key().namespace().unwrap_or_default());
        });
        informer.add_handler(handler).detach();
        informer.start();
        informer
    }

    /// Watches nothing that none of these quotas names.
    pub(super) async fn forget(&self, quotas: &[Arc<ResourceQuota>]) {
        let mut named = BTreeSet::new();
        for quota in quotas {
            let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
            let hard = hard.into_iter().flatten();
            let hard: Amounts = hard.map(|(name, amount)| (name.clone(), Quantity::of(&amount.0))).collect();
            named.extend(kinds(&hard));
        }
        let gone: Vec<Counter> = {
            let kinds = &mut self.watched.lock().kinds;
            let unnamed: Vec<Kind> = kinds.keys().filter(|kind| !named.contains(*kind)).cloned().collect();
            unnamed.iter().filter_map(|kind| kinds.remove(kind)).collect()
        };
        for counter in gone {
            counter.informer.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_known_by_their_names_in_quotas() {
        let hard = json!({
            "pods": "1", "count/pods": "1", "services": "1", "configmaps": "1", "count/secrets": "1",
            "count/deployments.apps": "1", "count/foos.example.com": "1", "requests.cpu": "1"
        });
        let found: Vec<String> = kinds(&Amounts::of(&hard))
            .into_iter()
            .map(|(group, plural)| format!("{plural}.{group}"))
            .collect();
        assert_eq!(found, ["configmaps.", "secrets.", "deployments.apps", "foos.example.com"]);
    }
}
