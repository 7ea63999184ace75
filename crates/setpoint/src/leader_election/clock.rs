//! One replica's clock.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use setpoint_env::Env;
use tokio::time::Instant;

/// Monotonic time since the start of this replica, as it measures it. Only durations are ever compared, so a
/// clock that runs fast or slow is one that multiplies them.
#[derive(Clone, Debug)]
pub(super) struct LocalClock {
    env: Env,
    origin: Instant,
    rate: f64,
}

impl LocalClock {
    pub(super) fn new(env: Env) -> LocalClock {
        let origin = env.instant();
        LocalClock { env, origin, rate: 1.0 }
    }

    pub(super) fn with_rate(self, rate: f64) -> LocalClock {
        LocalClock { rate, ..self }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Time since the start.
    pub(super) fn now(&self) -> Duration {
        let passed = self.env.instant().saturating_duration_since(self.origin);
        scale(passed, self.rate * self.env.clock_rate())
    }

    /// Wall-clock time, for what people read.
    pub(super) fn wall(&self) -> Timestamp {
        self.env.now()
    }

    /// The time that the wall clock says has passed since `earlier`; none if it went backwards.
    pub(super) fn wall_since(&self, earlier: Timestamp) -> Duration {
        let passed = Duration::try_from(self.env.now().duration_since(earlier)).unwrap_or_default();
        // The wall clock of a simulated process has its rate already.
        scale(passed, self.rate)
    }

    /// Sleeps until this clock says `then`.
    pub(super) async fn sleep_until(&self, then: Duration) {
        while let Some(left) = then.checked_sub(self.now()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(self.real(left)).await;
        }
    }

    /// How long `time` on this clock takes in tokio's time.
    pub(super) fn real(&self, time: Duration) -> Duration {
        scale(time, 1.0 / (self.rate * self.env.clock_rate()))
    }

    /// A time between `base` and `base * (1 + factor)`.
    pub(super) fn jitter(&self, base: Duration, factor: f64) -> Duration {
        self.env.jitter(base, factor)
    }
}

fn scale(time: Duration, factor: f64) -> Duration {
    if factor == 1.0 {
        return time;
    }
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}
