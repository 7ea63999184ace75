use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use parking_lot::Mutex;
use setpoint::controller::Runtime;
use setpoint::manager::{ManagerError, MetricsServer};
use setpoint::webhook::{Certificates, ManagedCertificates, WebhookServer};
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

/// An address that nobody listens on.
fn free_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What a server answers, as soon as there is one.
async fn get(address: std::net::SocketAddr, path: &str) -> String {
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
}

/// Certificates that an API server has to be asked for, which is away.
fn awaited_certificates() -> ManagedCertificates {
    let away = kube::Config::new(format!("http://{}", free_address()).parse().unwrap());
    let client = kube::Client::try_from(away).unwrap();
    ManagedCertificates::new(client, "default", "tls").name("x")
}

#[tokio::test]
async fn a_manager_that_waits_for_its_certificates_stops_when_it_is_told_to() {
    let world = World::seeded(9);
    let metrics = MetricsServer::at(free_address()).certificates(awaited_certificates());
    let webhooks = WebhookServer::new(awaited_certificates());
    for manager in [
        Manager::with(runtime(&world)).serve_metrics(metrics),
        Manager::with(runtime(&world)).webhooks(free_address(), webhooks),
    ] {
        let manager =
            manager.controller(Controller::of::<ConfigMap>(.., "one", counting(&Counter::default())));
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.run());
        sleep(SECOND / 10).await;
        assert!(!running.is_finished());
        shutdown.cancel();
        let ended = tokio::time::timeout(5 * SECOND, running).await;
        ended.expect("it ends at once").unwrap().unwrap();
    }
}

