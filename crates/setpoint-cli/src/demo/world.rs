//! A world with a time of its own, on a thread of its own: time can stand still, go faster than ours, and jump to where
//! something happens.
//!
//! As long as it goes as fast as ours, nothing is simulated. Else tokio's clock is frozen, and is let go for a while, again and
//! again: it jumps from timer to timer then, in their order, as in a test. So a thousand times as fast is not a thousand times as
//! coarse: what was to happen at different times happens in that order, and whatever has to be done for it is done in between.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::request::Request;
use http::response;
use http_body_util::{BodyStream, StreamBody};
use hyper::body::Frame;
use setpoint::kube::Client;
use setpoint::kube::client::Body;
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::Env;
use setpoint_env::watch;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{pause, resume, sleep};
use tower::{BoxError, ServiceExt, service_fn};

/// How often a time that is not ours is brought forward, in ours: the eye takes it for steady.
const TICK: Duration = Duration::from_millis(20);
/// After a tick that took longer than this, what was missed is not made up for.
const LONGEST: Duration = Duration::from_millis(100);
/// How many frames of an answer wait for whoever reads it from outside.
const FRAMES: usize = 16;
/// The fastest that time goes.
pub(crate) const FASTEST: f64 = 1000.0;

type Until = Pin<Box<dyn Future<Output = ()> + Send>>;
type Data = Result<Frame<Bytes>, BoxError>;

/// Clones are the same world. It ends with the last one.
#[derive(Clone)]
pub(crate) struct World {
    env: Env,
    commands: mpsc::Sender<Command>,
    /// How fast its time goes; 0 if it stands still.
    rate: watch::Sender<f64>,
}

/// What its time shall do.
enum Command {
    /// Go as ours does.
    Flow,
    Stand,
    /// Go on at once for so long at most, until something is the case; then do again what it did before.
    Jump {
        most: Duration,
        until: Until,
        done: oneshot::Sender<()>,
    },
}

impl World {
    /// Begins one, in our time.
    pub(crate) async fn begin() -> anyhow::Result<World> {
        let (told, begun) = oneshot::channel();
        let thread = std::thread::Builder::new().name("world".to_owned());
        let live = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(told.send(Err(error))),
            };
            runtime.block_on(async {
                let (commands, receiver) = mpsc::channel(1);
                let world = World { env: Env::of_runtime(), commands, rate: watch::Sender::new(1.0) };
                // Whoever wanted it is gone if it is not taken; then it ends at once.
                drop(told.send(Ok(world)));
                Conductor::default().run(receiver).await;
            });
        };
        thread.spawn(live).context("cannot start a thread")?;
        let world: io::Result<World> = begun.await.context("the cluster of the demo did not start")?;
        world.context("cannot start a runtime")
    }

    /// Its clock, and its tasks.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Runs something in it.
    pub(crate) async fn run<F>(&self, future: F) -> anyhow::Result<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.env.spawn(future).await.context("a task of the demo did not finish")
    }

    /// How fast its time goes.
    pub(crate) fn rate(&self) -> f64 {
        *self.rate.borrow()
    }

    /// Lets its time go so fast: 0 stands still, 1 is as ours.
    pub(crate) fn set_rate(&self, rate: f64) {
        self.rate.send_replace(rate.clamp(0.0, FASTEST));
    }

    /// Lets so much of its time pass at once, unless something is the case before, or somebody says how fast its time shall go.
    pub(crate) async fn jump(&self, most: Duration, until: impl Future<Output = ()> + Send + 'static) {
        let (done, is_done) = oneshot::channel();
        let mut rate = self.rate.subscribe();
        let until = async move {
            tokio::select! {
                biased;
                () = until => {}
                _ = rate.changed() => {}
            }
        };
        let jump = Command::Jump { most, until: Box::pin(until), done };
        // Errors mean that the world has ended: there is nothing to wait for.
        if self.commands.send(jump).await.is_ok() {
            let _ended = is_done.await;
        }
    }

    /// Brings its time forward as fast as it shall go, for ever. It runs outside, in our time: `ours`.
    pub(crate) async fn drive(self, ours: Env) {
        let mut rate = self.rate.subscribe();
        loop {
            let now = *rate.borrow_and_update();
            if now == 1.0 || now == 0.0 {
                let command = if now == 0.0 { Command::Stand } else { Command::Flow };
                if self.commands.send(command).await.is_err() || rate.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let mut last = ours.instant();
            while rate.has_changed().is_ok_and(|has_changed| !has_changed) {
                sleep(TICK).await;
                let ours = ours.instant();
                let passed = ours.saturating_duration_since(last).min(LONGEST);
                last = ours;
                let theirs = Duration::try_from_secs_f64(passed.as_secs_f64() * now).unwrap_or_default();
                self.jump(theirs, pending()).await;
            }
        }
    }

    /// A client for those outside: what they ask for is done in the world, at its time.
    pub(crate) fn client(&self, server: &ApiServer) -> Client {
        let (env, service) = (self.env.clone(), server.as_user(User::admin()));
        let asked = service_fn(move |request: Request<Body>| {
            let (env, service) = (env.clone(), service.clone());
            async move {
                let (told, answer) = oneshot::channel();
                let task = env.spawn(async move { answer_into(service.oneshot(request), told).await });
                let (head, frames) = answer.await.map_err(|_| BoxError::from("the world has ended"))??;
                // Who drops the body drops the task with it.
                let frames = stream::unfold((frames, task), async |(mut frames, task)| {
                    let frame: Data = frames.recv().await?;
                    Some((frame, (frames, task)))
                });
                Ok::<_, BoxError>(http::Response::from_parts(head, StreamBody::new(Box::pin(frames))))
            }
        });
        Client::new(asked, "default")
    }
}

