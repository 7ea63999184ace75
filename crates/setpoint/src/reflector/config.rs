//! The settings of a reflector.

use std::ops::RangeInclusive;
use std::time::Duration;

use setpoint_env::Env;

use super::Backoff;

/// How a reflector talks to the server. The defaults suit a production cluster.
#[derive(Clone, Debug)]
pub struct ReflectorConfig {
    /// Ask for a streaming list (`sendInitialEvents`) first. Servers that cannot are listed from.
    pub streaming: bool,
    /// Ask for protobuf ([`InformerBuilder::protobuf`](crate::InformerBuilder::protobuf)).
    #[cfg(feature = "protobuf")]
    pub protobuf: bool,
    /// How long a streaming list may be silent before the list is asked for without streaming; ten times
    /// this is the bound for all of it.
    pub initial_events_timeout: Duration,
    /// Let the first list come from the server's cache (`resourceVersion=0`), which may be older than what
    /// this program has seen before a restart. Has an effect on lists without streaming.
    pub list_from_cache: bool,
    /// How many objects a page of a list has.
    pub page_size: u32,
    /// For how long the server shall keep a watch open; chosen at random, so that not all watches end at
    /// once.
    pub watch_timeout: RangeInclusive<Duration>,
    /// How much longer than its timeout a watch may be silent before the connection counts as dead.
    pub silence_margin: Duration,
    /// How long the server may take to begin an answer, or to go on with a list.
    pub answer_timeout: Duration,
    /// How long to wait after failures.
    pub backoff: Backoff,
    /// How many changes may wait to be applied to the cache before the reflector stops reading.
    pub queue_capacity: usize,
    /// How many bytes of changes, as they were received, may wait before the reflector stops reading.
    pub queue_bytes: usize,
}

impl Default for ReflectorConfig {
    fn default() -> ReflectorConfig {
        ReflectorConfig {
            streaming: true,
            #[cfg(feature = "protobuf")]
            protobuf: false,
            initial_events_timeout: Duration::from_secs(30),
            list_from_cache: false,
            page_size: 500,
            watch_timeout: Duration::from_secs(300)..=Duration::from_secs(600),
            silence_margin: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(65),
            backoff: Backoff::default(),
            queue_capacity: 4096,
            queue_bytes: 64 << 20,
        }
    }
}

impl ReflectorConfig {
    pub(crate) fn asks_protobuf(&self) -> bool {
        #[cfg(feature = "protobuf")]
        return self.protobuf;
        #[cfg(not(feature = "protobuf"))]
        false
    }

    pub(super) fn random_watch_timeout(&self, env: &Env) -> Duration {
        let (low, high) = (self.watch_timeout.start().as_secs(), self.watch_timeout.end().as_secs());
        Duration::from_secs(env.random_range(low..=high.max(low)))
    }

    /// For how long a watch with this timeout may be silent.
    pub(super) fn silence(&self, watch_timeout: Duration) -> Duration {
        watch_timeout.saturating_add(self.silence_margin)
    }
}
