//! What becomes of an informer when one of its tasks panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint::{Deleted, EventHandler, Held, MapStore, Metrics, ObjectKey, SharedInformer, Slot, Store};

use super::script::{Server, Watch, builder, cached, object, server, settle, words};

/// A store that panics on its next change, before or after the change is made, if told to.
#[derive(Clone, Default)]
struct Trap {
    before: Arc<AtomicBool>,
    after: Arc<AtomicBool>,
}

struct Trapped {
    inner: MapStore<ConfigMap>,
    trap: Trap,
}

impl Trapped {
    fn spring(trap: &AtomicBool) {
        assert!(!trap.swap(false, Ordering::Relaxed), "as planned");
    }
}

impl Store<ConfigMap> for Trapped {
    fn find(&self, key: &ObjectKey) -> Option<Slot> {
        self.inner.find(key)
    }
    fn get(&self, slot: Slot) -> Option<Held<ConfigMap>> {
        self.inner.get(slot)
    }
    fn insert(&mut self, object: Held<ConfigMap>) -> (Slot, Option<Held<ConfigMap>>) {
        Trapped::spring(&self.trap.before);
        let inserted = self.inner.insert(object);
        Trapped::spring(&self.trap.after);
        inserted
    }
    fn remove(&mut self, key: &ObjectKey) -> Option<(Slot, Held<ConfigMap>)> {
        Trapped::spring(&self.trap.before);
        let removed = self.inner.remove(key);
        Trapped::spring(&self.trap.after);
        removed
    }
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn for_each(&self, visit: &mut dyn FnMut(Slot, &Held<ConfigMap>)) {
        self.inner.for_each(visit);
    }
}

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    async fn read(&self) -> String {
        settle().await;
        std::mem::take(&mut *self.0.lock()).join(", ")
    }
}

impl EventHandler<ConfigMap> for Diary {
    fn on_add(&self, object: &Held<ConfigMap>, is_initial: bool) {
        self.0.lock().push(format!("{} {}", if is_initial { "initial" } else { "add" }, words(object)));
    }

    fn on_update(&self, old: &Held<ConfigMap>, new: &Held<ConfigMap>) {
        self.0.lock().push(format!("update {} {}", words(old), words(new)));
    }

    fn on_delete(&self, deleted: &Deleted<ConfigMap>) {
        self.0.lock().push(format!("delete {}", words(&deleted.object)));
    }
}

const LABELS: [(&str, &str); 2] = [("name", "configmaps"), ("namespace", "")];

struct Trappable {
    informer: SharedInformer<ConfigMap>,
    server: Server,
    trap: Trap,
    metrics: Metrics,
}

fn trappable() -> Trappable {
    let (client, server) = server();
    let (trap, metrics) = (Trap::default(), Metrics::default());
    let store = Trapped { inner: MapStore::default(), trap: trap.clone() };
    let informer = builder(client).store(store).metrics(metrics.clone()).build();
    informer
        .add_index("version", |map: &ConfigMap| map.metadata.resource_version.clone().into_iter().collect())
        .unwrap();
    informer.start();
    Trappable { informer, server, trap, metrics }
}

