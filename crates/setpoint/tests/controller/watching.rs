//! What a controller watches: parts of kinds, kinds that are known at run time only, and what comes and goes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::client::find_resource;
use setpoint::controller::Runtime;
use setpoint::{
    Action, Context, Controller, Metrics, ObjectKey, Predicate, ReconcileError, ScopedResource, Verb, Watch,
};
use setpoint_sim::{Match, World};
use tokio::time::sleep;

use crate::support::{Counter, SECOND, create_map, map, maps, run};

fn labelled(name: &str, tier: &str) -> ConfigMap {
    let mut map = map(name);
    map.metadata.labels = Some([("tier".to_owned(), tier.to_owned())].into());
    map
}

fn front() -> Watch<ConfigMap> {
    Watch::new().labels("tier=front")
}

fn back() -> Watch<ConfigMap> {
    Watch::new().labels("tier=back")
}

type Calls = Arc<Mutex<Vec<String>>>;

fn noting(calls: &Calls) -> impl setpoint::Reconciler + use<> {
    let calls = calls.clone();
    move |key: ObjectKey, _: Context| {
        calls.lock().push(key.name().to_owned());
        async { Ok::<_, ReconcileError>(Action::done()) }
    }
}

fn take(calls: &Calls) -> Vec<String> {
    let mut calls = std::mem::take(&mut *calls.lock());
    calls.sort_unstable();
    calls.dedup();
    calls
}

#[test]
fn two_watches_of_one_kind_have_a_cache_each_and_the_reader_says_which() {
    World::run(1, async |world| {
        maps(&world).create(&PostParams::default(), &labelled("a", "front")).await.unwrap();
        maps(&world).create(&PostParams::default(), &labelled("b", "back")).await.unwrap();
        let seen = Arc::new(Mutex::new(None));
        let log = seen.clone();
        let reconcile = move |_: ObjectKey, cx: Context| {
            let lens = (cx.lister_of(&front()).unwrap().len(), cx.lister_of(&back()).unwrap().len());
            let ambiguous = cx.lister::<ConfigMap>().map(drop).unwrap_err();
            let missing = cx.lister::<Secret>().map(drop).unwrap_err();
            *log.lock() = Some((lens.0, lens.1, ambiguous, missing));
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let _running = run(&world, Controller::of(front(), "front", reconcile).reads(back()));
        sleep(SECOND).await;
        let (front, back, ambiguous, missing) = seen.lock().take().expect("a reconcile");
        assert_eq!((front, back), (1, 1));
        let both = "configmaps with labels tier=front, configmaps with labels tier=back";
        assert!(ambiguous.to_string().contains(both), "{ambiguous}");
        assert!(
            missing.to_string().contains("has no cache of") && missing.to_string().contains("Secret"),
            "{missing}"
        );
    });
}

#[test]
fn equal_watches_share_a_cache_and_what_is_only_read_triggers_nothing() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Calls::default();
        let controller = Controller::of::<Namespace>(.., "namespaces", noting(&calls))
            .reads::<ConfigMap>(..)
            .reads(Watch::<ConfigMap>::new());
        let running = run(&world, controller);
        sleep(SECOND).await;
        assert!(!take(&calls).is_empty());
        create_map(&world, "b").await;
        sleep(SECOND).await;
        assert_eq!(take(&calls), [""; 0]);
        assert_eq!(running.runtime.informers().informer::<ConfigMap>().lister().len(), 2);
        assert_eq!(world.trace().requests(&Match::watch("configmaps")).count(), 1);
    });
}

#[test]
fn a_watch_of_two_namespaces_leaves_out_the_third() {
    World::run(1, async |world| {
        for name in ["x", "y", "z"] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            Api::all(world.direct()).create(&PostParams::default(), &namespace).await.unwrap();
            let maps: Api<ConfigMap> = Api::namespaced(world.direct(), name);
            maps.create(&PostParams::default(), &map(name)).await.unwrap();
        }
        let calls = Calls::default();
        let watch = Watch::<ConfigMap>::new().namespaces(["x", "y"]);
        let _running = run(&world, Controller::of(watch, "some", noting(&calls)));
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["x", "y"]);
    });
}

