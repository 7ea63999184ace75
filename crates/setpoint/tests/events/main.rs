//! The event recorder against the in-process API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Namespace, ObjectReference};
use k8s_openapi::api::events::v1::Event as EventsEvent;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use setpoint::controller::Runtime;
use setpoint::events::EventApi;
use setpoint::{Action, Context, Controller, Event, Metrics, ObjectKey, ReconcileError, Recorder};
use setpoint_sim::{Match, Refusal, World};

const SECOND: Duration = Duration::from_secs(1);

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("default".to_owned());
    map.metadata.uid = Some(format!("uid-of-{name}"));
    map
}

fn recorder(world: &World, api: EventApi, metrics: &Metrics) -> Recorder {
    let builder = Recorder::builder(world.client(), "foo-controller").instance("foo-1").api(api);
    builder.env(world.env().clone()).metrics(metrics).build()
}

async fn events(world: &World) -> Vec<EventsEvent> {
    let api: Api<EventsEvent> = Api::all(world.direct());
    api.list(&ListParams::default()).await.unwrap().items
}

async fn core_events(world: &World) -> Vec<CoreEvent> {
    let api: Api<CoreEvent> = Api::all(world.direct());
    api.list(&ListParams::default()).await.unwrap().items
}

fn dropped(metrics: &Metrics, reason: &str) -> Option<u64> {
    let labels = [("controller", "foo-controller"), ("reason", reason)];
    metrics.value("event_recorder_dropped_total", &labels)
}

#[tokio::test(start_paused = true)]
async fn an_event_says_who_saw_what_about_which_object() {
    let world = World::seeded(1);
    let recorder = recorder(&world, EventApi::EventsV1, &Metrics::default());
    recorder.event(&map("web"), Event::warning("Failed", "no such image").action("Pull").related(&map("db")));
    assert_eq!(recorder.flush(SECOND).await, 0);
    let [event] = &events(&world).await[..] else { panic!("not one event") };
    assert_eq!(event.namespace().as_deref(), Some("default"));
    assert!(event.name_any().starts_with("web."), "{}", event.name_any());
    let regarding = event.regarding.as_ref().unwrap();
    assert_eq!(regarding.kind.as_deref(), Some("ConfigMap"));
    assert_eq!(regarding.uid.as_deref(), Some("uid-of-web"));
    assert_eq!(event.related.as_ref().unwrap().name.as_deref(), Some("db"));
    let words = [&event.type_, &event.reason, &event.note, &event.action];
    assert_eq!(words.map(|word| word.as_deref().unwrap()), ["Warning", "Failed", "no such image", "Pull"]);
    assert_eq!(event.reporting_controller.as_deref(), Some("foo-controller"));
    assert_eq!(event.reporting_instance.as_deref(), Some("foo-1"));
    assert_eq!(event.series, None);
}

