//! The most that each node has used: a kind whose objects this program keeps in memory, with a change feed of its own. Others list
//! and watch them, and a watch that was cut off goes on where it was.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::Api;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint_apiserver::extension::{Asked, Change, Changes, Failure, Listed, Resource, Verbs};
use setpoint_env::Env;
use setpoint_env::watch;

use crate::alarms::{self, Alarm};
use crate::metrics::{NodeMetrics, Nodes, millicpu};

/// How often is looked.
const INTERVAL: Duration = Duration::from_secs(5);
/// How many changes are kept for watches that resume. A client that has missed more lists again.
const KEPT: usize = 1024;

/// The most that a node has used.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Peak {
    /// Its name is that of the node.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// How much of a processor.
    pub cpu: String,
    /// When that was.
    pub seen: String,
}

impl kube::Resource for Peak {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Peak".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "peaks.example.com".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "peaks".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// All peaks, and how they came to be. Clones are handles on the same.
#[derive(Clone, Debug)]
pub struct Peaks {
    state: Arc<Mutex<State>>,
    /// The newest version, for those who wait.
    newest: watch::Sender<u64>,
    env: Env,
}

#[derive(Debug)]
struct State {
    peaks: BTreeMap<String, Peak>,
    /// Change `n` has the version `forgotten + 1 + n`.
    changes: VecDeque<Change<Peak>>,
    /// Everything up to this version is forgotten.
    forgotten: u64,
}

impl State {
    fn version(&self) -> u64 {
        self.forgotten.saturating_add(self.changes.len() as u64)
    }

    /// The change after a version; none if there is none yet, and an error if it is not known any more.
    fn after(&self, version: u64) -> Result<Option<&Change<Peak>>, Failure> {
        let at = version.checked_sub(self.forgotten);
        let at = at.ok_or_else(|| {
            Failure::expired(format!("too old resource version: {version} ({})", self.forgotten))
        })?;
        Ok(usize::try_from(at).ok().and_then(|at| self.changes.get(at)))
    }
}

impl Peaks {
    /// None so far. Versions begin with the time, so that no client of an earlier run takes them for those that it knows.
    pub fn new(env: Env) -> Peaks {
        let begin = u64::try_from(env.now().as_microsecond()).unwrap_or(1);
        let state = State { peaks: BTreeMap::new(), changes: VecDeque::new(), forgotten: begin };
        Peaks { state: Arc::new(Mutex::new(state)), newest: watch::Sender::new(begin), env }
    }

    fn all(&self) -> Vec<Peak> {
        self.state().peaks.values().cloned().collect()
    }

    /// Nothing that is locked can panic; and if it could, what is there is still whole.
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a node uses; whether it is more than ever before.
    pub fn see(&self, metrics: &NodeMetrics) -> bool {
        let name = metrics.name_any();
        let mut state = self.state();
        let old = state.peaks.get(&name).cloned();
        let cpu = millicpu(&metrics.usage);
        if old.as_ref().is_some_and(|old| old.cpu.trim_end_matches('m').parse::<u64>().unwrap_or(0) >= cpu) {
            return false;
        }
        let version = state.version().saturating_add(1);
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            labels: metrics.metadata.labels.clone(),
            resource_version: Some(version.to_string()),
            ..old.as_ref().map_or_else(|| self.identity(), |old| old.metadata.clone())
        };
        let new = Peak { metadata, cpu: format!("{cpu}m"), seen: format!("{:.0}", self.env.now()) };
        state.peaks.insert(name, new.clone());
        state.changes.push_back(match old {
            Some(old) => Change::Modified { old, new },
            None => Change::Added(new),
        });
        if state.changes.len() > KEPT {
            state.changes.pop_front();
            state.forgotten = state.forgotten.saturating_add(1);
        }
        drop(state);
        self.newest.send_replace(version);
        true
    }

    /// What tells an object from others of its name.
    fn identity(&self) -> ObjectMeta {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.env.now());
        ObjectMeta { uid: Some(self.env.uuid()), creation_timestamp: Some(time), ..ObjectMeta::default() }
    }
}

impl Resource for Peaks {
    type Object = Peak;
    const VERBS: Verbs = Verbs::READ.watch();

    async fn list(&self, _asked: &Asked) -> Result<Listed<Peak>, Failure> {
        let state = self.state();
        Ok(Listed::at(state.version(), state.peaks.values().cloned().collect()))
    }

    fn watch(&self, _asked: &Asked, after: u64) -> Changes<Peak> {
        let begin = Some((self.clone(), self.newest.subscribe(), after));
        stream::unfold(begin, |watch| async move {
            let (peaks, mut newest, after) = watch?;
            loop {
                // Before it is looked: what comes later wakes this up.
                newest.borrow_and_update();
                match peaks.state().after(after).map(Option::<&_>::cloned) {
                    Err(expired) => return Some((Err(expired), None)),
                    Ok(Some(change)) => {
                        let next = after.saturating_add(1);
                        return Some((Ok(change), Some((peaks.clone(), newest, next))));
                    }
                    Ok(None) => {}
                }
                newest.changed().await.ok()?;
            }
        })
        .boxed()
    }
}

/// Looks again and again what nodes use, and whether that raises alarms, for as long as it is polled.
pub async fn follow(peaks: &Peaks, nodes: &Nodes, alarms: &Api<Alarm>, asked: &Asked) {
    loop {
        match nodes.list(asked).await {
            Ok(all) => {
                for metrics in &all.items {
                    if peaks.see(metrics) {
                        tracing::info!(node = metrics.name_any(), "a new peak");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the nodes could not be measured"),
        }
        if let Err(error) = alarms::raise(alarms, &peaks.all()).await {
            tracing::warn!(%error, "the alarms could not be raised");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(node: &str, millicpu: u64) -> NodeMetrics {
        NodeMetrics {
            metadata: ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() },
            timestamp: String::new(),
            window: String::new(),
            usage: [("cpu".to_owned(), format!("{millicpu}m"))].into(),
        }
    }

    #[tokio::test]
    async fn a_watch_resumes_where_it_was_and_is_told_when_it_cannot() {
        let (peaks, asked) = (Peaks::new(Env::seeded(1)), Asked::by(setpoint_apiserver::User::admin()));
        let begin = peaks.list(&asked).await.unwrap().version.unwrap();
        assert!(
            peaks.see(&metrics("a", 100)) && peaks.see(&metrics("a", 200)) && !peaks.see(&metrics("a", 150))
        );
        let mut watch = peaks.watch(&asked, begin);
        let Some(Ok(Change::Added(first))) = watch.next().await else { panic!("it is new") };
        drop(watch);
        let seen = first.metadata.resource_version.unwrap().parse().unwrap();
        let mut again = peaks.watch(&asked, seen);
        let Some(Ok(Change::Modified { old, new })) = again.next().await else { panic!("it has grown") };
        assert_eq!((old.cpu.as_str(), new.cpu.as_str()), ("100m", "200m"));
        assert_eq!(old.metadata.uid, new.metadata.uid);
        for more in 0..KEPT as u64 {
            peaks.see(&metrics("a", 1000 + more));
        }
        let mut late = peaks.watch(&asked, begin);
        assert!(matches!(late.next().await, Some(Err(_))), "it has to list again");
        assert!(late.next().await.is_none());
        assert!(peaks.watch(&asked, seen + 1).next().await.is_some_and(|change| change.is_ok()));
    }
}
