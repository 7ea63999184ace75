//! What was seen, on its way from where it happened to the screen.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_env::Env;
use tokio::time::Instant;

use super::stage::{Notice, Stage};

/// More than a demo has; what comes beyond is not shown.
const MOST: usize = 1000;

/// Clones are the same list.
#[derive(Clone)]
pub(crate) struct Notices {
    env: Env,
    waiting: Arc<Mutex<Vec<Notice>>>,
}

impl Notices {
    pub(crate) fn new(env: Env) -> Notices {
        Notices { env, waiting: Arc::default() }
    }

    /// Something was seen just now.
    pub(crate) fn add(&self, stage: Stage, text: impl Into<String>) {
        self.push(stage, text.into(), self.env.instant());
    }

    /// Something was seen at this time, not long ago.
    pub(crate) fn add_at(&self, time: Timestamp, stage: Stage, text: String) {
        let ago = self.env.now().duration_since(time).unsigned_abs();
        let now = self.env.instant();
        self.push(stage, text, now.checked_sub(ago).unwrap_or(now));
    }

    fn push(&self, stage: Stage, text: String, at: Instant) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MOST {
            waiting.push(Notice { stage, text, at });
        }
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.waiting.lock())
    }
}
