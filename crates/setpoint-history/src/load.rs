//! Clients and watchers at work on a server.

use std::time::Duration;

use futures::future::{join, join_all};
use http_body_util::BodyExt;
use kube::client::Body;
use setpoint_env::Later;
use setpoint_env::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::Client;
use crate::clock::Clock;
use crate::history::History;
use crate::object::{Item, Key, Version};
use crate::operation::{Call, Fresh, Operation, Outcome};
use crate::resource::Resource;
use crate::select::Select;
use crate::watch::{Ended, Watch};
use crate::watcher::{Step, Watcher};
use crate::wire::{Reply, Request};

/// An answer that takes longer has got lost.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// How long after the last write a watch may take to tell of it.
const WATCH_LIMIT: Duration = Duration::from_secs(60);
/// How long to wait for a server that gives no answer.
const AWAY: Duration = Duration::from_millis(50);
/// How often the last write of an object is tried.
const TRIES: usize = 1_000;

/// How long clients work.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many operations each.
    Operations(u32),
    /// So long.
    Elapsed(Duration),
}

/// Clients and watchers of a few objects, which follow a seed.
#[derive(Clone, Debug)]
pub struct Load {
    /// What they do.
    pub seed: u64,
    /// How many read and write.
    pub clients: u16,
    /// How many watch. Of six, one takes a single object and two or three what a selector takes, the others all.
    pub watchers: u16,
    /// How many objects: few, so that clients meet.
    pub keys: u16,
    /// What the objects are.
    pub resource: Resource,
    /// Where they are; it must be there, and empty.
    pub namespace: String,
    /// How long a client rests between two operations, at most.
    pub pause: Duration,
    /// How long clients work.
    pub until: Until,
}

impl Default for Load {
    /// A few seconds' worth.
    fn default() -> Load {
        Load {
            seed: 1,
            clients: 6,
            watchers: 6,
            keys: 8,
            resource: Resource::ConfigMaps,
            namespace: "default".to_owned(),
            pause: Duration::from_millis(4),
            until: Until::Operations(100),
        }
    }
}

/// What watches have to tell before they may end.
#[derive(Clone, Debug)]
struct Last {
    items: Vec<Item>,
    by: Instant,
}

impl Last {
    /// The newest version that a watch must tell of.
    fn version(&self, select: Select) -> Option<Version> {
        let taken = self.items.iter().filter(|item| select.takes(item.key, &item.state));
        taken.map(|item| item.version).max()
    }

    fn is_told_to(&self, watcher: &Watcher) -> bool {
        self.version(watcher.select()).is_none_or(|last| watcher.told_to() >= Some(last))
    }
}

/// The server could not be brought to answer.
#[derive(Debug, thiserror::Error)]
#[error("the server does not answer: {0}")]
pub struct NoAnswer(String);

impl Load {
    /// Lets everybody work, writes every object a last time, and waits until every watch has told of that. Each client
    /// has a connection of its own, by its name.
    ///
    /// # Errors
    /// If the server does not answer in the end.
    pub async fn run(&self, connect: impl Fn(&str) -> kube::Client) -> Result<History, NoAnswer> {
        let clock = Clock::start();
        let mut history = History { resource: self.resource, ..History::default() };
        let mut keeper = self.client(self.clients);
        let direct = connect("keeper");
        let begin = self.insist(&mut keeper, &direct, &clock, &mut history.operations).await?;

        let (last, finish) = watch::channel(None);
        let clients = join_all(
            (0..self.clients).map(|id| self.work(self.client(id), connect(&format!("client-{id}")), &clock)),
        );
        let watchers = join_all((0..self.watchers).map(|id| {
            let select = self.resource.select(id, Key(id % self.keys));
            let from = (id % 2 == 0).then_some(begin);
            let collection = self.resource.watched(&self.namespace, select);
            let watcher = Watcher::new(id, self.seed, collection, select, from);
            self.watch(watcher, connect(&format!("watcher-{id}")), &clock, finish.clone())
        }));
        let work = async {
            let mut operations: Vec<_> = clients.await.into_iter().flatten().collect();
            let mut items = Vec::new();
            for key in (0..self.keys).map(Key) {
                items.extend(self.close(&mut keeper, key, &direct, &clock, &mut operations).await);
            }
            let by = Instant::now().later(WATCH_LIMIT);
            let missing = self.keys as usize - items.len();
            last.send_replace(Some(Last { items, by }));
            (operations, missing)
        };
        let ((operations, missing), watches) = join(work, watchers).await;
        history.operations.extend(operations);
        history.watches = watches.into_iter().flatten().collect();
        if missing > 0 {
            return Err(NoAnswer(format!("{missing} objects could not be written at the end")));
        }
        Ok(history)
    }

    fn client(&self, id: u16) -> Client {
        Client::new(id, self.seed, self.resource, &self.namespace, self.keys)
    }

    /// Lists until there is an answer.
    async fn insist(
        &self,
        keeper: &mut Client,
        server: &kube::Client,
        clock: &Clock,
        operations: &mut Vec<Operation>,
    ) -> Result<Version, NoAnswer> {
        let call = Call::List { fresh: Fresh::Latest, limit: None, from: None };
        for _ in 0..TRIES {
            let operation = exchange(keeper, Some(call), server, clock).await;
            let version = match &operation.outcome {
                Outcome::Listed { version, .. } => Some(*version),
                _ => None,
            };
            operations.push(operation);
            match version {
                Some(version) => return Ok(version),
                None => sleep(AWAY).await,
            }
        }
        Err(NoAnswer(operations.last().map(ToString::to_string).unwrap_or_default()))
    }

