//! One API server on virtual time, and clients that reach it through faults.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::try_join_all;
use kube::Client;
use kube::core::{Request, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use setpoint_apiserver::{ApiServer, Builder, ServiceAccountTokens, SigningKey, User};
use setpoint_env::{Env, Process};
use tower::Layer;

use crate::explore::Seat;
use crate::faults::{FaultLayer, Faults, Hand};
use crate::trace::Trace;

/// How many objects [`World::burst`] makes.
pub const BURST: usize = 20;
/// Signs the tokens of all worlds. An RSA signature depends on the key and the message alone, so that tokens are the same in every
/// run; the default, ECDSA, makes another one each time. It is no secret.
static SIGNING_KEY: LazyLock<Arc<SigningKey>> = LazyLock::new(|| {
    Arc::new(SigningKey::from_pem(include_str!("signing-key.pem")).expect("the key is one"))
});
/// The name of the client that goes around the faults.
pub(crate) const DIRECT: &str = "world";

/// One API server with virtual time, seeded randomness and injected faults. Clones are the same world.
///
/// Everything in it happens in one thread. [`World::run`] makes that thread's runtime; inside a
/// `#[tokio::test(start_paused = true)]` use [`World::seeded`].
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    seed: u64,
    env: Env,
    server: ApiServer,
    faults: Faults,
    bursts: AtomicUsize,
}

impl World {
    /// A world whose randomness depends on `seed` alone. Make it inside a runtime whose time is paused.
    pub fn seeded(seed: u64) -> World {
        World::with_server(seed, |server| server)
    }

    /// A world whose server has other settings, for example a short history:
    /// `World::with_server(42, |server| server.history(10, 1 << 20))`.
    pub fn with_server(seed: u64, settings: impl FnOnce(Builder) -> Builder) -> World {
        let env = Env::seeded(seed);
        let tokens = ServiceAccountTokens::new().signing_key(SIGNING_KEY.clone());
        let server = ApiServer::builder().env(env.clone()).service_account_tokens(tokens);
        let server = settings(server).build();
        let faults = Faults::new(env.clone(), seed);
        faults.set_hand(Hand::new(server.as_user(User::admin())));
        World { inner: Arc::new(Inner { seed, env, server, faults, bursts: Default::default() }) }
    }

    /// Runs `scenario` in a new world on a runtime of its own, with one thread and paused time. When it
    /// returns, whatever it has started ends.
    ///
    /// # Panics
    /// Inside another runtime.
    pub fn run<T>(seed: u64, scenario: impl AsyncFnOnce(World) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing from the system");
        runtime.block_on(async { scenario(World::seeded(seed)).await })
    }

    /// The client called `client`: it reaches the server through the faults.
    pub fn client(&self) -> Client {
        self.client_named("client")
    }

    /// A client of this name, so that faults can hit it alone: `Match::any().client("controller")`.
    pub fn client_named(&self, name: &str) -> Client {
        self.connect(self.inner.faults.layer(name))
    }

    /// A client around the faults: the world's own hand. In the trace it is called `world`.
    pub fn direct(&self) -> Client {
        self.connect(self.inner.faults.observer(DIRECT))
    }

    fn connect(&self, layer: FaultLayer) -> Client {
        Client::new(layer.layer(self.inner.server.as_user(User::admin())), "default")
    }

    /// What a process of the controller `name` runs with, and the hand that ends it.
    pub(crate) fn seat(
        &self,
        name: &Arc<str>,
        process: u32,
        is_faulty: bool,
        is_told: bool,
    ) -> (Seat, Process) {
        let (env, handle) = self.inner.env.process_at(self.inner.faults.clock_rate(name));
        let layer = if is_faulty { self.inner.faults.layer(name) } else { self.inner.faults.observer(name) };
        let layer = layer.process(&handle);
        let client = self.connect(layer.clone());
        let (name, facts, world) = (name.clone(), is_told.then(Arc::default), self.clone());
        (Seat { name, process, client, layer, env, world, facts }, handle)
    }

    /// The hand of somebody else.
    pub(crate) fn hand(&self) -> Hand {
        self.inner.faults.hand().expect("a world is made with a hand")
    }

    /// The faults between the clients and the server.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// The server itself, for example to make it forget its history: `world.server().compact()`.
    pub fn server(&self) -> &ApiServer {
        &self.inner.server
    }

    /// Time, randomness and tasks of this world, for what runs in it.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        self.inner.faults.now()
    }

    /// Restarts the server: requests under way and watches are reset, the state stays. The direct client does
    /// not feel it.
    pub fn restart_server(&self) {
        self.stop_server();
        self.start_server();
    }

    /// Stops the server until [`World::start_server`]: requests under way and watches are reset, new
    /// connections are refused.
    pub fn stop_server(&self) {
        self.inner.faults.stop_server();
    }

    /// Lets clients connect again.
    pub fn start_server(&self) {
        self.inner.faults.start_server();
    }

    /// Creates [`BURST`] objects at the same moment through the direct client, `object(0)`, `object(1)` …,
    /// each in its own namespace or in none. A gentle start hides what depends on luck; a burst shows it.
    pub async fn burst<K>(&self, object: impl Fn(usize) -> K) -> kube::Result<Vec<K>>
    where
        K: Resource<DynamicType: Default> + Serialize + DeserializeOwned,
    {
        self.inner.bursts.fetch_add(1, Ordering::Relaxed);
        let client = self.direct();
        let create = |n| {
            let (client, object) = (client.clone(), object(n));
            async move {
                let path = K::url_path(&K::DynamicType::default(), object.meta().namespace.as_deref());
                let body = serde_json::to_vec(&object).map_err(kube::Error::SerdeError)?;
                let request = Request::new(path).create(&Default::default(), body);
                client.request(request.map_err(kube::Error::BuildRequest)?).await
            }
        };
        try_join_all((0..BURST).map(create)).await
    }

    pub(crate) fn has_burst(&self) -> bool {
        self.inner.bursts.load(Ordering::Relaxed) > 0
    }

    /// What has happened so far.
    pub fn trace(&self) -> Trace {
        self.inner.faults.trace()
    }

    /// One number for everything that has happened so far.
    pub fn trace_hash(&self) -> u64 {
        self.trace().hash()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("seed", &self.inner.seed)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