#[test]
fn a_filter_belongs_to_its_watch_whatever_the_order_of_calls() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Calls::default();
        let quiet = Watch::<Secret>::metadata_only().filter(!Predicate::new(|_| true));
        let controller = Controller::of(
            Watch::<ConfigMap>::new().filter_updates(|old, new| old.data != new.data),
            "data",
            noting(&calls),
        )
        .watches(quiet, |secret: &PartialObjectMeta<Secret>| {
            ObjectKey::of(&secret.metadata).into_iter().collect()
        });
        let _running = run(&world, controller);
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["a"]);
        let change = async |patch: serde_json::Value| {
            maps(&world).patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            sleep(SECOND).await;
        };
        change(json!({"metadata": {"labels": {"a": "b"}}})).await;
        assert_eq!(take(&calls), [""; 0]);
        change(json!({"data": {"k": "v"}})).await;
        assert_eq!(take(&calls), ["a"]);
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
        Api::default_namespaced(world.direct()).create(&PostParams::default(), &secret).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(take(&calls), [""; 0]);
    });
}

fn dynamic_maps() -> Watch<DynamicObject> {
    Watch::dynamic(&ScopedResource::of::<ConfigMap>())
}

#[test]
fn a_controller_can_be_of_a_kind_that_is_known_at_run_time_only_and_own_another() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Calls::default();
        let secrets = Watch::dynamic(&ScopedResource::of::<Secret>());
        let controller = Controller::of(dynamic_maps(), "dynamic", noting(&calls)).owns(secrets);
        let _running = run(&world, controller);
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["a"]);
        let parent = maps(&world).get("a").await.unwrap();
        let child = crate::support::child_of(&parent);
        crate::support::secrets(&world).create(&PostParams::default(), &child).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["a"], "by its child");
    });
}

#[test]
fn what_is_done_with_kinds_that_are_known_at_run_time_only_is_declared() {
    let widget = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let widgets = ScopedResource::cluster(ApiResource::from_gvk(&widget));
    let controller = Controller::of(Watch::dynamic(&widgets), "dynamic", noting(&Calls::default()))
        .owns(Watch::dynamic(&ScopedResource::of::<Secret>()))
        .writes_of(&widgets, &[Verb::Get, Verb::Patch])
        .writes_status_of(&widgets);
    let needs = controller.permissions();
    let verbs = [Verb::Get, Verb::List, Verb::Watch, Verb::Patch];
    assert_eq!(needs.verbs("example.com", "widgets"), verbs);
    assert_eq!(needs.verbs("example.com", "widgets/status"), [Verb::Patch]);
    assert_eq!(needs.verbs("", "secrets"), [Verb::List, Verb::Watch]);
}

/// What a controller asks for in a manager of one namespace.
#[test]
fn a_kind_that_is_in_no_namespace_is_watched_whatever_the_namespaces() {
    World::run(1, async |world| {
        let env = world.env().clone();
        let runtime = Runtime::with(world.client(), env.clone(), Metrics::default());
        let runtime = runtime.factory(|factory| factory.namespace("default"));
        let kind = find_resource(&world.direct(), "", "v1", "namespaces").await.unwrap().unwrap();
        assert!(!kind.is_namespaced);
        let (calls, dynamic) = (Calls::default(), Watch::dynamic(&kind).namespaces(["elsewhere"]));
        let controller = Controller::of(dynamic, "dynamic", noting(&calls)).reads::<Namespace>(..);
        let _running = env.spawn(async move { controller.run(&runtime).await });
        sleep(SECOND).await;
        assert!(take(&calls).contains(&"default".to_owned()));
    });
}

#[test]
fn watches_come_and_go_while_the_controller_runs_and_their_caches_with_them() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Calls::default();
        let controller = Controller::of::<Namespace>(.., "operator", noting(&calls));
        let watches = controller.watches_handle();
        let running = run(&world, controller);
        sleep(SECOND).await;
        take(&calls);
        let key = |map: &DynamicObject| ObjectKey::of(&map.metadata).into_iter().collect();
        watches.watches(dynamic_maps(), key).await.unwrap();
        watches.watches(dynamic_maps(), key).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["a"]);
        create_map(&world, "b").await;
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["b"]);
        assert!(running.runtime.informers().synced_by_kind().contains_key("configmaps"));

        assert!(watches.remove(&dynamic_maps()).await.unwrap());
        assert!(!watches.remove(&dynamic_maps()).await.unwrap(), "it is gone already");
        sleep(SECOND).await;
        create_map(&world, "c").await;
        sleep(SECOND).await;
        assert_eq!(take(&calls), [""; 0]);
        assert!(!running.runtime.informers().synced_by_kind().contains_key("configmaps"));

        watches.watches(dynamic_maps(), key).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["a", "b", "c"], "it can come again");
        running.runtime.shutdown().cancel();
        running.task.await.unwrap().unwrap();
        let ended = watches.reads(dynamic_maps()).await.unwrap_err();
        assert_eq!(ended.to_string(), "the controller has ended");
    });
}

