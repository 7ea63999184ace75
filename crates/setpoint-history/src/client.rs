//! A client that does what its seed says, without any I/O of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::object::{Key, Mark, Moment, Version};
use crate::operation::{Call, Continue, Fresh, Operation, Outcome};
use crate::resource::Resource;
use crate::wire::{Reply, Request, Wire};

/// How many of the versions that it has seen a client remembers, to read them again.
const REMEMBERED: usize = 32;

/// A client that sends one random request after another.
#[derive(Debug)]
pub(crate) struct Client {
    id: u16,
    number: u32,
    resource: Resource,
    collection: Arc<str>,
    keys: u16,
    random: StdRng,
    /// The versions of objects that it has seen last.
    seen: BTreeMap<Key, Version>,
    /// Versions of the whole that it has seen.
    versions: VecDeque<Version>,
    /// The list that it is about to go on with.
    pages: Option<Pages>,
}

#[derive(Debug)]
struct Pages {
    token: String,
    call: Call,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    mark: Mark,
    call: Call,
    start: Moment,
}

impl Client {
    /// A client of the objects of one namespace.
    pub(crate) fn new(id: u16, seed: u64, resource: Resource, namespace: &str, keys: u16) -> Client {
        Client {
            id,
            number: 0,
            resource,
            collection: resource.collection(namespace),
            keys,
            random: StdRng::seed_from_u64(seed ^ (u64::from(id) << 48)),
            seen: BTreeMap::new(),
            versions: VecDeque::new(),
            pages: None,
        }
    }

    /// A random request.
    pub(crate) fn next(&mut self, now: Moment) -> (Asked, Request) {
        if let Some(pages) = self.pages.take() {
            let (asked, mut request) = self.ask(pages.call, now);
            request.path.push_str("&continue=");
            request.path.push_str(&pages.token);
            return (asked, request);
        }
        let call = self.call();
        self.ask(call, now)
    }

    fn call(&mut self) -> Call {
        let key = Key(self.random.random_range(0..self.keys));
        let known = self.seen.get(&key).copied();
        let list = |fresh, limit| Call::List { fresh, limit, from: None };
        let update = |expect| match self.resource {
            Resource::ConfigMaps => Call::Update { key, expect },
            Resource::Pods => Call::StatusPatch { key },
        };
        match self.random.random_range(0..100) {
            0..14 => Call::Create { key },
            14..27 => update(known),
            27..34 => update(None),
            34..41 => Call::MergePatch { key },
            41..46 => Call::StrategicPatch { key },
            46..53 => Call::JsonPatch { key },
            53..58 => Call::Apply { key },
            58..66 => Call::Delete { key, expect: None },
            66..70 => Call::Delete { key, expect: known },
            70..72 => Call::DeleteCollection { limit: Some(self.random.random_range(1..4)) },
            72..83 => Call::Get { key, fresh: Fresh::Latest },
            83..85 => Call::Get { key, fresh: Fresh::Any },
            85..90 => list(Fresh::Latest, None),
            90..92 => list(Fresh::Any, None),
            92..94 => list(self.version().map_or(Fresh::Latest, Fresh::Exact), None),
            94..96 => list(self.version().map_or(Fresh::Latest, Fresh::AtLeast), None),
            _ => list(Fresh::Latest, Some(self.random.random_range(1..4))),
        }
    }

    /// A version that it has seen some time ago.
    fn version(&mut self) -> Option<Version> {
        let count = self.versions.len();
        (count > 0).then(|| self.versions[self.random.random_range(0..count)])
    }

    /// A request of one's choice.
    pub(crate) fn ask(&mut self, call: Call, now: Moment) -> (Asked, Request) {
        self.number += 1;
        let mark = Mark { client: self.id, number: self.number };
        let request = self.request(&call, mark);
        (Asked { mark, call, start: now }, request)
    }

    fn request(&self, call: &Call, mark: Mark) -> Request {
        let all = &self.collection;
        if let Some(write) = self.resource.write(all, call, mark) {
            return write;
        }
        Request::get(match call {
            Call::Get { key, fresh } => format!("{all}/{key}{}", query(*fresh, None)),
            // The token says at which version a list goes on.
            Call::List { limit, from: Some(_), .. } => format!("{all}{}", query(Fresh::Latest, *limit)),
            Call::List { fresh, limit, .. } => format!("{all}{}", query(*fresh, *limit)),
            _ => unreachable!("whatever is no write is a read"),
        })
    }

