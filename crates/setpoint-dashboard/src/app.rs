//! What every request can ask.

use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::Facts;
use setpoint_env::Env;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::contents::Contents;
use crate::guard::Guard;
use crate::objects::Objects;
use crate::recorder::Recorder;
use crate::{DashboardConfig, Stage};

/// Each page has one stream, and one more while it looks at an object.
const MOST_STREAMS: usize = 64;
/// How long a picture of the state is good for all who ask.
const FRESH: std::time::Duration = std::time::Duration::from_millis(40);

pub(crate) struct App {
    pub(crate) facts: Facts,
    pub(crate) env: Env,
    pub(crate) recorder: Recorder,
    pub(crate) contents: Contents,
    pub(crate) objects: Objects,
    pub(crate) guard: Guard,
    pub(crate) stage: Option<Arc<dyn Stage>>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) shutdown: CancellationToken,
    picture: Mutex<Option<(Instant, Arc<str>)>>,
}

impl App {
    pub(crate) fn new(facts: &Facts, client: Client, env: Env, config: DashboardConfig) -> App {
        App {
            facts: facts.clone(),
            recorder: Recorder::new(facts, &env, config.slow),
            contents: Contents::new(facts.clone(), env.clone()),
            objects: Objects::new(client.clone(), env.clone(), facts.clone(), config.all_kinds),
            guard: Guard::new(config.address, config.certificates.is_some(), client, env.clone()),
            stage: config.stage,
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            shutdown: CancellationToken::new(),
            picture: Mutex::default(),
            env,
        }
    }

    /// All numbers of the loop, as JSON, and of when they are. Those who ask at about the same time get the same.
    pub(crate) fn state(&self) -> (Instant, Arc<str>) {
        let now = self.env.instant();
        let mut picture = self.picture.lock();
        if let Some((at, text)) = &*picture
            && now.saturating_duration_since(*at) < FRESH
        {
            return (*at, text.clone());
        }
        let text: Arc<str> = self.draw().to_string().into();
        picture.insert((now, text)).clone()
    }

    /// Whoever asks from now on sees what has just been done.
    pub(crate) fn redraw(&self) {
        self.picture.lock().take();
    }

    fn draw(&self) -> Value {
        let mut state = json!(self.facts.state(0));
        let now = self.facts.now();
        let recorded = self.recorder.numbers(now);
        if let (Value::Object(state), Value::Object(recorded)) = (&mut state, recorded) {
            state.extend(recorded);
            state.insert("now".into(), json!(now.as_millisecond()));
            state.insert("rate".into(), json!(self.stage.as_ref().map_or(1.0, |stage| stage.rate())));
            state.insert("canPlay".into(), json!(self.stage.is_some()));
        }
        state
    }
}
