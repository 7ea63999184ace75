//! The clock, randomness and tasks of a program, behind one type that a test can replace.
//!
//! Outside of tests, Setpoint reads the time, gets random bytes and spawns tasks only through an [`Env`]. [`Env::system`] uses
//! the operating system. [`Env::seeded`] is for tests: its wall-clock time follows tokio's clock, which can be paused, and its
//! random numbers follow the seed. So a run can be repeated exactly.
//!
//! ```
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
//! # rt.block_on(async {
//! use setpoint_env::Env;
//!
//! let env = Env::seeded(7);
//! let before = env.now();
//! tokio::time::sleep(std::time::Duration::from_secs(3600)).await; // takes no real time: time is paused
//! assert_eq!(env.now().duration_since(before).as_secs(), 3600);
//! assert_eq!(Env::seeded(7).uuid(), Env::seeded(7).uuid());
//! # });
//! ```

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod later;
mod process;
mod supervise;
mod task;
pub mod watch;

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
pub use later::Later;
use parking_lot::Mutex;
pub use process::{Phase, Process};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
pub use supervise::{TaskHealth, panic_text};
pub use task::Task;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The start of virtual wall-clock time: 2026-01-01T00:00:00Z.
pub const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Time, randomness and tasks. Cheap to clone; clones share one random sequence.
#[derive(Clone, Debug)]
pub struct Env {
    inner: Arc<Inner>,
    /// Whose tasks these are, in a simulation of several processes.
    process: Option<Process>,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// How many times as fast as others' its clock runs.
    rate: f64,
    random: Mutex<StdRng>,
    /// What the tasks of processes run in the order of, if they do.
    order: Mutex<Option<StdRng>>,
}

#[derive(Clone, Debug)]
enum Clock {
    System,
    /// Wall-clock time as a start plus what has passed on tokio's clock.
    Virtual {
        start: Timestamp,
        origin: Instant,
        /// Of the runtime whose time it is, also for those who ask from another one.
        runtime: Option<Handle>,
    },
}

impl Env {
    /// The real clock, and a random sequence seeded by the operating system.
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn system() -> Env {
        Env::new(Clock::System, rand::make_rng())
    }

    /// A clock that follows tokio's and starts at the same time in every run, and randomness that depends only on
    /// `seed`. Create it inside the runtime whose time it should follow.
    pub fn seeded(seed: u64) -> Env {
        let clock = Clock::Virtual { start: EPOCH, origin: Instant::now(), runtime: None };
        Env::new(clock, StdRng::seed_from_u64(seed))
    }

    /// A clock that follows that of the tokio runtime in which it is made, from the time that it is now, wherever it is asked:
    /// also by threads of other runtimes. So others can look at a world whose time is paused or goes faster than theirs. The
    /// random sequence is seeded by the operating system.
    ///
    /// Outside of a runtime it is [`Env::system`].
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn of_runtime() -> Env {
        let Ok(runtime) = Handle::try_current() else { return Env::system() };
        let clock =
            Clock::Virtual { start: Timestamp::now(), origin: Instant::now(), runtime: Some(runtime) };
        Env::new(clock, rand::make_rng())
    }

    fn new(clock: Clock, random: StdRng) -> Env {
        Env::at_rate(clock, random, 1.0)
    }

    fn at_rate(clock: Clock, random: StdRng, rate: f64) -> Env {
        let inner = Inner { clock, rate, random: Mutex::new(random), order: Mutex::default() };
        Env { inner: Arc::new(inner), process: None }
    }

    /// Wall-clock time, for timestamps that people and other machines see.
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn now(&self) -> Timestamp {
        match &self.inner.clock {
            Clock::System => Timestamp::now(),
            Clock::Virtual { start, origin, .. } => {
                let passed = self.instant().saturating_duration_since(*origin);
                let rate = self.inner.rate;
                start.later(if rate == 1.0 { passed } else { passed.mul_f64(rate) })
            }
        }
    }

    /// How many times as fast as the clocks of others the clock of this simulated process runs; 1 everywhere else.
    /// [`Env::now`] includes it. Code that decides by durations alone, such as leader election, multiplies them by
    /// it.
    pub fn clock_rate(&self) -> f64 {
        self.inner.rate
    }

    /// Monotonic time, for measuring and for deadlines.
    pub fn instant(&self) -> Instant {
        self.within(Instant::now)
    }

    /// Calls `look` with the time of this clock for all that it asks: only an [`Env::of_runtime`] has another one than that
    /// which is around anyway.
    pub fn within<R>(&self, look: impl FnOnce() -> R) -> R {
        let _entered = match &self.inner.clock {
            Clock::Virtual { runtime: Some(runtime), .. } => Some(runtime.enter()),
            _ => None,
        };
        look()
    }

    /// Random bits.
    pub fn random(&self) -> u64 {
        self.inner.random.lock().next_u64()
    }

    /// A random number in `range`, evenly distributed.
    pub fn random_range(&self, range: RangeInclusive<u64>) -> u64 {
        self.inner.random.lock().random_range(range)
    }