    /// Writes down what came of a request; no reply means that none came in full.
    pub(crate) fn finish(&mut self, asked: Asked, now: Moment, reply: Option<&Reply>) -> Operation {
        let Asked { mark, call, start } = asked;
        let outcome = match reply {
            Some(reply) => self.read(&call, reply),
            None => Outcome::Unknown,
        };
        Operation { mark, call, start, end: now, outcome }
    }

    fn read(&mut self, call: &Call, reply: &Reply) -> Outcome {
        if reply.code >= 500 {
            // Perhaps a proxy's: whatever its body says, nobody knows what the server has done.
            return Outcome::Failed(reply.code);
        }
        let body: Wire = match serde_json::from_slice(&reply.body) {
            Ok(body) => body,
            Err(error) => return unreadable(reply, &error.to_string()),
        };
        let outcome = match (reply.code, call) {
            (200..300, Call::Delete { .. }) => body.deleted().map(Outcome::Deleted),
            (200..300, Call::List { .. } | Call::DeleteCollection { .. }) => list(&body),
            (200..300, Call::Get { .. }) => body.item().map(Outcome::Found),
            (200..300, _) => body.item().map(|item| match item.state.fields.is_leaving {
                true => Outcome::Leaving,
                false => Outcome::Written(item),
            }),
            (404, _) => Some(Outcome::NotFound),
            (409, _) if body.reason == "AlreadyExists" => Some(Outcome::AlreadyExists),
            (409, _) => Some(Outcome::Conflict),
            (410, _) => Some(Outcome::Expired),
            (400..500, _) => Some(Outcome::Refused(reply.code)),
            _ => None,
        };
        let Some(outcome) = outcome else { return unreadable(reply, "a field is missing") };
        self.learn(call, &outcome, body.metadata.token);
        outcome
    }

    /// Remembers what later requests need.
    fn learn(&mut self, call: &Call, outcome: &Outcome, token: String) {
        match outcome {
            Outcome::Written(item) | Outcome::Found(item) => {
                self.seen.insert(item.key, item.version);
                self.remember(item.version);
            }
            Outcome::Listed { version, items, .. } => {
                self.seen.extend(items.iter().map(|item| (item.key, item.version)));
                self.remember(*version);
            }
            _ => {}
        }
        let Call::List { fresh, limit, from } = *call else { return };
        if token.is_empty() {
            return;
        }
        let from = match outcome {
            Outcome::Listed { version, items, .. } => {
                items.last().map(|last| Continue { after: last.key, version: Some(*version) })
            }
            // The server says that the rest is of another version.
            Outcome::Expired => from.map(|from| Continue { version: None, ..from }),
            _ => None,
        };
        self.pages = from.map(|from| Pages { token, call: Call::List { fresh, limit, from: Some(from) } });
    }

    fn remember(&mut self, version: Version) {
        if self.versions.len() == REMEMBERED {
            self.versions.pop_front();
        }
        self.versions.push_back(version);
    }

    /// A random number below this one, of the client's own sequence.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random.random_range(0..limit.max(1))
    }
}

fn query(fresh: Fresh, limit: Option<u32>) -> String {
    let version = match fresh {
        Fresh::Latest => String::new(),
        Fresh::Any => "&resourceVersion=0".to_owned(),
        Fresh::AtLeast(version) => format!("&resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
        Fresh::Exact(version) => format!("&resourceVersion={version}&resourceVersionMatch=Exact"),
    };
    let limit = limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
    let query = version + &limit;
    if query.is_empty() { query } else { format!("?{}", &query[1..]) }
}

fn list(body: &Wire) -> Option<Outcome> {
    let items = body.items.iter().map(Wire::item).collect::<Option<_>>()?;
    Some(Outcome::Listed { version: body.version()?, items, more: !body.metadata.token.is_empty() })
}

fn unreadable(reply: &Reply, why: &str) -> Outcome {
    Outcome::Unreadable(format!("{why} in {} {}", reply.code, String::from_utf8_lossy(&reply.body)))
}
