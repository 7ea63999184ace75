//! What handlers are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint::{Deleted, EventHandler, HandlerFns, HandlerOptions, Held, SharedInformer, is_resync};

use super::script::{Server, Watch, object, object_of, server, settle, start, words};

/// Writes down what it is told; can be stuck.
#[derive(Clone, Default)]
struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
    missed: Arc<Mutex<Vec<String>>>,
    is_stuck: Arc<AtomicBool>,
    waker: Arc<AtomicWaker>,
}

impl Diary {
    fn stuck() -> Diary {
        let diary = Diary::default();
        diary.is_stuck.store(true, Ordering::Relaxed);
        diary
    }

    fn release(&self) {
        self.is_stuck.store(false, Ordering::Relaxed);
        self.waker.wake();
    }

    fn write(&self, line: String) {
        self.lines.lock().push(line);
    }

    /// What was told since the last time.
    async fn read(&self) -> String {
        settle().await;
        std::mem::take(&mut *self.lines.lock()).join(", ")
    }
}

impl EventHandler<ConfigMap> for Diary {
    fn on_add(&self, object: &Held<ConfigMap>, is_initial: bool) {
        self.write(format!("{} {}", if is_initial { "initial" } else { "add" }, words(object)));
    }

    fn on_update(&self, old: &Held<ConfigMap>, new: &Held<ConfigMap>) {
        let verb = if is_resync(old, new) { "resync" } else { "update" };
        self.write(format!("{verb} {} {}", words(old), words(new)));
    }

    fn on_delete(&self, deleted: &Deleted<ConfigMap>) {
        let verb = if deleted.is_tombstone { "tombstone" } else { "delete" };
        self.write(format!("{verb} {}", words(&deleted.object)));
    }

    fn on_missed(&self, deleted: &Deleted<ConfigMap>) {
        self.missed.lock().push(words(&deleted.object));
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.is_stuck.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(()) }
    }
}