#[tokio::test]
async fn nothing_waits_for_the_certificate_of_the_metrics() {
    let world = World::seeded(9);
    create_map(&world, "a").await;
    let (health, hooks, counter) = (free_address(), free_address(), Counter::default());
    let (shown, _) = Certificates::self_signed(["localhost"]).unwrap();
    let manager = Manager::with(runtime(&world))
        .serve_metrics(MetricsServer::at(free_address()).certificates(awaited_certificates()))
        .serve_health(health)
        .webhooks(hooks, WebhookServer::new(shown))
        .controller(Controller::of::<ConfigMap>(.., "one", counting(&counter)));
    let shutdown = manager.shutdown().clone();
    let running = world.env().spawn(manager.run());
    for _ in 0..500 {
        if counter.get() > 0 {
            break;
        }
        sleep(SECOND / 100).await;
    }
    assert_eq!(counter.get(), 1, "the controller works");
    assert!(get(health, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(tokio::net::TcpStream::connect(hooks).await.is_ok(), "webhooks are served");
    shutdown.cancel();
    tokio::time::timeout(5 * SECOND, running).await.expect("it ends at once").unwrap().unwrap();
}

#[tokio::test]
async fn a_manager_that_cannot_serve_says_why_and_stops_what_it_started() {
    let world = World::seeded(9);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (shown, _) = Certificates::self_signed(["localhost"]).unwrap();
    let missing = Certificates::files("/nowhere/tls.crt", "/nowhere/tls.key");
    let managers = [
        Manager::with(runtime(&world)).serve_metrics(MetricsServer::at(free_address()).certificates(missing)),
        Manager::with(runtime(&world)).webhooks(taken.local_addr().unwrap(), WebhookServer::new(shown)),
    ];
    for (manager, says) in managers.into_iter().zip(["cannot read /nowhere/tls.crt", "cannot listen on"]) {
        let ended = Arc::new(Mutex::new(false));
        let seen = ended.clone();
        let manager = manager
            .early_runnable("early", async move |cx| {
                cx.stopping().cancelled().await;
                *seen.lock() = true;
                Ok(())
            })
            .controller(Controller::of::<ConfigMap>(.., "one", counting(&Counter::default())));
        let error = tokio::time::timeout(5 * SECOND, manager.run()).await.expect("it ends").unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
        assert!(*ended.lock(), "an early runnable is told");
    }
}

#[tokio::test]
async fn health_readiness_and_metrics_are_served() {
    let world = World::seeded(9);
    let (health, metrics) = (free_address(), free_address());
    let counter = Counter::default();
    let manager = Manager::with(runtime(&world))
        .serve_health(health)
        .serve_metrics(metrics)
        .healthz("disk", || std::future::ready(Err::<(), _>("it is full")))
        .readyz("upstream", || std::future::ready(Ok::<(), String>(())))
        .controller(Controller::of::<ConfigMap>(.., "one", counting(&counter)));
    let shutdown = manager.shutdown().clone();
    let running = world.env().spawn(manager.run());
    let live = get(health, "/healthz").await;
    assert!(live.starts_with("HTTP/1.1 500") && live.contains("[-]disk failed: reason withheld"), "{live}");
    assert!(get(health, "/healthz?exclude=disk").await.starts_with("HTTP/1.1 200"));
    let mut ready = get(health, "/readyz?verbose").await;
    for _ in 0..200 {
        if ready.starts_with("HTTP/1.1 200") {
            break;
        }
        sleep(SECOND / 100).await;
        ready = get(health, "/readyz?verbose").await;
    }
    assert!(ready.contains("[+]upstream ok\n[+]caches ok\nreadyz check passed"), "{ready}");
    let page = get(metrics, "/metrics").await;
    assert!(page.contains("controller_runtime_max_concurrent_reconciles{controller=\"one\"} 1"), "{page}");
    assert!(page.contains("content-type: application/openmetrics-text"), "{page}");
    assert!(get(health, "/metrics").await.starts_with("HTTP/1.1 404"));
    assert!(get(metrics, "/healthz").await.starts_with("HTTP/1.1 404"));
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

async fn careless() -> Result<(), setpoint::manager::RunnableError> {
    panic!("on purpose")
}

fn lease(identity: &str) -> setpoint::LeaseConfig {
    let mut config = setpoint::LeaseConfig::new("default", "maps");
    config.identity = identity.into();
    config
}

fn named(world: &World, name: &str) -> Manager {
    Manager::with(Runtime::with(world.client_named(name), world.env().clone(), Metrics::default()))
        .leader_election(lease(name))
}

#[test]
fn a_controller_without_leader_election_works_on_every_replica() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let (led, everywhere) = (Counter::default(), Counter::default());
        let manager = |name: &str| {
            let everywhere = Controller::of::<ConfigMap>(.., "everywhere", counting(&everywhere));
            named(&world, name)
                .controller(Controller::of::<ConfigMap>(.., "led", counting(&led)))
                .controller(everywhere.without_leader_election())
        };
        let _first = world.env().spawn(manager("first").run());
        sleep(5 * SECOND).await;
        let _second = world.env().spawn(manager("second").run());
        sleep(60 * SECOND).await;
        assert_eq!((led.get(), everywhere.get()), (1, 2));
    });
}

#[test]
fn a_leader_runnable_runs_in_each_term_and_nowhere_else() {
    World::run(9, async |world| {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let manager = |name: &'static str| {
            let log = log.clone();
            named(&world, name).leader_runnable("job", move |cx| {
                let log = log.clone();
                async move {
                    log.lock().push(format!("{name} begins"));
                    cx.stopping().cancelled().await;
                    log.lock().push(format!("{name} ends"));
                    Ok(())
                }
            })
        };
        let first = manager("first");
        let shutdown = first.shutdown().clone();
        let leading = world.env().spawn(first.run());
        sleep(5 * SECOND).await;
        let _second = world.env().spawn(manager("second").run());
        sleep(60 * SECOND).await;
        assert_eq!(*log.lock(), ["first begins"]);
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        sleep(10 * SECOND).await;
        assert_eq!(*log.lock(), ["first begins", "first ends", "second begins"]);
    });
}

#[test]
fn a_leader_runnable_that_fails_or_panics_stops_the_manager() {
    World::run(9, async |world| {
        let fails = named(&world, "a").leader_runnable("job", |_| async { Err("it went wrong".into()) });
        let error = fails.run().await.unwrap_err();
        assert!(matches!(&error, ManagerError::Runnable { name, .. } if name == "job"), "{error}");
        let panics = named(&world, "a").runnable("careless", |_| careless());
        let error = panics.run().await.unwrap_err();
        assert!(matches!(&error, ManagerError::Runnable { name, .. } if name == "careless"), "{error}");
    });
}