type Answer = Result<(response::Parts, mpsc::Receiver<Data>), BoxError>;

/// Tells the head of an answer, and then its body as long as somebody reads it.
async fn answer_into<B, E>(
    answer: impl Future<Output = Result<http::Response<B>, E>>,
    told: oneshot::Sender<Answer>,
) where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    let (head, body) = match answer.await {
        Ok(answer) => answer.into_parts(),
        Err(error) => return drop(told.send(Err(error.into()))),
    };
    let (sender, frames) = mpsc::channel(FRAMES);
    if told.send(Ok((head, frames))).is_err() {
        return;
    }
    let mut body = std::pin::pin!(BodyStream::new(body));
    while let Some(frame) = body.next().await {
        if sender.send(frame.map_err(Into::into)).await.is_err() {
            return;
        }
    }
}

/// Whoever is told in the world what its time shall do.
#[derive(Default)]
struct Conductor {
    /// None while time goes as ours does.
    still: Option<Still>,
}

impl Conductor {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Flow => self.flow().await,
                Command::Stand => self.stand(),
                Command::Jump { most, until, done } => {
                    let is_flowing = self.still.is_none();
                    self.stand();
                    if let Some(still) = self.still.take() {
                        still.end().await;
                    }
                    // Time is frozen, and nothing holds it: it jumps to the next timer whenever there is nothing else to do.
                    tokio::select! {
                        biased;
                        () = until => {}
                        () = sleep(most) => {}
                    }
                    self.still = Some(Still::begin());
                    if is_flowing {
                        self.flow().await;
                    }
                    // Nobody waits for it any more, maybe.
                    let _gone = done.send(());
                }
            }
        }
    }

    fn stand(&mut self) {
        if self.still.is_none() {
            pause();
            self.still = Some(Still::begin());
        }
    }

    async fn flow(&mut self) {
        if let Some(still) = self.still.take() {
            still.end().await;
            resume();
        }
    }
}

/// Holds a frozen clock where it is: while something blocks on another thread, tokio does not let it jump.
struct Still {
    held: std::sync::mpsc::Sender<()>,
    blocking: JoinHandle<()>,
}

