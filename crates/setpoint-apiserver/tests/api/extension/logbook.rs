//! A kind whose objects its author keeps, with a change feed of the author's own, in two versions.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint_apiserver::extension::{
    Asked, Call, Change, Changes, Failure, Invalid, Kind, Listed, Resource, Subresource, Verbs,
};
use setpoint_env::watch;
use setpoint_env::{Env, Task};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How many changes are known at most.
pub(crate) const KEPT: usize = 5;

/// What was seen at sea.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[schemars(skip)]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: EntrySpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntrySpec {
    /// What it was.
    pub(crate) what: String,
    /// How many knots the wind had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) knots: Option<u8>,
}

/// The same as it was written before: with everything in one line.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub(crate) struct OldEntry {
    #[schemars(skip)]
    pub(crate) metadata: ObjectMeta,
    /// `WHAT@KNOTS`.
    pub(crate) line: String,
}

super::kind!(Entry, "Entry", "v1", "entries", kube::core::NamespaceResourceScope);
super::kind!(OldEntry, "Entry", "v1beta1", "entries", kube::core::NamespaceResourceScope);

impl From<Entry> for OldEntry {
    fn from(entry: Entry) -> OldEntry {
        let line = format!("{}@{}", entry.spec.what, entry.spec.knots.unwrap_or(0));
        OldEntry { metadata: entry.metadata, line }
    }
}

impl From<OldEntry> for Entry {
    fn from(old: OldEntry) -> Entry {
        let (what, knots) = old.line.split_once('@').unwrap_or((&old.line, "0"));
        let spec = EntrySpec { what: what.to_owned(), knots: knots.parse().ok() };
        Entry { metadata: old.metadata, spec }
    }
}

/// Where entries are: in memory, with the last changes.
#[derive(Clone)]
pub(crate) struct Logbook {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
}

struct State {
    entries: BTreeMap<(Option<String>, String), Entry>,
    changes: VecDeque<(u64, Change<Entry>)>,
    /// Everything up to here is forgotten.
    forgotten: u64,
    version: u64,
}

impl Default for State {
    /// Version zero would be none.
    fn default() -> State {
        State { entries: BTreeMap::new(), changes: VecDeque::new(), forgotten: 1, version: 1 }
    }
}

fn key(entry: &Entry) -> (Option<String>, String) {
    (entry.metadata.namespace.clone(), entry.metadata.name.clone().unwrap_or_default())
}

impl Logbook {
    pub(crate) fn new() -> Logbook {
        Logbook { state: Arc::default(), version: watch::Sender::new(1) }
    }

    pub(crate) fn kind(&self, env: &Env) -> Kind<Entry> {
        let tasks: Arc<Mutex<Vec<Task<()>>>> = Arc::default();
        let env = env.clone();
        Kind::made(self.clone())
            .column("What", "string", ".spec.what")
            .selectable(".spec.what")
            .converted::<OldEntry>()
            .column("Line", "string", ".line")
            .defaults(|entry| {
                entry.spec.knots.get_or_insert(7);
            })
            .validation(|entry, old| {
                let mut problems = Vec::new();
                if entry.spec.what.is_empty() {
                    problems.push(Invalid::required("spec.what", "an entry says something"));
                }
                if old.is_some_and(|old| old.spec.what != entry.spec.what) {
                    problems.push(Invalid::forbidden("spec.what", "what was seen was seen"));
                }
                problems
            })
            .subresource(Subresource::new("log", |call: Call| async move {
                let line =
                    format!("{} of {:?} for {}\n", call.name, call.asked.namespace, call.asked.user.name);
                let lines = stream::iter([line]).chain(stream::pending());
                let frames = lines.map(|line| Ok::<_, std::io::Error>(Frame::data(Bytes::from(line))));
                Ok(Response::new(StreamBody::new(frames)))
            }))
            .subresource(
                Subresource::new("attach", move |mut call: Call| {
                    let upgrade = call.upgrade();
                    let (env, tasks) = (env.clone(), Arc::clone(&tasks));
                    async move {
                        let upgrade =
                            upgrade.ok_or_else(|| Failure::bad_request("upgrade the connection"))?;
                        tasks.lock().push(env.spawn(async move {
                            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
                            let mut buffer = [0; 64];
                            while let Ok(n @ 1..) = io.read(&mut buffer).await {
                                io.write_all(&buffer[..n].to_ascii_uppercase()).await.unwrap();
                            }
                        }));
                        let switch = Response::builder().status(101).header("connection", "Upgrade");
                        let body = http_body_util::Empty::<Bytes>::new();
                        Ok(switch.header("upgrade", "echo").body(body).unwrap())
                    }
                })
                .methods([Method::GET, Method::POST])
                .kind("EntryAttachOptions"),
            )
    }