#[test]
fn a_cache_that_somebody_else_uses_stays_when_a_watch_goes() {
    World::run(1, async |world| {
        let controller = Controller::of::<Namespace>(.., "operator", noting(&Calls::default()));
        let watches = controller.watches_handle();
        let running = run(&world, controller);
        watches.reads::<ConfigMap>(..).await.unwrap();
        let informer = running.runtime.informers().informer::<ConfigMap>();
        assert!(watches.remove(&Watch::<ConfigMap>::new()).await.unwrap());
        create_map(&world, "a").await;
        sleep(SECOND).await;
        assert_eq!(informer.lister().len(), 1);
    });
}

#[test]
fn a_watch_whose_cache_is_there_already_is_added_when_that_has_caught_up() {
    World::run(1, async |world| {
        world.faults().on(Match::watch("configmaps")).delay_events(20 * SECOND).always();
        let controller = Controller::of::<Namespace>(.., "operator", noting(&Calls::default()));
        let watches = controller.watches_handle();
        let running = run(&world, controller);
        let informer = running.runtime.informers().informer::<ConfigMap>();
        informer.start();
        informer.wait_for_sync().await;
        create_map(&world, "a").await;
        let hasty = watches.clone().sync_limit(SECOND).reads::<ConfigMap>(..).await.unwrap_err();
        let why = std::error::Error::source(&hasty).unwrap().to_string();
        assert!(why.contains("configmaps (it is behind the server)"), "{why}");
        watches.reads::<ConfigMap>(..).await.unwrap();
        assert_eq!(informer.lister().len(), 1, "what was there is cached");
        let start = tokio::time::Instant::now();
        watches.reads::<ConfigMap>(..).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO, "it is there already");
    });
}

#[test]
fn a_watch_that_cannot_sync_is_not_added_and_the_error_says_why() {
    World::run(1, async |world| {
        let controller =
            Controller::of::<Namespace>(.., "operator", noting(&Calls::default())).sync_limit(10 * SECOND);
        let watches = controller.watches_handle();
        let running = run(&world, controller);
        let missing = ApiResource {
            group: "example.com".into(),
            version: "v1".into(),
            api_version: "example.com/v1".into(),
            kind: "Missing".into(),
            plural: "missings".into(),
        };
        let error = watches.reads(Watch::dynamic(&ScopedResource::namespaced(missing))).await.unwrap_err();
        let cause = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(cause.contains("missings.example.com"), "{cause}");
        assert!(!running.runtime.informers().synced_by_kind().contains_key("missings.example.com"));
    });
}

#[test]
fn a_key_that_is_held_for_a_watch_is_released_when_that_goes() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |key: ObjectKey, cx: Context| {
            let n = counter.inc();
            async move {
                if n == 1 {
                    cx.watches()?.reads::<Secret>(..).await?;
                    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": key.name()}}))?;
                    Api::default_namespaced(cx.client()).create(&PostParams::default(), &secret).await?;
                }
                Ok::<_, ReconcileError>(Action::requeue_after(SECOND))
            }
        };
        let _held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        let controller = Controller::of::<ConfigMap>(.., "held", reconcile).catch_up_limit(3000 * SECOND);
        let watches = controller.watches_handle();
        let _running = run(&world, controller);
        sleep(60 * SECOND).await;
        assert_eq!(calls.get(), 1, "its cache does not show the Secret");
        assert!(watches.remove(&Watch::<Secret>::new()).await.unwrap());
        sleep(10 * SECOND).await;
        assert!(calls.get() > 1);
    });
}

