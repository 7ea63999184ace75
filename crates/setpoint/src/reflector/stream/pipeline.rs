//! Work on several cores, with results in order.

use std::collections::VecDeque;

use setpoint_env::{Env, Task};

use crate::reflector::error::ReflectorFailure;

/// The most pieces of decoding that may be under way. It does not depend on the machine, since a run must be
/// the same everywhere. It is as many cores as one reader can keep busy; while all are at work, what arrives
/// is collected into larger pieces.
const IN_FLIGHT: usize = 4;

/// Work that runs beside the reader, with results in the order in which it was started.
pub(super) struct Pipeline<R> {
    pub(super) env: Env,
    in_flight: VecDeque<Task<R>>,
}

impl<R: Send + 'static> Pipeline<R> {
    pub(super) fn new(env: Env) -> Pipeline<R> {
        Pipeline { env, in_flight: VecDeque::new() }
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn start(&mut self, work: impl FnOnce() -> R + Send + 'static) {
        self.in_flight.push_back(self.env.spawn(async move { work() }));
    }

    /// The result of the oldest work. Waits for ever if there is none.
    pub(super) async fn next(&mut self) -> Result<R, ReflectorFailure> {
        let Some(oldest) = self.in_flight.front_mut() else { return std::future::pending().await };
        let result = oldest.await;
        self.in_flight.pop_front();
        // Decoding catches the panics of transforms; this is a runtime that is shutting down, or a bug.
        result.map_err(|error| ReflectorFailure::Broken(error.to_string()))
    }
}