    /// Makes a change: what is there before, if the version is still that one, and what is there then.
    fn change(
        &self,
        mut entry: Entry,
        make: impl FnOnce(Option<Entry>, &mut Entry) -> Result<(Change<Entry>, bool), Failure>,
    ) -> Result<Entry, Failure> {
        let mut state = self.state.lock();
        let old = state.entries.get(&key(&entry)).cloned();
        let version = state.version + 1;
        let wanted = entry.metadata.resource_version.replace(version.to_string());
        if let (Some(wanted), Some(old)) = (&wanted, &old)
            && old.metadata.resource_version.as_ref() != Some(wanted)
        {
            return Err(Failure::conflict("it has changed"));
        }
        let (change, stays) = make(old, &mut entry)?;
        if stays {
            state.entries.insert(key(&entry), entry.clone());
        } else {
            state.entries.remove(&key(&entry));
        }
        state.version = version;
        state.changes.push_back((version, change));
        if state.changes.len() > KEPT {
            state.forgotten = state.changes.pop_front().map_or(0, |(version, _)| version);
        }
        drop(state);
        self.version.send_replace(version);
        Ok(entry)
    }

    /// A change behind everybody's back, as another program would make it.
    pub(crate) fn meddle(&self, namespace: &str, name: &str, knots: u8) {
        let found = self.state.lock().entries[&(Some(namespace.to_owned()), name.to_owned())].clone();
        let entry = Entry { spec: EntrySpec { knots: Some(knots), ..found.spec.clone() }, ..found };
        self.change(entry, |old, new| Ok((Change::Modified { old: old.unwrap(), new: new.clone() }, true)))
            .unwrap();
    }
}

impl Resource for Logbook {
    type Object = Entry;
    const VERBS: Verbs = Verbs::ALL;

    async fn list(&self, asked: &Asked) -> Result<Listed<Entry>, Failure> {
        let state = self.state.lock();
        let all = state.entries.values();
        let here =
            all.filter(|entry| asked.namespace.is_none() || entry.metadata.namespace == asked.namespace);
        Ok(Listed::at(state.version, here.cloned().collect()))
    }

    async fn create(&self, _asked: &Asked, entry: Entry) -> Result<Entry, Failure> {
        if entry.spec.what == "nothing" {
            return Err(Failure::unavailable("no ink"));
        }
        self.change(entry, |old, new| match old {
            Some(_) => Err(Failure::already_exists("it is there")),
            None => Ok((Change::Added(new.clone()), true)),
        })
    }

    async fn update(&self, _asked: &Asked, entry: Entry) -> Result<Entry, Failure> {
        self.change(entry, |old, new| match old {
            Some(old) => Ok((Change::Modified { old, new: new.clone() }, true)),
            None => Err(Failure::not_found("it is gone")),
        })
    }

    async fn delete(&self, _asked: &Asked, entry: Entry) -> Result<(), Failure> {
        self.change(entry, |old, new| match old {
            Some(_) => Ok((Change::Deleted(new.clone()), false)),
            None => Err(Failure::not_found("it is gone")),
        })?;
        Ok(())
    }

    fn watch(&self, _asked: &Asked, after: u64) -> Changes<Entry> {
        let (book, seen) = (self.clone(), self.version.subscribe());
        stream::unfold((after, seen, false), move |(after, mut seen, failed)| {
            let book = book.clone();
            async move {
                if failed {
                    return None;
                }
                loop {
                    seen.borrow_and_update();
                    let next = {
                        let state = book.state.lock();
                        if after < state.forgotten {
                            let expired = Failure::expired(format!("too old resource version: {after}"));
                            return Some((Err(expired), (after, seen, true)));
                        }
                        state.changes.iter().find(|(version, _)| *version > after).cloned()
                    };
                    if let Some((version, change)) = next {
                        return Some((Ok(change), (version, seen, false)));
                    }
                    seen.changed().await.ok()?;
                }
            }
        })
        .boxed()
    }
}