async fn synced(items: &[serde_json::Value]) -> (SharedInformer<ConfigMap>, Server, Watch) {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let watch = server.next().await.stream_list("10", items);
    informer.wait_for_sync().await;
    (informer, server, watch)
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_the_first_list_and_then_every_change() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let diary = Diary::default();
    let _place = informer.add_handler(diary.clone());
    let watch = server.next().await.stream_list("10", &[object("a", 3)]);
    assert_eq!(diary.read().await, "initial a@3");
    watch.event("ADDED", &object("b", 11));
    assert_eq!(diary.read().await, "add b@11");
    watch.event("MODIFIED", &object("b", 12));
    assert_eq!(diary.read().await, "update b@11 b@12");
    watch.event("DELETED", &object("b", 13));
    assert_eq!(diary.read().await, "delete b@13");
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_after_the_cache_has_it() {
    let (informer, _server, watch) = synced(&[]).await;
    let (lister, found) = (informer.lister(), Arc::new(AtomicBool::new(false)));
    let seen = found.clone();
    let _place = informer.add_handler(HandlerFns::new().on_add(move |object: &Held<ConfigMap>, _| {
        let name = object.metadata.name.as_deref().unwrap();
        seen.store(lister.namespace("default").get(name).is_some(), Ordering::Relaxed);
    }));
    watch.event("ADDED", &object("b", 11));
    settle().await;
    assert!(found.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_first_told_what_is_cached() {
    let (informer, _server, watch) = synced(&[object("a", 3)]).await;
    let diary = Diary::default();
    let registration = informer.add_handler(diary.clone());
    watch.event("MODIFIED", &object("a", 11));
    registration.wait_for_sync().await;
    let told = diary.read().await;
    assert!(["initial a@3, update a@3 a@11", "initial a@11"].contains(&told.as_str()), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_of_a_quiet_informer_is_woken_without_another_event() {
    let (informer, _server, _watch) = synced(&[object("a", 3)]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let diary = Diary::default();
    let registration = informer.add_handler(diary.clone());
    assert!(registration.wait_for_sync().await);
    assert_eq!(diary.read().await, "initial a@3");
}

#[tokio::test(start_paused = true)]
async fn the_cache_and_each_handler_have_synced_separately() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let (stuck, free) = (Diary::stuck(), Diary::default());
    let stuck_place = informer.add_handler(stuck.clone());
    let free_place = informer.add_handler(free.clone());
    let _watch = server.next().await.stream_list("10", &[object("a", 3), object("b", 4)]);
    settle().await;
    assert!(informer.has_synced());
    assert!(free_place.has_synced() && !stuck_place.has_synced());
    stuck.release();
    stuck_place.wait_for_sync().await;
    assert_eq!(stuck.read().await, "initial a@3, initial b@4");
}

#[tokio::test(start_paused = true)]
async fn an_empty_first_list_is_a_first_list() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let place = informer.add_handler(Diary::default());
    let _watch = server.next().await.stream_list("10", &[]);
    settle().await;
    assert!(informer.has_synced() && place.has_synced());
}

#[tokio::test(start_paused = true)]
async fn a_stuck_handler_delays_nobody_and_is_told_the_essence_later() {
    let (informer, _server, watch) = synced(&[object("a", 3), object("b", 4)]).await;
    let (slow, fast) = (Diary::default(), Diary::default());
    let place = informer.add_handler(slow.clone());
    let _fast_place = informer.add_handler(fast.clone());
    slow.read().await;
    fast.read().await;
    slow.is_stuck.store(true, Ordering::Relaxed);
    for version in 11..511 {
        watch.event("MODIFIED", &object("a", version));
        watch.event("ADDED", &object("short", version));
        watch.event("DELETED", &object("short", version));
    }
    watch.event("DELETED", &object("b", 600));
    watch.event("ADDED", &object_of("b", "another", 601));
    settle().await;
    assert!(fast.read().await.ends_with("delete b@600, add b@601"));
    // What can wait: two for b, one for a.
    assert!(place.backlog() <= 4, "{}", place.backlog());
    slow.release();
    let told = slow.read().await;
    assert!(told.ends_with("a@510, delete b@600, add b@601"), "{told}");
    assert!(told.matches(',').count() <= 6, "{told}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_came_and_went_before_a_handler_was_told_is_missed() {
    let (informer, _server, watch) = synced(&[object("a", 3), object("b", 4)]).await;
    let (slow, fast) = (Diary::stuck(), Diary::default());
    let _places = [slow.clone(), fast.clone()].map(|diary| informer.add_handler(diary));
    fast.read().await;
    watch.event("ADDED", &object("short", 11));
    settle().await;
    watch.event("DELETED", &object("short", 12));
    watch.event("DELETED", &object("b", 13));
    settle().await;
    assert_eq!(fast.read().await, "add short@11, delete short@12, delete b@13");
    // At once, although it takes no calls: otherwise nobody would know of it any more.
    assert_eq!(*slow.missed.lock(), ["short@12"]);
    slow.release();
    assert_eq!(slow.read().await, "initial a@3");
    assert_eq!(*slow.missed.lock(), ["short@12", "b@13"]);
    assert!(fast.missed.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_relist_tells_what_changed_and_what_is_gone() {
    let (informer, mut server, watch) =
        synced(&[object("same", 1), object("changed", 2), object("gone", 3), object("again", 4)]).await;
    let diary = Diary::default();
    let _place = informer.add_handler(diary.clone());
    diary.read().await;
    watch.error(410, "Expired", "too old");
    let list = [object("same", 1), object("changed", 12), object_of("again", "other", 14), object("new", 15)];
    let _watch = server.next().await.stream_list("20", &list);
    assert_eq!(
        diary.read().await,
        "update changed@2 changed@12, tombstone again@4, add again@14, add new@15, tombstone gone@3"
    );
}

#[tokio::test(start_paused = true)]
async fn a_resync_tells_what_is_cached_again_to_the_handler_that_wants_it() {
    let (informer, _server, watch) = synced(&[object("a", 3)]).await;
    let (often, never) = (Diary::default(), Diary::default());
    let options = HandlerOptions { resync: Some(Duration::from_secs(30)), ..HandlerOptions::default() };
    let _often = informer.add_handler_with(often.clone(), options);
    let _never = informer.add_handler(never.clone());
    assert_eq!(often.read().await, "initial a@3");
    watch.event("MODIFIED", &object("a", 11));
    often.read().await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(often.read().await, "resync a@11 a@11");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(often.read().await, "resync a@11 a@11");
    assert_eq!(never.read().await, "initial a@3, update a@3 a@11");
}

#[tokio::test(start_paused = true)]
async fn resyncs_that_a_handler_missed_are_one() {
    let (informer, _server, _watch) = synced(&[object("a", 3)]).await;
    let stuck = Diary::stuck();
    let options = HandlerOptions { resync: Some(Duration::from_secs(30)), ..HandlerOptions::default() };
    let _place = informer.add_handler_with(stuck.clone(), options);
    tokio::time::sleep(Duration::from_secs(10 * 30 + 5)).await;
    stuck.release();
    assert_eq!(stuck.read().await, "initial a@3");
    // The next one comes when it would have come anyway.
    tokio::time::sleep(Duration::from_secs(24)).await;
    assert_eq!(stuck.read().await, "");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stuck.read().await, "resync a@3 a@3");

    stuck.is_stuck.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(10 * 30)).await;
    stuck.release();
    assert_eq!(stuck.read().await, "resync a@3 a@3");
}

#[tokio::test(start_paused = true)]
async fn a_resync_that_comes_never_or_always_is_none() {
    let (informer, _server, watch) = synced(&[object("a", 3)]).await;
    for period in [Duration::ZERO, Duration::MAX] {
        let diary = Diary::default();
        let options = HandlerOptions { resync: Some(period), ..HandlerOptions::default() };
        let _place = informer.add_handler_with(diary.clone(), options);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(diary.read().await, "initial a@3");
    }
    assert!(watch.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_handler_goes_with_its_registration() {
    let (informer, _server, watch) = synced(&[object("a", 3)]).await;
    let (gone, kept) = (Diary::default(), Diary::default());
    let place = informer.add_handler(gone.clone());
    let _kept = informer.add_handler(kept.clone());
    assert_eq!(gone.read().await, "initial a@3");
    drop(place);
    watch.event("MODIFIED", &object("a", 11));
    assert_eq!(gone.read().await, "");
    assert_eq!(Arc::strong_count(&gone.lines), 1, "the handler itself is gone, too");
    assert_eq!(kept.read().await, "initial a@3, update a@3 a@11");
}

#[tokio::test(start_paused = true)]
async fn a_detached_handler_stays_as_long_as_the_informer() {
    let (informer, _server, watch) = synced(&[object("a", 3)]).await;
    let diary = Diary::default();
    informer.add_handler(diary.clone()).detach();
    watch.event("MODIFIED", &object("a", 11));
    assert!(diary.read().await.ends_with("a@11"));
    drop(informer);
    settle().await;
    assert_eq!(Arc::strong_count(&diary.lines), 1);
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_is_told_nothing_more() {
    let (informer, _server, watch) = synced(&[object("a", 3)]).await;
    let diary = Diary::default();
    let place = informer.add_handler(diary.clone());
    diary.read().await;
    place.remove().await;
    watch.event("MODIFIED", &object("a", 11));
    assert_eq!(diary.read().await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_a_handler_waits_for_the_call_in_flight() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let (entered, ended) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicBool::new(false)));
    let (enter, end) = (entered.clone(), ended.clone());
    let place = informer.add_handler(HandlerFns::new().on_add(move |_: &Held<ConfigMap>, _| {
        enter.notify_one();
        // Busy for a moment, without leaving the call.
        let start = tokio::time::Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        end.store(true, Ordering::SeqCst);
    }));
    let _watch = server.next().await.stream_list("10", &[object("a", 3), object("b", 4)]);
    entered.notified().await;
    place.remove().await;
    assert!(ended.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_told_the_next_change() {
    let (client, mut server) = server();
    let (informer, metrics) = start(client);
    let diary = Diary::default();
    let lines = diary.clone();
    let handler = HandlerFns::new().on_add(move |object: &Held<ConfigMap>, _| {
        assert_ne!(object.metadata.name.as_deref(), Some("bad"), "as planned");
        lines.write(words(object));
    });
    let _place = informer.add_handler_with(
        handler,
        HandlerOptions { name: Some("picky".into()), ..HandlerOptions::default() },
    );
    let _watch = server.next().await.stream_list("10", &[object("bad", 3), object("good", 4)]);
    assert_eq!(diary.read().await, "good@4");
    let labels = [("name", "configmaps"), ("handler", "picky")];
    assert_eq!(metrics.value("informer_handler_panics_total", &labels), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_handler_gets_the_whole_state_once_for_many_changes() {
    let (informer, _server, watch) = synced(&[object("a", 3)]).await;
    let diary = Diary::default();
    let lines = diary.clone();
    let place = informer.add_snapshot_handler(Duration::from_secs(5), move |objects| {
        let mut all: Vec<_> = objects.iter().map(|object| words(object)).collect();
        all.sort_unstable();
        lines.write(all.join("+"));
    });
    place.wait_for_sync().await;
    assert_eq!(diary.read().await, "a@3");
    for version in 11..20 {
        watch.event("MODIFIED", &object("a", version));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    watch.event("ADDED", &object("b", 20));
    assert_eq!(diary.read().await, "");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(diary.read().await, "a@19+b@20");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(diary.read().await, "");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_informer_stops_asking() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    informer.add_handler(Diary::default()).detach();
    let watch = server.next().await.stream_list("10", &[]);
    settle().await;
    drop(informer);
    settle().await;
    assert!(!watch.is_open());
}