    /// A duration between `base` and `base * (1 + factor)`, evenly distributed. A `factor` that is not
    /// positive adds nothing.
    pub fn jitter(&self, base: Duration, factor: f64) -> Duration {
        // 53 random bits are as many as an f64 keeps exactly.
        let unit = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
        let more = base.as_secs_f64() * (unit * factor.max(0.0));
        base.saturating_add(Duration::try_from_secs_f64(more).unwrap_or(Duration::MAX))
    }

    /// Fills `bytes` with random data.
    pub fn fill(&self, bytes: &mut [u8]) {
        self.inner.random.lock().fill_bytes(bytes);
    }

    /// A random (version 4) UUID in its usual spelling.
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let n = u128::from_be_bytes(bytes);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            n >> 96,
            (n >> 80) & 0xffff,
            (n >> 64) & 0xffff,
            (n >> 48) & 0xffff,
            n & 0xffff_ffff_ffff
        )
    }

    /// Runs `future` as a task of the current tokio runtime; of its own, if it is an [`Env::of_runtime`]. The task ends when the returned [`Task`] is
    /// dropped: every background task has an owner.
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // Boxed, so that tokio's machinery is compiled once a type of result, and not for each of hundreds of futures.
        let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
        Task::new(self.within(|| match &self.process {
            None => tokio::spawn(future),
            Some(process) => tokio::spawn(process.run(future)),
        }))
    }

    /// The same clock, for the tasks of one simulated process, and a handle that pauses and kills them. Its
    /// randomness is its own, and does not change that of others.
    pub fn process(&self) -> (Env, Process) {
        self.process_at(1.0)
    }

    /// Like [`Env::process`], with a clock that runs `rate` times as fast as others, between a hundredth and a
    /// hundred times.
    pub fn process_at(&self, rate: f64) -> (Env, Process) {
        let rate = if rate.is_finite() { rate.clamp(0.01, 100.0) } else { 1.0 };
        let order = self.inner.order.lock().as_mut().map(|order| StdRng::seed_from_u64(order.next_u64()));
        let process = Process::new(order);
        let env = Env::at_rate(self.inner.clock.clone(), StdRng::seed_from_u64(self.random()), rate);
        (Env { process: Some(process.clone()), ..env }, process)
    }

    /// Lets the tasks of processes that are created from now on run in an order that follows this seed: a task that
    /// could run sometimes waits until others have run. Tasks that other crates spawn are not affected.
    pub fn shuffle(&self, seed: u64) {
        *self.inner.order.lock() = Some(StdRng::seed_from_u64(seed));
    }
}

impl Default for Env {
    fn default() -> Env {
        Env::system()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_answers_and_another_seed_other_ones() {
        let draw = |seed| {
            let env = Env::seeded(seed);
            (env.random(), env.random_range(0..=1_000_000), env.uuid(), env.now())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[tokio::test(start_paused = true)]
    async fn virtual_wall_clock_time_follows_tokio() {
        let env = Env::seeded(0);
        let start = env.now();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(env.now().duration_since(start).as_millis(), 1500);
    }

    #[test]
    fn the_time_of_a_runtime_is_the_same_for_those_who_ask_from_outside() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        let env = runtime.block_on(async { Env::of_runtime() });
        let (instant, now) = (env.instant(), env.now());
        runtime.block_on(async { tokio::time::sleep(Duration::from_secs(3600)).await });
        assert_eq!(env.instant().duration_since(instant), Duration::from_secs(3600));
        assert_eq!(env.now().duration_since(now).as_secs(), 3600);
        let others = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let seen = others.block_on(async { (env.now(), env.within(Instant::now)) });
        assert_eq!(seen, (env.now(), env.instant()));
        let abs = Env::system().now().duration_since(now).abs();
        assert!(abs.as_secs() < 60, "it begins at the time that it is: {now}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_a_process_runs_at_its_own_rate() {
        let env = Env::seeded(0);
        let ((fast, _), (same, _)) = (env.process_at(1.25), env.process());
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(fast.now().duration_since(env.now()).as_secs(), 25);
        assert_eq!(same.now(), env.now());
        assert_eq!((fast.clock_rate(), same.clock_rate()), (1.25, 1.0));
    }

    #[test]
    fn uuids_have_version_four_and_the_rfc_variant() {
        let uuid = Env::system().uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
    }

    #[test]
    fn jitter_stays_within_its_factor() {
        let env = Env::system();
        let base = Duration::from_millis(800);
        for _ in 0..1000 {
            let d = env.jitter(base, 1.0);
            assert!(d >= base && d <= base * 2, "{d:?}");
        }
        assert_eq!(env.jitter(base, 0.0), base);
    }

    #[tokio::test]
    async fn a_task_ends_with_its_owner() {
        let env = Env::system();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let task = env.spawn(async move {
            let _held = sender;
            std::future::pending::<()>().await;
        });
        drop(task);
        assert!(receiver.await.is_err(), "the task dropped its end of the channel");
    }
}