#[test]
fn of_two_who_add_a_watch_one_may_give_up_and_the_other_gets_it() {
    World::run(1, async |world| {
        let controller =
            Controller::of::<Namespace>(.., "operator", noting(&Calls::default())).sync_limit(10 * SECOND);
        let watches = controller.watches_handle();
        let running = run(&world, controller);
        sleep(SECOND).await;
        world.faults().on(Match::watch("secrets")).delay_request(12 * SECOND);
        let late = watches.clone();
        let late = world.env().spawn(async move { late.reads::<Secret>(..).await });
        sleep(5 * SECOND).await;
        watches.reads::<Secret>(..).await.unwrap();
        assert!(late.await.unwrap().is_err(), "its time was over two seconds before");
        assert!(running.runtime.informers().synced_by_kind().contains_key("secrets"), "it is watched");
        assert!(watches.remove(&Watch::<Secret>::new()).await.unwrap());
    });
}

#[test]
fn a_watch_can_be_given_less_time_than_the_controllers() {
    World::run(1, async |world| {
        let controller = Controller::of::<Namespace>(.., "operator", noting(&Calls::default()));
        let watches = controller.watches_handle();
        let _running = run(&world, controller);
        sleep(SECOND).await;
        world.faults().on(Match::watch("secrets")).delay_request(12 * SECOND);
        let begun = tokio::time::Instant::now();
        assert!(watches.clone().sync_limit(3 * SECOND).reads::<Secret>(..).await.is_err());
        assert!(begun.elapsed() < 4 * SECOND, "{:?}", begun.elapsed());
        assert!(!watches.remove(&Watch::<Secret>::new()).await.unwrap(), "nothing was added");
    });
}

#[test]
fn a_watch_is_not_added_if_the_wait_for_it_is_cut_off() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let adds = async |key: ObjectKey, cx: Context| {
            if cx.lister::<ConfigMap>()?.get(&key).is_none() {
                return Ok(Action::done());
            }
            cx.watches()?.watches::<Secret>(.., |_| Vec::new()).await?;
            Ok::<_, ReconcileError>(Action::done())
        };
        let controller = Controller::of::<ConfigMap>(.., "adds", adds).time_limit(3 * SECOND);
        let watches = controller.watches_handle();
        world.faults().on(Match::watch("secrets")).delay_request(600 * SECOND);
        let running = run(&world, controller);
        let secrets = || running.runtime.informers().synced_by_kind().get("secrets").copied();
        sleep(2 * SECOND).await;
        assert_eq!(secrets(), Some(false), "it waits");
        maps(&world).delete("a", &DeleteParams::default()).await.unwrap();
        sleep(1100 * SECOND / 1000).await;
        assert_eq!(secrets(), None, "nobody waits for it, and nobody has it");
        assert!(!watches.remove(&Watch::<Secret>::new()).await.unwrap());
    });
}

#[test]
fn of_two_who_add_a_watch_one_may_be_cut_off_and_the_other_gets_it() {
    World::run(1, async |world| {
        let controller = Controller::of::<Namespace>(.., "operator", noting(&Calls::default()));
        let watches = controller.watches_handle();
        let running = run(&world, controller);
        sleep(SECOND).await;
        world.faults().on(Match::watch("secrets")).delay_request(12 * SECOND);
        let other = watches.clone();
        let other = world.env().spawn(async move { other.reads::<Secret>(..).await });
        assert!(tokio::time::timeout(3 * SECOND, watches.reads::<Secret>(..)).await.is_err());
        other.await.unwrap().unwrap();
        // One that is there already stays, whoever adds it again.
        watches.reads::<Secret>(..).await.unwrap();
        assert!(running.runtime.informers().synced_by_kind().contains_key("secrets"), "it is watched");
        assert!(watches.remove(&Watch::<Secret>::new()).await.unwrap());
    });
}

#[test]
fn a_watch_that_is_removed_while_it_is_added_is_an_error() {
    World::run(1, async |world| {
        let controller = Controller::of::<Namespace>(.., "operator", noting(&Calls::default()));
        let watches = controller.watches_handle();
        let _running = run(&world, controller);
        sleep(SECOND).await;
        world.faults().on(Match::watch("secrets")).delay_request(12 * SECOND);
        let adding = watches.clone();
        let adding = world.env().spawn(async move { adding.reads::<Secret>(..).await });
        sleep(SECOND).await;
        assert!(watches.remove(&Watch::<Secret>::new()).await.unwrap());
        let error = adding.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the watch was removed while it was added");
    });
}

