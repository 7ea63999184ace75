//! What is going to happen to processes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_env::{Env, Process, Task};
use tokio::time::sleep;

/// Crashes and pauses that are decided, and come in a moment.
#[derive(Debug)]
pub(crate) struct Fates {
    env: Env,
    /// How long a doomed process may go on without sending anything.
    patience: Duration,
    doomed: Arc<Mutex<Vec<Process>>>,
    tasks: Mutex<Vec<Task<()>>>,
}

impl Fates {
    pub(crate) fn new(env: Env, patience: Duration) -> Fates {
        Fates { env, patience, doomed: Arc::default(), tasks: Mutex::default() }
    }

    /// The process dies before it sends anything else.
    pub(crate) fn doom(&self, process: &Process) {
        self.doomed.lock().push(process.clone());
        let process = process.clone();
        self.after(self.patience, move || process.kill());
    }

    /// The process stands still for this long.
    pub(crate) fn pause(&self, process: &Process, time: Duration) {
        process.pause();
        let process = process.clone();
        self.after(time, move || process.resume());
    }

    /// Whether the process may send a request. One that is doomed dies instead.
    pub(crate) fn may_send(&self, process: &Process) -> bool {
        let mut doomed = self.doomed.lock();
        if let Some(at) = doomed.iter().position(|other| other.is(process)) {
            doomed.swap_remove(at).kill();
        }
        !process.is_killed()
    }

    fn after(&self, time: Duration, act: impl FnOnce() + Send + 'static) {
        let task = self.env.spawn(async move {
            sleep(time).await;
            act();
        });
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }
}
