use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use setpoint::controller::Runtime;
use setpoint::manager::ManagerError;
use setpoint::{Action, Context, Controller, Manager, Metrics, ObjectKey, ReconcileError};
use setpoint_sim::{Match, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::support::{Counter, SECOND, create_map};

fn counting(
    counter: &Counter,
) -> impl Fn(ObjectKey, Context) -> std::future::Ready<Result<Action, ReconcileError>> + use<> {
    let counter = counter.clone();
    move |_, _| {
        counter.inc();
        std::future::ready(Ok(Action::done()))
    }
}

fn runtime(world: &World) -> Runtime {
    Runtime::with(world.client_named("manager"), world.env().clone(), Metrics::default())
}

#[test]
fn controllers_share_their_caches_and_stop_together() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let (one, two) = (Counter::default(), Counter::default());
        let manager = Manager::with(runtime(&world))
            .controller(Controller::of::<ConfigMap>(.., "one", counting(&one)).owns::<Secret>(..))
            .controller(Controller::of::<ConfigMap>(.., "two", counting(&two)));
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.run());
        sleep(10 * SECOND).await;
        assert_eq!((one.get(), two.get()), (1, 1));
        assert_eq!(world.trace().requests(&Match::watch("configmaps").client("manager")).count(), 1);
        shutdown.cancel();
        running.await.unwrap().unwrap();
        let requests = world.trace().requests(&Match::any()).count();
        sleep(3600 * SECOND).await;
        assert_eq!(world.trace().requests(&Match::any()).count(), requests, "nothing runs on");
    });
}

#[test]
fn a_runnable_starts_after_the_caches_and_its_failure_stops_the_manager() {
    World::run(9, async |world| {
        world.faults().on(Match::watch("configmaps")).delay_response(20 * SECOND);
        let counter = Counter::default();
        let started: Arc<Mutex<Option<std::time::Duration>>> = Arc::default();
        let (log, start) = (started.clone(), tokio::time::Instant::now());
        let manager = Manager::with(runtime(&world))
            .controller(Controller::of::<ConfigMap>(.., "one", counting(&counter)))
            .runnable("job", move |_| async move {
                *log.lock() = Some(start.elapsed());
                Err("it went wrong".into())
            });
        let error = manager.run().await.unwrap_err();
        assert!(matches!(&error, ManagerError::Runnable { name, .. } if name == "job"), "{error}");
        assert!(started.lock().unwrap() >= 20 * SECOND, "{started:?}");
    });
}

#[test]
fn what_does_not_end_in_time_is_cut_off() {
    World::run(9, async |world| {
        let manager = Manager::with(runtime(&world)).grace(5 * SECOND).runnable("stubborn", |_| async {
            std::future::pending::<()>().await;
            Ok(())
        });
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.run());
        sleep(SECOND).await;
        let start = tokio::time::Instant::now();
        shutdown.cancel();
        let error = running.await.unwrap().unwrap_err();
        assert!(matches!(error, ManagerError::Grace { .. }));
        assert_eq!(start.elapsed(), 5 * SECOND);
    });
}

#[tokio::test]
async fn health_readiness_and_metrics_are_served() {
    let world = World::seeded(9);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let counter = Counter::default();
    let manager = Manager::with(runtime(&world)).http(address).controller(Controller::of::<ConfigMap>(
        ..,
        "one",
        counting(&counter),
    ));
    let shutdown = manager.shutdown().clone();
    let running = world.env().spawn(manager.run());
    let get = async |path: &str| {
        for _ in 0..200 {
            if let Ok(mut stream) = tokio::net::TcpStream::connect(address).await {
                let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                return answer;
            }
            sleep(SECOND / 100).await;
        }
        panic!("nobody listens");
    };
    assert!(get("/healthz").await.starts_with("HTTP/1.1 200"));
    let mut ready = get("/readyz").await;
    for _ in 0..200 {
        if ready.starts_with("HTTP/1.1 200") {
            break;
        }
        sleep(SECOND / 100).await;
        ready = get("/readyz").await;
    }
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    let metrics = get("/metrics").await;
    assert!(
        metrics.contains("controller_runtime_max_concurrent_reconciles{controller=\"one\"} 1"),
        "{metrics}"
    );
    assert!(get("/other").await.starts_with("HTTP/1.1 404"));
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[test]
fn of_two_managers_the_leader_works_and_the_other_takes_over() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let manager = |name: &'static str, counter: &Counter| {
            let runtime = Runtime::with(world.client_named(name), world.env().clone(), Metrics::default());
            let mut config = setpoint::LeaseConfig::new("default", "maps");
            config.identity = name.into();
            Manager::with(runtime).leader_election(config).controller(Controller::of::<ConfigMap>(
                ..,
                "maps",
                counting(counter),
            ))
        };
        let (first, second) = (Counter::default(), Counter::default());
        let leader = manager("first", &first);
        let shutdown = leader.shutdown().clone();
        let leading = world.env().spawn(leader.run());
        sleep(5 * SECOND).await;
        let _waiting = world.env().spawn(manager("second", &second).run());
        sleep(60 * SECOND).await;
        assert_eq!((first.get(), second.get()), (1, 0));
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        sleep(10 * SECOND).await;
        assert_eq!((first.get(), second.get()), (1, 1), "released on stop, so it is taken over at once");
    });
}

#[test]
fn a_leader_that_is_cut_off_stops_working_and_comes_back_as_a_candidate() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            counter.inc();
            std::future::ready(Ok::<_, ReconcileError>(Action::requeue_after(SECOND)))
        };
        let mut config = setpoint::LeaseConfig::new("default", "maps");
        config.identity = "only".into();
        let manager =
            Manager::with(runtime(&world)).leader_election(config).controller(Controller::of::<ConfigMap>(
                ..,
                "maps",
                reconcile,
            ));
        let _running = world.env().spawn(manager.run());
        sleep(30 * SECOND).await;
        assert!(calls.get() > 20);
        world.stop_server();
        sleep(30 * SECOND).await;
        let stopped = calls.get();
        sleep(60 * SECOND).await;
        assert_eq!(calls.get(), stopped, "nothing is done without the lease");
        world.start_server();
        sleep(60 * SECOND).await;
        assert!(calls.get() > stopped + 20, "it leads again");
    });
}
