//! Leases: what gives objects an end. As in kube-apiserver, objects that end at about the same time share one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use etcd_client::Client;
use setpoint_env::{Env, Later};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a lease is used for new objects at most; they live so much longer.
const SHARED: Duration = Duration::from_secs(60);
/// How many objects share a lease: all of them go in one revision.
const OBJECTS: usize = 1_000;

pub(super) struct Leases {
    env: Env,
    client: Client,
    /// One asks etcd for a new one, and the others wait for it.
    current: Mutex<Option<Lease>>,
    pub(super) granted: AtomicU64,
    pub(super) attached: AtomicU64,
}

struct Lease {
    id: i64,
    ends: Instant,
    objects: usize,
}

impl Leases {
    pub(super) fn new(env: Env, client: Client) -> Leases {
        let (current, granted, attached) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Leases { env, client, current, granted, attached }
    }

    /// A lease for an object that lives for `ttl` at least.
    pub(super) async fn lease(&self, ttl: Duration) -> Result<i64, etcd_client::Error> {
        let now = self.env.instant();
        // No object lives more than a twentieth longer than it should.
        let spare = ttl.checked_div(20).unwrap_or_default().min(SHARED);
        let mut current = self.current.lock().await;
        self.attached.fetch_add(1, Relaxed);
        let fits = |lease: &&mut Lease| {
            let (least, most) = (now.later(ttl), now.later(ttl.saturating_add(spare)));
            lease.ends >= least && lease.ends <= most && lease.objects < OBJECTS
        };
        if let Some(lease) = current.as_mut().filter(fits) {
            lease.objects += 1;
            return Ok(lease.id);
        }
        let whole = ttl.saturating_add(spare);
        let seconds = i64::try_from(whole.as_secs().max(1)).unwrap_or(i64::MAX);
        let id = self.client.lease_client().grant(seconds, None).await?.id();
        self.granted.fetch_add(1, Relaxed);
        *current = Some(Lease { id, ends: now.later(whole), objects: 1 });
        Ok(id)
    }
}
