//! The Foo controller against a server in this process, on virtual time. Nobody plays the Deployment controller:
//! the tests write the status of Deployments themselves.
#![expect(clippy::disallowed_names, reason = "a Foo is called foo")]

use std::time::Duration;

use example_foo::{Foo, FooController, RESYNC, WORKERS, crd};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use setpoint::conditions::find_condition;
use setpoint::{CacheSyncError, Env, SharedInformerFactory};
use setpoint_env::Task;
use setpoint_sim::{Match, World};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes that has no reason to wait.
const SETTLED: Duration = Duration::from_secs(10);

struct Scene {
    world: World,
    _controller: Task<Result<(), CacheSyncError>>,
}

impl Scene {
    fn run(scenario: impl AsyncFnOnce(Scene)) {
        World::run(1, async |world| {
            let crds: Api<CustomResourceDefinition> = Api::all(world.direct());
            crds.create(&PostParams::default(), &crd()).await.unwrap();
            sleep(SETTLED).await;
            let env: Env = world.env().clone();
            let client = world.client_named("controller");
            let factory = SharedInformerFactory::new(client.clone()).env(env.clone()).resync(RESYNC);
            let controller = FooController::new(client, &factory, env.clone());
            let running = env.spawn(controller.run(WORKERS, CancellationToken::new()));
            scenario(Scene { world, _controller: running }).await;
        });
    }

    fn foos(&self) -> Api<Foo> {
        Api::default_namespaced(self.world.direct())
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::default_namespaced(self.world.direct())
    }

    async fn create(&self, spec: Value) -> Foo {
        let foo: Foo =
            serde_json::from_value(json!({"metadata": {"name": "example-foo"}, "spec": spec})).unwrap();
        let foo = self.foos().create(&PostParams::default(), &foo).await.unwrap();
        sleep(SETTLED).await;
        foo
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.foos().patch("example-foo", &PatchParams::default(), &patch).await.unwrap();
        sleep(SETTLED).await;
    }

    async fn deployment(&self, name: &str) -> Option<Deployment> {
        self.deployments().get_opt(name).await.unwrap()
    }

    async fn set_available(&self, available: i32) {
        let patch = Patch::Merge(
            json!({"status": {"replicas": available, "readyReplicas": available, "availableReplicas": available}}),
        );
        self.deployments().patch_status("example-foo", &PatchParams::default(), &patch).await.unwrap();
        sleep(SETTLED).await;
    }

    /// Available replicas; status, reason and message of the condition.
    async fn status(&self) -> (i32, String, String, String) {
        let status = self.foos().get("example-foo").await.unwrap().status.expect("a status was written");
        let ready = find_condition(&status.conditions, "Ready").expect("there is the condition");
        (status.available_replicas, ready.status.clone(), ready.reason.clone(), ready.message.clone())
    }

    /// Type, reason and note of every event.
    async fn events(&self) -> Vec<(String, String, String)> {
        let events: Api<Event> = Api::default_namespaced(self.world.direct());
        let events = events.list(&ListParams::default()).await.unwrap().into_iter();
        let text = |text: Option<String>| text.unwrap_or_default();
        let mut events: Vec<_> =
            events.map(|event| (text(event.type_), text(event.reason), text(event.note))).collect();
        events.sort();
        events
    }
}

fn example() -> Value {
    json!({"deploymentName": "example-foo", "replicas": 1})
}

#[test]
fn a_foo_gets_its_deployment_and_says_how_it_is() {
    Scene::run(async |scene| {
        let foo = scene.create(example()).await;
        let deployment = scene.deployment("example-foo").await.expect("it was made");
        assert_eq!(deployment.spec.replicas, Some(1));
        let owner = &deployment.owner_references()[0];
        assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Foo", foo.meta().uid.as_ref()));
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
        let container = &deployment.spec.template.spec.unwrap().containers[0];
        assert_eq!(container.image.as_deref(), Some("nginx:latest"));
        let (available, ready, reason, message) = scene.status().await;
        assert_eq!((available, ready.as_str(), reason.as_str()), (0, "False", "Progressing"));
        assert_eq!(message, "0 of 1 replicas are available");
        scene.set_available(1).await;
        let (available, ready, reason, _) = scene.status().await;
        assert_eq!((available, ready.as_str(), reason.as_str()), (1, "True", "Available"));
        let synced = ("Normal".into(), "Synced".into(), "Foo synced successfully".into());
        assert_eq!(scene.events().await, [synced]);
    });
}

#[test]
fn replicas_follow_the_foo_whoever_changes_what() {
    Scene::run(async |scene| {
        scene.create(example()).await;
        scene.patch(json!({"replicas": 3})).await;
        assert_eq!(scene.deployment("example-foo").await.unwrap().spec.replicas, Some(3));
        let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
        scene.deployments().patch("example-foo", &PatchParams::default(), &patch).await.unwrap();
        sleep(SETTLED).await;
        assert_eq!(scene.deployment("example-foo").await.unwrap().spec.replicas, Some(3));
    });
}

#[test]
fn a_deleted_deployment_is_made_again() {
    Scene::run(async |scene| {
        scene.create(example()).await;
        let first = scene.deployment("example-foo").await.unwrap().uid();
        scene.deployments().delete("example-foo", &DeleteParams::background()).await.unwrap();
        sleep(SETTLED).await;
        assert_ne!(scene.deployment("example-foo").await.expect("it came back").uid(), first);
    });
}