async fn synced(items: &[serde_json::Value]) -> (Trappable, Watch) {
    let mut all = trappable();
    let watch = all.server.next().await.stream_list("10", items);
    all.informer.wait_for_sync().await;
    (all, watch)
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_changes_are_applied_restarts_the_informer_from_a_list() {
    for (spring_before, event) in
        [(true, "MODIFIED"), (false, "MODIFIED"), (true, "DELETED"), (false, "DELETED")]
    {
        let (mut all, watch) = synced(&[object("a", 3), object("b", 4)]).await;
        let diary = Diary::default();
        let _place = all.informer.add_handler(diary.clone());
        assert_eq!(diary.read().await, "initial a@3, initial b@4");
        let trap = if spring_before { &all.trap.before } else { &all.trap.after };
        trap.store(true, Ordering::Relaxed);
        watch.event(event, &object("a", 11));
        settle().await;
        assert!(!watch.is_open(), "the reflector starts again");
        assert!(!all.informer.has_synced() && !all.informer.is_healthy());
        assert_eq!(cached(&all.informer), ["a@3", "b@4"], "a batch is applied as a whole or not at all");
        let asked = all.server.next().await;
        assert_eq!(asked.param("resourceVersion"), Some("10"), "not older than the cache");
        let list =
            if event == "DELETED" { vec![object("b", 4)] } else { vec![object("a", 11), object("b", 4)] };
        let _watch = asked.stream_list("11", &list);
        all.informer.wait_for_sync().await;
        assert!(all.informer.is_healthy());
        let told = if event == "DELETED" { "delete a@3" } else { "update a@3 a@11" };
        assert_eq!(diary.read().await, told);
        assert_eq!(all.metrics.value("informer_restarts_total", &LABELS), Some(1));
        let lister = all.informer.lister();
        let count = |version| lister.by_index("version", version).unwrap().len();
        assert_eq!((count("3"), count("4")), (0, 1));
        assert_eq!(count("11"), usize::from(event == "MODIFIED"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_first_list_is_in_the_way_of_nothing_but_time() {
    let mut all = trappable();
    let diary = Diary::default();
    let place = all.informer.add_handler(diary.clone());
    all.trap.after.store(true, Ordering::Relaxed);
    let _first = all.server.next().await.stream_list("10", &[object("a", 3), object("b", 4)]);
    settle().await;
    assert!(!all.informer.has_synced() && all.informer.lister().is_empty());
    assert!(all.informer.trouble()[0].contains("as planned"), "{:?}", all.informer.trouble());
    let _second = all.server.next().await.stream_list("10", &[object("a", 3), object("b", 4)]);
    assert!(place.wait_for_sync().await);
    assert_eq!(diary.read().await, "initial a@3, initial b@4");
}

#[tokio::test(start_paused = true)]
async fn a_reflector_that_panics_is_started_again_later_and_later() {
    let (mut all, watch) = synced(&[object("a", 3)]).await;
    watch.panic();
    let mut least = Duration::from_millis(800);
    for _ in 0..4 {
        let start = tokio::time::Instant::now();
        let asked = all.server.next().await;
        assert!(!all.informer.has_synced());
        let pause = asked.at - start;
        assert!(least <= pause && pause <= least * 2, "{pause:?}");
        asked.watch().panic();
        least *= 2;
    }
    let _watch = all.server.next().await.stream_list("20", &[object("b", 15)]);
    all.informer.wait_for_sync().await;
    assert_eq!(cached(&all.informer), ["b@15"]);
    assert_eq!(all.metrics.value("informer_restarts_total", &LABELS), Some(5));
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_shut_down_is_not_restarted() {
    let (mut all, watch) = synced(&[]).await;
    watch.panic();
    settle().await;
    all.informer.shutdown().await;
    all.server.quiet_for(Duration::from_secs(600)).await;
}

/// A handler whose `poll_ready` panics a few times.
#[derive(Clone, Default)]
struct Shy {
    diary: Diary,
    panics: Arc<AtomicUsize>,
}

impl EventHandler<ConfigMap> for Shy {
    fn on_add(&self, object: &Held<ConfigMap>, is_initial: bool) {
        self.diary.on_add(object, is_initial);
    }

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<()> {
        let left = self.panics.load(Ordering::Relaxed);
        assert_eq!(left, 0, "as planned, {}", self.panics.fetch_sub(1, Ordering::Relaxed));
        Poll::Ready(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_task_panics_loses_nothing() {
    let (all, watch) = synced(&[object("a", 3)]).await;
    let shy = Shy { panics: Arc::new(AtomicUsize::new(3)), ..Shy::default() };
    let place = all.informer.add_handler_with(
        shy.clone(),
        setpoint::HandlerOptions { name: Some("shy".into()), ..Default::default() },
    );
    watch.event("ADDED", &object("b", 11));
    assert!(place.wait_for_sync().await);
    assert_eq!(shy.diary.read().await, "initial a@3, add b@11");
    let labels = [("name", "configmaps"), ("handler", "shy")];
    assert_eq!(all.metrics.value("informer_handler_panics_total", &labels), Some(3));
    assert!(all.informer.is_healthy(), "the cache has nothing to do with it");
}

#[tokio::test(start_paused = true)]
async fn a_transform_or_an_index_function_that_panics_costs_one_object() {
    let (client, mut server) = server();
    let informer = builder(client).trim(|map: &mut ConfigMap| {
        assert_ne!(map.metadata.name.as_deref(), Some("bad"), "as planned");
    });
    let informer = informer.build();
    informer
        .add_index("name", |map: &setpoint::Trimmed<ConfigMap>| {
            let name = map.partial().metadata.name.clone().unwrap();
            assert_ne!(name, "worse", "as planned");
            vec![name]
        })
        .unwrap();
    informer.start();
    let _watch =
        server.next().await.stream_list("10", &[object("bad", 1), object("worse", 2), object("good", 3)]);
    informer.wait_for_sync().await;
    let lister = informer.lister();
    assert_eq!((lister.len(), lister.by_index("name", "good").unwrap().len()), (2, 1));
    assert!(lister.by_index("name", "worse").unwrap().is_empty());
}