/// Loses the answer to the Secret of one key; makes a ServiceAccount for the other, unless there is one.
async fn take_turns(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if key.name() == "asks" && cx.lister::<Secret>().is_err() {
        cx.watches()?.reads::<Secret>(..).await?;
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "lost"}}))?;
        Api::default_namespaced(cx.client()).create(&PostParams::default(), &secret).await?;
    }
    if key.name() != "makes" {
        return Ok(Action::done());
    }
    if !cx.lister::<ServiceAccount>()?.list().iter().any(|account| is_made(account)) {
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"generateName": "made-"}}))?;
        Api::default_namespaced(cx.client()).create(&PostParams::default(), &account).await?;
    }
    Ok(Action::requeue_after(SECOND))
}

fn is_made(account: &ServiceAccount) -> bool {
    account.metadata.generate_name.as_deref() == Some("made-")
}

#[test]
fn a_cache_that_went_does_not_speak_for_the_one_that_came_after_it() {
    World::run(1, async |world| {
        // Whether the Secret was made is asked for a long time, of the cache that it was to be in.
        world.faults().on(Match::create("secrets")).lose_response();
        world.faults().on(Match::list("secrets")).delay_response(1000 * SECOND);
        world.faults().on(Match::watch("serviceaccounts")).delay_events(5 * SECOND).always();
        let controller = Controller::of::<ConfigMap>(.., "turns", take_turns).catch_up_limit(3000 * SECOND);
        let watches = controller.watches_handle();
        let _running = run(&world, controller);
        create_map(&world, "asks").await;
        sleep(SECOND).await;
        assert!(watches.remove(&Watch::<Secret>::new()).await.unwrap());
        watches.reads::<ServiceAccount>(..).await.unwrap();
        create_map(&world, "makes").await;
        for n in 0..30 {
            sleep(SECOND).await;
            let news: Secret =
                serde_json::from_value(json!({"metadata": {"name": format!("news-{n}")}})).unwrap();
            crate::support::secrets(&world).create(&PostParams::default(), &news).await.unwrap();
        }
        let accounts: Api<ServiceAccount> = Api::default_namespaced(world.direct());
        let all = accounts.list(&Default::default()).await.unwrap();
        assert_eq!(all.iter().filter(|account| is_made(account)).count(), 1);
        world.faults().assert_all_fired();
    });
}

/// ConfigMaps by the Secret that they name.
fn by_secret() -> Watch<ConfigMap> {
    Watch::new().index("secret", |map: &ConfigMap| {
        let name = map.data.as_ref().and_then(|data| data.get("secret"));
        name.map(|name| ObjectKey::namespaced("default", name).to_string()).into_iter().collect()
    })
}

fn naming(name: &str, secret: &str) -> ConfigMap {
    let mut map = map(name);
    map.data = Some([("secret".to_owned(), secret.to_owned())].into());
    map
}

#[test]
fn who_refers_to_an_object_is_reconciled_when_that_changes() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        for name in ["b", "c"] {
            maps(&world).create(&PostParams::default(), &naming(name, "wanted")).await.unwrap();
        }
        let calls = Calls::default();
        let controller =
            Controller::of(by_secret(), "refers", noting(&calls)).refers_to::<Secret>(.., "secret");
        assert_eq!(controller.permissions().verbs("", "secrets").len(), 2);
        let _running = run(&world, controller);
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["a", "b", "c"]);
        for name in ["other", "wanted"] {
            let secret: Secret = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            crate::support::secrets(&world).create(&PostParams::default(), &secret).await.unwrap();
        }
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["b", "c"]);
    });
}

#[test]
fn an_index_that_is_missing_or_means_something_else_keeps_a_controller_from_starting() {
    World::run(1, async |world| {
        let cause_of = |error: &dyn std::error::Error| error.source().expect("a cause").to_string();
        let missing = Controller::of::<ConfigMap>(.., "refers", noting(&Calls::default()))
            .refers_to::<Secret>(.., "secret");
        let error = run(&world, missing).task.await.unwrap().unwrap_err();
        assert!(cause_of(&error).contains("no index is named \"secret\""), "{error}");

        let other = Watch::<ConfigMap>::new().index("secret", |_: &ConfigMap| Vec::new());
        let twice = Controller::of(by_secret(), "twice", noting(&Calls::default())).reads(other);
        let error = run(&world, twice).task.await.unwrap().unwrap_err();
        assert!(cause_of(&error).contains("an index named \"secret\" exists already"), "{error}");

        let same = Controller::of(by_secret(), "same", noting(&Calls::default())).reads(by_secret());
        let running = run(&world, same);
        sleep(SECOND).await;
        assert!(!running.task.is_finished());
    });
}