#[tokio::test(start_paused = true)]
async fn both_apis_fold_identical_events_and_show_each_others() {
    for api in [EventApi::EventsV1, EventApi::CoreV1] {
        let world = World::seeded(1);
        let recorder = recorder(&world, api, &Metrics::default());
        for _ in 0..3 {
            recorder.event(&map("web"), Event::normal("Synced", "all is well"));
            recorder.flush(SECOND).await;
            tokio::time::sleep(SECOND).await;
        }
        let ([new], [old]) = (&events(&world).await[..], &core_events(&world).await[..]) else {
            panic!("not one event")
        };
        assert_eq!((new.name_any(), &new.note), (old.name_any(), &old.message));
        match api {
            EventApi::EventsV1 => assert_eq!(new.series.as_ref().unwrap().count, 3),
            EventApi::CoreV1 => assert_eq!((old.count, new.deprecated_count), (Some(3), Some(3))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_cluster_scoped_objects_are_in_the_default_namespace() {
    let world = World::seeded(1);
    let recorder = recorder(&world, EventApi::CoreV1, &Metrics::default());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("team-a".to_owned());
    recorder.event(&namespace, Event::normal("Seen", "a namespace"));
    recorder.flush(SECOND).await;
    assert_eq!(core_events(&world).await[0].namespace().as_deref(), Some("default"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_an_event_is_written_costs_this_event_alone() {
    let world = World::seeded(1);
    let (client, calls) = (world.client(), Arc::new(AtomicUsize::new(0)));
    let panics_once = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, earlier) = (client.clone(), calls.fetch_add(1, Ordering::Relaxed));
        async move {
            assert!(earlier > 0, "as the test wants it");
            client.send(request).await
        }
    });
    let client = kube::Client::new(panics_once, "default");
    let recorder = Recorder::builder(client, "foo-controller").env(world.env().clone()).build();
    for name in ["web", "web", "db"] {
        recorder.event(&map(name), Event::normal("Synced", "all is well"));
        assert_eq!(recorder.flush(5 * SECOND).await, 0, "{name}");
    }
    let written: Vec<_> =
        events(&world).await.into_iter().map(|event| event.regarding.unwrap().name).collect();
    assert_eq!(written, [Some("db".to_owned()), Some("web".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn recording_does_not_wait_and_a_server_that_is_away_loses_nothing_that_fits() {
    let world = World::seeded(1);
    let metrics = Metrics::default();
    let recorder = recorder(&world, EventApi::EventsV1, &metrics);
    world.stop_server();
    for n in 0..500 {
        for _ in 0..3 {
            recorder.event(&map(&format!("map-{n}")), Event::normal("Synced", "all is well"));
        }
    }
    assert_eq!(world.now(), Duration::ZERO);
    assert_eq!(recorder.flush(30 * SECOND).await, 500);
    world.start_server();
    assert_eq!(recorder.flush(60 * SECOND).await, 0);
    let events = events(&world).await;
    assert_eq!(events.len(), 500);
    assert!(events.iter().all(|event| event.series.as_ref().is_some_and(|series| series.count == 3)));
    assert_eq!(dropped(&metrics, "failed"), Some(0));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_dropped_and_counted() {
    let world = World::seeded(1);
    let metrics = Metrics::default();
    let recorder = recorder(&world, EventApi::EventsV1, &metrics);
    world.stop_server();
    (0..1500).for_each(|n| recorder.event(&map(&format!("map-{n}")), Event::normal("Synced", "done")));
    assert_eq!(dropped(&metrics, "queue_full"), Some(500));
    // After its tries an event is given up, so that the next one has its turn.
    tokio::time::sleep(200 * SECOND).await;
    let failed = dropped(&metrics, "failed").unwrap();
    assert!((8..=16).contains(&failed), "eight are tried at a time, each for about 100 s: {failed}");
    world.start_server();
    assert_eq!(recorder.flush(60 * SECOND).await, 0);
    assert_eq!(events(&world).await.len() as u64, 1000 - failed);
}

#[tokio::test(start_paused = true)]
async fn too_many_events_about_one_object_are_dropped_and_counted() {
    let world = World::seeded(1);
    let metrics = Metrics::default();
    let recorder = recorder(&world, EventApi::CoreV1, &metrics);
    for n in 0..40 {
        recorder.event(&map("web"), Event::warning("Failed", format!("try {n}")));
        recorder.flush(SECOND).await;
    }
    assert_eq!(dropped(&metrics, "spam"), Some(15));
    let events = core_events(&world).await;
    assert_eq!(events.len(), 10, "nine, and one that combines the others");
    let combined = events.iter().find(|event| event.count.unwrap() > 1).unwrap();
    assert_eq!(combined.message.as_deref(), Some("(combined from similar events): try 24"));
    assert_eq!(combined.count, Some(16));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_a_server_in_trouble_give_no_event_twice() {
    let world = World::seeded(1);
    let recorder = recorder(&world, EventApi::EventsV1, &Metrics::default());
    world.faults().on(Match::create("events")).lose_response();
    world.faults().on(Match::create("events")).refuse(Refusal::ServiceUnavailable);
    world.faults().on(Match::create("events")).silence();
    world.faults().on(Match::patch("events")).lose_response();
    for _ in 0..3 {
        recorder.event(&map("web"), Event::normal("Synced", "all is well"));
        recorder.flush(60 * SECOND).await;
    }
    world.faults().assert_all_fired();
    let [event] = &events(&world).await[..] else { panic!("not one event") };
    assert_eq!(event.series.as_ref().unwrap().count, 3);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_made_again() {
    let world = World::seeded(1);
    let recorder = recorder(&world, EventApi::EventsV1, &Metrics::default());
    let record = || recorder.event(&map("web"), Event::normal("Synced", "all is well"));
    record();
    recorder.flush(SECOND).await;
    let api: Api<EventsEvent> = Api::default_namespaced(world.direct());
    api.delete(&events(&world).await[0].name_any(), &Default::default()).await.unwrap();
    record();
    recorder.flush(SECOND).await;
    let [event] = &events(&world).await[..] else { panic!("not one event") };
    assert_eq!(event.series.as_ref().unwrap().count, 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_refuses_is_dropped_at_once() {
    let world = World::seeded(1);
    let metrics = Metrics::default();
    let recorder = recorder(&world, EventApi::EventsV1, &metrics);
    let nowhere = ObjectReference {
        name: Some("x".to_owned()),
        namespace: Some("no-such-namespace".to_owned()),
        ..Default::default()
    };
    recorder.event_about(nowhere, Event::normal("Synced", "all is well"));
    recorder.event(&map("web"), Event::normal("Synced", "all is well"));
    assert_eq!(recorder.flush(SECOND).await, 0);
    assert_eq!((dropped(&metrics, "failed"), events(&world).await.len()), (Some(1), 1));
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_recorder() {
    let world = World::seeded(1);
    let recorder = recorder(&world, EventApi::EventsV1, &Metrics::default());
    let clone = recorder.clone();
    drop(recorder);
    clone.event(&map("web"), Event::normal("Synced", "all is well"));
    assert_eq!(clone.flush(SECOND).await, 0);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    drop(clone);
    tokio::task::yield_now().await;
    assert!(tasks() < before);
}

async fn tell(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    for reason in ["Pulled", "Created", "Started"] {
        cx.recorder().event(&*map, Event::normal(reason, "done"));
    }
    Ok(Action::done())
}

#[tokio::test(start_paused = true)]
async fn what_a_busy_controller_does_is_told_whole() {
    let world = World::seeded(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(world.direct());
    for n in 0..1000 {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("map-{n}"));
        maps.create(&Default::default(), &map).await.unwrap();
    }
    world.faults().on(Match::create("events.events.k8s.io")).delay_request(SECOND / 100).always();
    let metrics = Metrics::default();
    let runtime = Runtime::with(world.client(), world.env().clone(), metrics.clone());
    let controller = Controller::of::<ConfigMap>(.., "foo-controller", tell).workers(8);
    let running = world.env().spawn(async move { controller.run(&runtime).await });
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(dropped(&metrics, "queue_full"), Some(0));
    assert_eq!(events(&world).await.len(), 3000);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn as_many_events_as_were_asked_for_wait_for_the_server_at_the_same_time() {
    let world = World::seeded(1);
    world.faults().on(Match::create("events.events.k8s.io")).delay_response(SECOND).always();
    let builder = Recorder::builder(world.client(), "foo-controller").env(world.env().clone());
    let recorder = builder.writers(50).build();
    (0..100).for_each(|n| recorder.event(&map(&format!("map-{n}")), Event::normal("Synced", "done")));
    assert_eq!(recorder.flush(60 * SECOND).await, 0);
    assert_eq!(events(&world).await.len(), 100);
    let took = world.now();
    assert!((2 * SECOND..3 * SECOND).contains(&took), "fifty and then fifty: {took:?}");
}
