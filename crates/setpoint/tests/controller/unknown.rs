//! Writes of which nobody knows whether they happened.

use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::client::Body;
use setpoint::controller::Runtime;
use setpoint::{Action, Context, Controller, Metrics, ObjectKey, ReconcileError};
use setpoint_sim::{Match, World};
use tokio::time::{Instant, sleep};

use crate::support::{Counter, SECOND, child_of, count_secrets, create_map, one_child, run, secrets};

/// A client whose first create of a Secret is committed and answered with `status`: a proxy that lost the answer.
fn behind_a_proxy(client: Client, status: u16) -> Client {
    let creates = Counter::default();
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, creates) = (client.clone(), creates.clone());
        async move {
            let is_create =
                request.method() == http::Method::POST && request.uri().path().ends_with("/secrets");
            let response = client.send(request).await?;
            if !is_create || creates.inc() > 1 {
                return Ok(response);
            }
            response.into_body().collect().await?;
            let answer = Response::builder().status(status).body(Body::from(b"upstream".to_vec()));
            Ok::<_, tower::BoxError>(answer?)
        }
    });
    Client::new(service, namespace)
}

#[test]
fn an_error_of_a_proxy_after_a_commit_makes_no_second_child() {
    for status in [500, 502, 503, 504] {
        World::run(7, async |world| {
            create_map(&world, "a").await;
            world.faults().on(Match::watch("secrets")).delay_events(3 * SECOND).always();
            let client = behind_a_proxy(world.client_named("controller"), status);
            let runtime = Runtime::with(client, world.env().clone(), Metrics::default());
            let controller = Controller::of::<ConfigMap>(.., "proxy", one_child).owns::<Secret>(..);
            let _running = world.env().spawn(async move { controller.run(&runtime).await });
            sleep(30 * SECOND).await;
            assert_eq!(count_secrets(&world).await, 1, "after {status}");
        });
    }
}

#[test]
fn the_deletion_of_a_collection_is_waited_for() {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        let map = crate::support::maps(&world).get("a").await.unwrap();
        for _ in 0..3 {
            secrets(&world).create(&PostParams::default(), &child_of(&map)).await.unwrap();
        }
        world.faults().on(Match::watch("secrets")).delay_events(5 * SECOND).always();
        let deletions = Counter::default();
        let counter = deletions.clone();
        let reconcile = move |_: ObjectKey, cx: Context| {
            let counter = counter.clone();
            async move {
                if !cx.lister::<Secret>()?.is_empty() {
                    counter.inc();
                    let secrets: Api<Secret> = Api::default_namespaced(cx.client());
                    secrets.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
                }
                Ok::<_, ReconcileError>(Action::requeue_after(SECOND))
            }
        };
        let _running = run(&world, Controller::of::<ConfigMap>(.., "sweep", reconcile).owns::<Secret>(..));
        sleep(60 * SECOND).await;
        assert_eq!((deletions.get(), count_secrets(&world).await), (1, 0));
    });
}

/// What a reconcile writes to a quiet kind.
#[derive(Clone, Copy, Debug)]
enum Write {
    Create,
    Delete,
    DeleteCollection,
}

async fn write(what: Write, cx: &Context) -> Result<(), kube::Error> {
    let api: Api<Secret> = Api::default_namespaced(cx.client());
    let secret: Secret =
        serde_json::from_str(r#"{"metadata": {"generateName": "child-"}}"#).expect("a Secret");
    match what {
        Write::Create => drop(api.create(&PostParams::default(), &secret).await?),
        Write::Delete => drop(api.delete("old", &DeleteParams::default()).await?),
        Write::DeleteCollection => {
            drop(api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?);
        }
    }
    Ok(())
}

/// A kind of which the server tells nothing, because nothing happens in it, while others are written: its cache
/// does not get to the server's revision before the next bookmark.
#[test]
fn a_write_to_a_quiet_kind_that_never_arrived_is_tried_again_at_once() {
    for what in [Write::Create, Write::Delete, Write::DeleteCollection] {
        World::run(7, async |world| {
            let old: Secret = serde_json::from_str(r#"{"metadata": {"name": "old"}}"#).unwrap();
            secrets(&world).create(&PostParams::default(), &old).await.unwrap();
            create_map(&world, "a").await;
            world.faults().on(Match::writes().resource("secrets").client("controller")).drop_request();
            let (calls, start) = (Counter::default(), Instant::now());
            let counter = calls.clone();
            let reconcile = move |key: ObjectKey, cx: Context| {
                let counter = counter.clone();
                async move {
                    if key.name() == "a" && counter.inc() <= 2 {
                        write(what, &cx).await?;
                    }
                    Ok::<_, ReconcileError>(Action::done())
                }
            };
            let running = run(&world, Controller::of::<ConfigMap>(.., "quiet", reconcile).owns::<Secret>(..));
            for n in 0..10 {
                create_map(&world, &format!("other-{n}")).await;
            }
            while calls.get() < 2 {
                assert!(start.elapsed() < 5 * SECOND, "{what:?} is not tried again");
                sleep(SECOND / 10).await;
            }
            world.faults().assert_all_fired();
            let late = running.metric("setpoint_controller_catch_up_late_total", &[("controller", "quiet")]);
            assert_eq!(late, 0, "{what:?}");
        });
    }
}