/// Of one type, whichever it is.
type Values = fn(&ConfigMap) -> Vec<String>;

#[test]
fn functions_that_are_told_apart_by_their_values_only_are_not_taken_for_one_another() {
    fn nothing(_: &ConfigMap) -> Vec<String> {
        Vec::new()
    }
    fn name(map: &ConfigMap) -> Vec<String> {
        map.metadata.name.iter().cloned().collect()
    }
    let pointed = |function: Values| Watch::<ConfigMap>::new().index("of", function);
    let captured = |key: &'static str| {
        Watch::<ConfigMap>::new().index("of", move |map: &ConfigMap| {
            map.data.iter().filter_map(|data| data.get(key).cloned()).collect()
        })
    };
    World::run(1, async |world| {
        let twice = |one: Watch<ConfigMap>, two: Watch<ConfigMap>| {
            run(&world, Controller::of(one, "twice", noting(&Calls::default())).reads(two))
        };
        for (one, two) in [
            (pointed(name), pointed(nothing)),
            (captured("a"), captured("b")),
            (Watch::new().index("of", name), Watch::new().index("of", nothing)),
            (Watch::new().index("of", name).index("of", nothing), Watch::new()),
        ] {
            let ended = tokio::time::timeout(SECOND, twice(one, two).task).await.expect("it does not start");
            let error = ended.unwrap().unwrap_err();
            let cause = std::error::Error::source(&error).expect("a cause").to_string();
            assert!(cause.contains("an index named \"of\" exists already"), "{cause}");
        }
        for one in [pointed(name), captured("a"), Watch::new().index("of", name).index("of", name)] {
            let running = twice(one.clone(), one);
            sleep(SECOND).await;
            assert!(!running.task.is_finished(), "clones are the same");
        }
    });
}

#[test]
fn a_watch_that_is_added_again_brings_its_indices() {
    World::run(1, async |world| {
        maps(&world).create(&PostParams::default(), &naming("a", "s")).await.unwrap();
        let controller = Controller::of::<Namespace>(.., "operator", noting(&Calls::default()));
        let watches = controller.watches_handle();
        let running = run(&world, controller);
        watches.reads::<ConfigMap>(..).await.unwrap();
        watches.reads(by_secret()).await.unwrap();
        let lister = running.runtime.informers().informer::<ConfigMap>().lister();
        assert_eq!(lister.by_index("secret", "default/s").unwrap().len(), 1);
        let other = Watch::<ConfigMap>::new().index("secret", |_: &ConfigMap| Vec::new());
        let refused = watches.reads(other).await.unwrap_err();
        assert_eq!(refused.to_string(), "the watch was not added");
        assert!(watches.remove(&Watch::<ConfigMap>::new()).await.unwrap(), "the first stays");
    });
}

#[test]
fn a_context_for_tests_has_the_indices_of_its_watches() {
    World::run(1, async |world| {
        let test =
            Context::for_test(world.direct()).cached(by_secret(), [naming("a", "one"), naming("b", "two")]);
        let maps = test.context().lister::<ConfigMap>().unwrap();
        assert_eq!(maps.by_index("secret", "default/two").unwrap()[0].metadata.name.as_deref(), Some("b"));
    });
}

/// All ConfigMaps of one first letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Letter(char);