#[test]
fn a_leader_runnable_that_fails_lets_reconciles_finish() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let (begun, done) = (Counter::default(), Counter::default());
        let (begins, ends, begun_yet) = (begun.clone(), done.clone(), begun.clone());
        let reconcile = move |_: ObjectKey, _: Context| {
            let (begins, ends) = (begins.clone(), ends.clone());
            async move {
                begins.inc();
                sleep(10 * SECOND).await;
                ends.inc();
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let manager = named(&world, "a")
            .controller(Controller::of::<ConfigMap>(.., "slow", reconcile))
            .leader_runnable("waits", async |cx| {
                cx.stopping().cancelled().await;
                Ok(())
            })
            .leader_runnable("job", move |_| {
                let begun = begun_yet.clone();
                async move {
                    while begun.get() == 0 {
                        sleep(SECOND / 10).await;
                    }
                    Err("it went wrong".into())
                }
            });
        let error = manager.run().await.unwrap_err();
        assert!(matches!(&error, ManagerError::Runnable { name, .. } if name == "job"), "{error}");
        assert_eq!((begun.get(), done.get()), (1, 1));
    });
}

#[test]
fn a_leader_runnable_that_does_not_end_does_not_keep_the_lease() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let manager = named(&world, "a")
            .grace(20 * SECOND)
            .controller(Controller::of::<ConfigMap>(.., "maps", counting(&calls)))
            .leader_runnable("stubborn", |_| async {
                std::future::pending::<()>().await;
                Ok(())
            });
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.run());
        sleep(10 * SECOND).await;
        assert_eq!(calls.get(), 1);
        let start = tokio::time::Instant::now();
        shutdown.cancel();
        let error = running.await.unwrap().unwrap_err();
        assert!(matches!(error, ManagerError::Grace { .. }), "{error}");
        assert!(start.elapsed() <= 20 * SECOND, "{:?}", start.elapsed());
        let leases: Api<Lease> = Api::default_namespaced(world.direct());
        let spec = leases.get("maps").await.unwrap().spec.unwrap();
        assert_eq!(spec.holder_identity.unwrap_or_default(), "");
    });
}

#[test]
fn a_standby_that_is_not_warmed_up_watches_nothing_until_it_leads() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let counter = Counter::default();
        let manager = |name: &str| {
            named(&world, name).warm_up(false).controller(Controller::of::<ConfigMap>(
                ..,
                "maps",
                counting(&counter),
            ))
        };
        let first = manager("first");
        let shutdown = first.shutdown().clone();
        let leading = world.env().spawn(first.run());
        sleep(5 * SECOND).await;
        let _second = world.env().spawn(manager("second").run());
        sleep(60 * SECOND).await;
        let watches = |name: &str| world.trace().requests(&Match::watch("configmaps").client(name)).count();
        assert_eq!((watches("first") > 0, watches("second"), counter.get()), (true, 0, 1));
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        sleep(10 * SECOND).await;
        assert_eq!((watches("second") > 0, counter.get()), (true, 2));
    });
}

#[test]
fn what_was_started_last_ends_first() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let log: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let ending = |name: &'static str| {
            let log = log.clone();
            async move |cx: setpoint::manager::RunnableContext| {
                cx.stopping().cancelled().await;
                sleep(SECOND).await;
                log.lock().push(name);
                Ok(())
            }
        };
        let reconciling = log.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            let log = reconciling.clone();
            async move {
                sleep(10 * SECOND).await;
                log.lock().push("reconcile");
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let manager = Manager::with(runtime(&world))
            .early_runnable("early", ending("early"))
            .runnable("late", ending("late"))
            .controller(Controller::of::<ConfigMap>(.., "slow", reconcile));
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.run());
        sleep(5 * SECOND).await;
        shutdown.cancel();
        running.await.unwrap().unwrap();
        assert_eq!(*log.lock(), ["reconcile", "late", "early"]);
    });
}