    /// Writes an object a last time.
    async fn close(
        &self,
        keeper: &mut Client,
        key: Key,
        server: &kube::Client,
        clock: &Clock,
        operations: &mut Vec<Operation>,
    ) -> Option<Item> {
        let write = match self.resource {
            Resource::ConfigMaps => Call::Update { key, expect: None },
            Resource::Pods => Call::MergePatch { key },
        };
        let mut call = write;
        for _ in 0..TRIES {
            let operation = exchange(keeper, Some(call), server, clock).await;
            let outcome = operation.outcome.clone();
            operations.push(operation);
            match outcome {
                Outcome::Written(item) => return Some(item),
                Outcome::NotFound => call = Call::Create { key },
                Outcome::AlreadyExists => call = write,
                _ => sleep(AWAY).await,
            }
        }
        None
    }

    async fn work(&self, mut client: Client, server: kube::Client, clock: &Clock) -> Vec<Operation> {
        let begun = Instant::now();
        let mut operations = Vec::new();
        let is_over = |count: usize| match self.until {
            Until::Operations(most) => count >= most as usize,
            Until::Elapsed(most) => begun.elapsed() >= most,
        };
        while !is_over(operations.len()) {
            let operation = exchange(&mut client, None, &server, clock).await;
            let is_away = operation.outcome.is_unknown();
            operations.push(operation);
            let pause = u64::try_from(self.pause.as_micros()).unwrap_or(u64::MAX);
            sleep(Duration::from_micros(client.below(pause))).await;
            if is_away {
                sleep(AWAY).await;
            }
        }
        operations
    }

    async fn watch(
        &self,
        mut watcher: Watcher,
        server: kube::Client,
        clock: &Clock,
        mut finish: watch::Receiver<Option<Last>>,
    ) -> Vec<Watch> {
        let mut watches = Vec::new();
        loop {
            let last = finish.borrow_and_update().clone();
            if last.as_ref().is_some_and(|last| last.is_told_to(&watcher)) {
                return watches;
            }
            let ended = self.watch_once(&mut watcher, &server, clock, &mut finish).await;
            let is_stuck = matches!(ended, Ended::Stuck(_));
            watches.extend(watcher.end(ended));
            if is_stuck {
                return watches;
            }
            sleep(Duration::from_millis(watcher.below(20))).await;
        }
    }

    async fn watch_once(
        &self,
        watcher: &mut Watcher,
        server: &kube::Client,
        clock: &Clock,
        finish: &mut watch::Receiver<Option<Last>>,
    ) -> Ended {
        let cut = Instant::now().later(Duration::from_millis(50 + watcher.below(4_000)));
        let request = watcher.begin(clock.now());
        let Ok(Ok(response)) = timeout(REQUEST_LIMIT, server.send(encode(request))).await else {
            return self.stuck(watcher, finish, Ended::NoAnswer);
        };
        if response.status() == 410 {
            return watcher.expire();
        }
        if !response.status().is_success() {
            return self.stuck(watcher, finish, Ended::Failed(response.status().as_u16()));
        }
        let mut lines = Lines { body: response.into_body(), pending: Vec::new() };
        loop {
            let last = finish.borrow_and_update().clone();
            if last.as_ref().is_some_and(|last| last.is_told_to(watcher)) {
                return Ended::Closed;
            }
            let line = tokio::select! {
                biased;
                line = lines.next() => line,
                Ok(()) = finish.changed() => continue,
                // At the end it is not cut: it is to tell of the rest.
                () = sleep_until(last.as_ref().map_or(cut, |last| last.by)) => {
                    return self.stuck(watcher, finish, Ended::Closed);
                }
            };
            let Some(line) = line else { return self.stuck(watcher, finish, Ended::Closed) };
            if let Step::Ends(ended) = watcher.take(clock.now(), &line) {
                return ended;
            }
        }
    }

    /// How a watch ended, unless it has not told all by the time when it should.
    fn stuck(&self, watcher: &Watcher, finish: &watch::Receiver<Option<Last>>, ended: Ended) -> Ended {
        let last = finish.borrow();
        let late = last.as_ref().filter(|last| Instant::now() >= last.by);
        late.and_then(|last| last.version(watcher.select())).map_or(ended, Ended::Stuck)
    }
}

/// Sends a request, random unless told, and waits for its answer.
async fn exchange(
    client: &mut Client,
    call: Option<Call>,
    server: &kube::Client,
    clock: &Clock,
) -> Operation {
    let now = clock.now();
    let (asked, request) = match call {
        Some(call) => client.ask(call, now),
        None => client.next(now),
    };
    let answer = async {
        let response = server.send(encode(request)).await.ok()?;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes().to_vec();
        Some(Reply { code, body })
    };
    let reply = timeout(REQUEST_LIMIT, answer).await.ok().flatten();
    client.finish(asked, clock.now(), reply.as_ref())
}

fn encode(request: Request) -> http::Request<Body> {
    let builder = http::Request::builder()
        .method(request.method)
        .uri(request.path)
        .header(http::header::CONTENT_TYPE, request.media)
        .header(http::header::ACCEPT, "application/json");
    builder.body(Body::from(request.body.into_bytes())).expect("our own paths and headers are valid")
}

/// The lines of a watch.
struct Lines {
    body: Body,
    pending: Vec<u8>,
}

impl Lines {
    /// The next whole line; none when the watch is over, in good order or not. May be dropped and called again.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                return Some(std::mem::replace(&mut self.pending, rest));
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.pending.extend_from_slice(&data);
            }
        }
    }
}