impl Still {
    #[expect(clippy::disallowed_methods, reason = "nothing is done there: its being there holds the clock")]
    fn begin() -> Still {
        let (held, until) = std::sync::mpsc::channel::<()>();
        let blocking = tokio::task::spawn_blocking(move || {
            // The other end goes when it is over.
            let _over = until.recv();
        });
        Still { held, blocking }
    }

    async fn end(self) {
        drop(self.held);
        let _ended = self.blocking.await;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use setpoint::kube::Api;
    use setpoint::kube::api::{PostParams, WatchParams};
    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const LIMIT: Duration = Duration::from_secs(20);

    fn seconds(world: &World, since: tokio::time::Instant) -> u64 {
        world.env().instant().saturating_duration_since(since).as_secs()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn time_stands_still_jumps_and_goes_faster_and_what_waits_for_it_does_too() {
        let (world, ours) = (World::begin().await.unwrap(), Env::system());
        let _driving = ours.spawn(world.clone().drive(ours.clone()));
        world.set_rate(0.0);
        let start = world.run(async { tokio::time::Instant::now() }).await.unwrap();
        let sleeping = world.env().spawn(async { sleep(HOUR).await });
        sleep(Duration::from_millis(200)).await;
        let passed = world.env().instant().saturating_duration_since(start);
        assert!(passed < Duration::from_millis(100), "it stands still: {passed:?}");
        timeout(LIMIT, world.jump(HOUR / 2, pending())).await.unwrap();
        assert_eq!((seconds(&world, start), sleeping.is_finished()), (1800, false));
        timeout(LIMIT, world.jump(2 * HOUR, async { drop(sleeping.await) })).await.unwrap();
        assert_eq!(seconds(&world, start), 3600, "it jumps no further than to what was waited for");
        world.set_rate(FASTEST);
        timeout(LIMIT, async {
            while seconds(&world, start) < 3700 {
                sleep(TICK).await;
            }
        })
        .await
        .expect("it goes fast");
        world.set_rate(1.0);
        let before = timeout(LIMIT, world.run(async { tokio::time::Instant::now() })).await.unwrap().unwrap();
        let (slow, fast) = (Duration::from_millis(100), HOUR);
        sleep(slow).await;
        let passed = world.env().instant().saturating_duration_since(before);
        assert!(passed >= slow / 2 && passed < fast, "it goes as ours: {passed:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_jump_ends_when_somebody_says_how_fast_time_shall_go() {
        let (world, ours) = (World::begin().await.unwrap(), Env::system());
        let _driving = ours.spawn(world.clone().drive(ours.clone()));
        let start = world.run(async { tokio::time::Instant::now() }).await.unwrap();
        let _busy = world.env().spawn(async {
            loop {
                sleep(Duration::from_millis(1)).await;
            }
        });
        let jumping = world.clone();
        let jump = ours.spawn(async move { jumping.jump(100_000 * HOUR, pending()).await });
        while seconds(&world, start) < 10 {
            sleep(TICK).await;
        }
        world.set_rate(0.0);
        timeout(LIMIT, jump).await.expect("it ends at once").unwrap();
        let passed = timeout(LIMIT, world.run(async { tokio::time::Instant::now() })).await.unwrap().unwrap();
        sleep(Duration::from_millis(100)).await;
        assert_eq!(world.env().instant(), passed, "it stands still");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_looks_from_outside_sees_the_objects_of_the_world_and_is_told_of_them() {
        let world = World::begin().await.unwrap();
        let env = world.env().clone();
        let server = world.run(async move { ApiServer::builder().env(env).build() }).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(world.client(&server));
        let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        let told = timeout(LIMIT, events.next()).await.unwrap();
        assert!(told.is_some_and(|event| event.is_ok()));
        assert!(maps.get("b").await.is_err(), "an answer that is an error is one");
    }
}