#[test]
fn a_controller_can_be_over_keys_of_any_type() {
    World::run(1, async |world| {
        for name in ["apple", "avocado", "banana"] {
            create_map(&world, name).await;
        }
        let calls: Arc<Mutex<Vec<(Letter, usize)>>> = Arc::default();
        let log = calls.clone();
        let reconcile = move |letter: Letter, cx: Context| {
            let log = log.clone();
            async move {
                let maps = cx.lister::<ConfigMap>()?.list();
                let of_letter = |map: &&Arc<ConfigMap>| {
                    map.meta().name.as_deref().is_some_and(|name| name.starts_with(letter.0))
                };
                let count = maps.iter().filter(of_letter).count();
                log.lock().push((letter, count));
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let letters = |map: &ConfigMap| {
            map.metadata.name.iter().filter_map(|name| Some(Letter(name.chars().next()?))).collect()
        };
        let controller = Controller::over::<Letter>("letters", reconcile).watches::<ConfigMap>(.., letters);
        let _running = run(&world, controller);
        sleep(SECOND).await;
        let mut counts = calls.lock().clone();
        counts.retain(|(letter, _)| letter.0 < 'c');
        counts.sort_unstable();
        assert_eq!(counts, [(Letter('a'), 2), (Letter('b'), 1)]);
    });
}

#[test]
fn keys_that_are_no_objects_own_nothing() {
    World::run(1, async |world| {
        let reconcile = |_: ObjectKey, _: Context| async { Ok::<_, ReconcileError>(Action::done()) };
        let controller = Controller::over::<ObjectKey>("keys", reconcile).owns::<Secret>(..);
        let error = run(&world, controller).task.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("cannot own anything"), "{error}");
    });
}

#[test]
fn a_time_limit_can_depend_on_the_key_and_is_counted() {
    World::run(1, async |world| {
        create_map(&world, "slow").await;
        create_map(&world, "strict").await;
        let ended = Calls::default();
        let log = ended.clone();
        let reconcile = move |key: ObjectKey, _: Context| {
            let log = log.clone();
            async move {
                sleep(20 * SECOND).await;
                log.lock().push(key.name().to_owned());
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let limit = |key: &ObjectKey| (key.name() == "strict").then_some(10 * SECOND);
        let controller = Controller::of(Watch::<ConfigMap>::new().namespaces(["default"]), "slow", reconcile);
        let running = run(&world, controller.time_limit_of(limit).workers(4));
        sleep(25 * SECOND).await;
        assert!(!take(&ended).contains(&"strict".to_owned()));
        assert!(
            running.metric("controller_runtime_reconcile_timeouts_total", &[("controller", "slow")]) >= 1
        );
    });
}

#[test]
fn a_time_limit_that_panics_fails_its_key_and_no_other() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Calls::default();
        let controller = Controller::of::<ConfigMap>(.., "limited", noting(&calls)).time_limit_of(|key| {
            match key.name() {
                "a" => panic!("on purpose"),
                _ => None,
            }
        });
        let running = run(&world, controller);
        sleep(SECOND).await;
        create_map(&world, "b").await;
        sleep(SECOND).await;
        assert_eq!(take(&calls), ["b"]);
        let panics = "controller_runtime_reconcile_panics_total";
        assert!(running.metric(panics, &[("controller", "limited")]) >= 1);
    });
}

#[test]
fn debounced_changes_are_one_reconcile_that_knows_of_all_of_them() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let reasons: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = reasons.clone();
        let reconcile = move |_: ObjectKey, cx: Context| {
            log.lock().push(cx.reasons().to_string());
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let watch = Watch::<ConfigMap>::new().namespaces(["default"]).fields("metadata.name=a");
        let _running = run(&world, Controller::of(watch, "calm", reconcile).debounce(30 * SECOND));
        sleep(60 * SECOND).await;
        reasons.lock().clear();
        for n in 0..10 {
            let patch = json!({"data": {"n": n.to_string()}});
            maps(&world).patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            sleep(SECOND).await;
        }
        assert_eq!(reasons.lock().len(), 0, "it waits");
        sleep(40 * SECOND).await;
        assert_eq!(*reasons.lock(), ["configmaps default/a updated"]);
    });
}

#[test]
fn a_jitter_spreads_keys_that_come_again() {
    World::run(1, async |world| {
        for n in 0..8 {
            create_map(&world, &format!("m{n}")).await;
        }
        let times: Arc<Mutex<Vec<tokio::time::Instant>>> = Arc::default();
        let log = times.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            log.lock().push(tokio::time::Instant::now());
            async {
                let later = Action::requeue_after(Duration::from_secs(100));
                Ok::<_, ReconcileError>(later.with_jitter(Duration::from_secs(50)))
            }
        };
        let watch = Watch::<ConfigMap>::new().namespaces(["default"]);
        let _running = run(&world, Controller::of(watch, "spread", reconcile).workers(8));
        sleep(50 * SECOND).await;
        times.lock().clear();
        sleep(110 * SECOND).await;
        let times = times.lock().clone();
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(times.len() >= 8 && *last - *first > 5 * SECOND, "{times:?}");
    });
}
