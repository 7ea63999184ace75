//! Tasks that have one owner.

use setpoint_env::Task;

/// Tasks that run, and some that have ended. All of them end with it.
#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    all: Vec<Task<()>>,
    /// How many there may be before those that have ended are forgotten.
    limit: usize,
}

impl TaskSet {
    /// There are never more than two, or twice as many as were running when some were last forgotten.
    pub(crate) fn push(&mut self, task: Task<()>) {
        if self.all.len() >= self.limit {
            self.all.retain(|task| !task.is_finished());
            self.limit = (self.all.len() * 2).max(2);
        }
        self.all.push(task);
    }
}