#[test]
fn an_empty_deployment_name_is_told_and_not_tried_again() {
    Scene::run(async |scene| {
        scene.create(json!({"deploymentName": "", "replicas": 1})).await;
        let (_, ready, reason, message) = scene.status().await;
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "DeploymentNameMissing"));
        assert!(message.contains("say what the Deployment shall be called"), "{message}");
        let writes = || scene.world.trace().requests(&Match::writes().client("controller")).count();
        let before = writes();
        sleep(RESYNC / 2).await;
        assert_eq!(writes(), before, "nothing happens until something changes");
        scene.patch(json!({"deploymentName": "example-foo"})).await;
        assert!(scene.deployment("example-foo").await.is_some());
    });
}

#[test]
fn a_deployment_of_somebody_else_is_left_alone() {
    Scene::run(async |scene| {
        let foreign: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "example-foo"},
            "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "other"}}, "template": {
                "metadata": {"labels": {"app": "other"}},
                "spec": {"containers": [{"name": "other", "image": "other"}]},
            }},
        }))
        .unwrap();
        scene.deployments().create(&PostParams::default(), &foreign).await.unwrap();
        scene.create(example()).await;
        assert_eq!(scene.deployment("example-foo").await.unwrap().spec.replicas, Some(5));
        let (_, ready, reason, message) = scene.status().await;
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "ErrResourceExists"));
        assert!(message.contains("delete it, or choose another spec.deploymentName"), "{message}");
        let note = r#"Resource "example-foo" already exists and is not managed by Foo"#;
        assert_eq!(scene.events().await, [("Warning".into(), "ErrResourceExists".into(), note.into())]);

        let requests = || scene.world.trace().requests(&Match::any().client("controller")).count();
        let before = requests();
        sleep(Duration::from_secs(600)).await;
        let tried = requests() - before;
        assert!(tried < 60, "{tried} requests in ten minutes");

        scene.deployments().delete("example-foo", &DeleteParams::background()).await.unwrap();
        sleep(2 * RESYNC).await;
        assert_eq!(scene.deployment("example-foo").await.unwrap().spec.replicas, Some(1));
    });
}

#[test]
fn the_server_refuses_replicas_outside_one_to_ten() {
    Scene::run(async |scene| {
        for (replicas, words) in [
            (
                0,
                "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
            ),
            (
                11,
                "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10",
            ),
        ] {
            let foo =
                json!({"metadata": {"name": "bad"}, "spec": {"deploymentName": "bad", "replicas": replicas}});
            let foo: Foo = serde_json::from_value(foo).unwrap();
            let error = scene.foos().create(&PostParams::default(), &foo).await.unwrap_err();
            let kube::Error::Api(status) = error else { panic!("{error}") };
            assert_eq!(status.code, 422);
            assert!(status.message.contains(words), "{}", status.message);
        }
    });
}

#[test]
fn a_foo_that_is_going_gets_no_new_deployment() {
    Scene::run(async |scene| {
        scene.create(example()).await;
        scene.foos().delete("example-foo", &DeleteParams::foreground()).await.unwrap();
        scene.deployments().delete("example-foo", &DeleteParams::background()).await.unwrap();
        sleep(2 * RESYNC).await;
        assert!(scene.deployment("example-foo").await.is_none());
    });
}

#[test]
fn one_deployment_comes_of_it_whatever_is_lost() {
    for lost in 1..5 {
        World::run(lost, async |world| {
            let crds: Api<CustomResourceDefinition> = Api::all(world.direct());
            crds.create(&PostParams::default(), &crd()).await.unwrap();
            sleep(SETTLED).await;
            world.faults().on(Match::writes().client("controller").nth(lost)).lose_response();
            let (env, client) = (world.env().clone(), world.client_named("controller"));
            let factory = SharedInformerFactory::new(client.clone()).env(env.clone()).resync(RESYNC);
            let controller = FooController::new(client, &factory, env.clone());
            let _running = env.spawn(controller.run(WORKERS, CancellationToken::new()));
            world
                .burst(|n| -> Foo {
                    serde_json::from_value(json!({
                        "metadata": {"name": format!("foo-{n}"), "namespace": "default"},
                        "spec": {"deploymentName": format!("foo-{n}"), "replicas": 2},
                    }))
                    .unwrap()
                })
                .await
                .unwrap();
            sleep(3 * RESYNC).await;
            let deployments: Api<Deployment> = Api::default_namespaced(world.direct());
            let made = deployments.list(&ListParams::default()).await.unwrap().items;
            assert_eq!(made.len(), setpoint_sim::BURST);
            assert!(made.iter().all(|deployment| deployment.spec.replicas == Some(2)));
        });
    }
}

#[test]
fn the_manifest_is_the_type() {
    let manifest: CustomResourceDefinition =
        serde_saphyr::from_str(include_str!("../manifests/crd.yaml")).unwrap();
    assert_eq!(
        serde_json::to_value(manifest).unwrap(),
        serde_json::to_value(crd()).unwrap(),
        "run `cargo run -p example-foo -- --crd > examples/foo/manifests/crd.yaml`"
    );
}
