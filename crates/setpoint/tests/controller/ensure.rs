//! Writes that happen only if they change something, as the server stores it.

mod property;
mod shapes;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use setpoint::{Action, Context, Controller, Ensured, ObjectKey, ReconcileError, ensure};
use setpoint_kinds::table;
use setpoint_sim::{Match, World};

use crate::support::{create_map, run, wait_for};

/// The client that the reconciles of a controller write with.
pub(crate) async fn tracked(world: &World) -> (Client, crate::support::Running) {
    type Given = std::sync::Arc<parking_lot::Mutex<Option<Client>>>;
    async fn give(_key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
        *cx.state::<Given>()?.lock() = Some(cx.client());
        Ok(Action::done())
    }
    let given = Given::default();
    create_map(world, "trigger").await;
    let controller =
        Controller::of::<k8s_openapi::api::core::v1::ConfigMap>(.., "given", give).state(given.clone());
    let running = run(world, controller);
    let client = wait_for(|| given.lock().take()).await;
    (client, running)
}

/// The objects of a built-in kind, by `apiVersion` and `kind`.
pub(crate) fn api_of(client: Client, object: &Value) -> Api<DynamicObject> {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let built_in = table().by_kind(group, version, &kind);
    let plural = built_in.map_or_else(|| format!("{}s", kind.to_lowercase()), |found| found.plural.into());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &plural);
    match built_in {
        Some(found) if !found.is_namespaced() => Api::all_with(client, &resource),
        _ => Api::default_namespaced_with(client, &resource),
    }
}

pub(crate) fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).expect("an object")
}

/// How often `client` has written.
pub(crate) fn writes(world: &World, client: &str) -> usize {
    world.trace().requests(&Match::writes().client(client)).count()
}

/// Ensures `wanted` twice, and says how often the second time wrote.
pub(crate) async fn ensured_again(world: &World, client: &Client, wanted: &Value) -> usize {
    let (api, name) = (api_of(client.clone(), wanted), wanted["metadata"]["name"].as_str().unwrap());
    let current = api_of(world.direct(), wanted).get_opt(name).await.unwrap();
    ensure(&api, current.as_ref(), &dynamic(wanted))
        .await
        .unwrap_or_else(|error| panic!("{wanted}: {error}"));
    let before = writes(world, "controller");
    let current = api_of(world.direct(), wanted).get(name).await.unwrap();
    ensure(&api, Some(&current), &dynamic(wanted)).await.unwrap();
    writes(world, "controller") - before
}

/// Changes an object as somebody else would.
async fn meddle(world: &World, object: &Value, patch: Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    api_of(world.direct(), object).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

fn pod_template(container: Value) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}})
}

fn deployment() -> Value {
    let container = json!({
        "name": "web", "image": "nginx", "tty": false, "stdin": false, "command": [], "workingDir": "",
        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": "0.5e1"}},
    });
    let mut template = pod_template(container);
    template["spec"]["hostNetwork"] = json!(false);
    template["spec"]["nodeSelector"] = json!({});
    template["metadata"]["annotations"] = json!({});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {}},
        "spec": {"replicas": 0, "paused": false, "minReadySeconds": 0,
            "selector": {"matchLabels": {"app": "web"}}, "template": template},
    })
}

#[test]
fn what_the_server_drops_or_spells_otherwise_is_not_written_again() {
    World::run(5, async |world| {
        let client = world.client_named("controller");
        let objects = [
            deployment(),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
                "stringData": {"user": "é", "both": "text"}, "data": {"both": "b3RoZXI="}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {}},
                "data": {}, "immutable": false}),
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a"},
                "spec": {"hard": {"cpu": "1000m", "memory": "1024Ki", "pods": "1e1"}}}),
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
                "spec": {"holderIdentity": "x", "renewTime": "2026-01-01T01:00:00.500000+01:00"}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
                "spec": {"ports": [{"port": 80, "name": "", "nodePort": 0}], "externalIPs": [],
                    "publishNotReadyAddresses": false}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "finalizers": []},
                "secrets": [], "automountServiceAccountToken": false}),
            // What the server decides, and what it takes elsewhere.
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": "a", "uid": "u", "generation": 7, "creationTimestamp": "2020-01-01T00:00:00Z"},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}},
                    "template": pod_template(json!({"name": "web", "image": "nginx"}))},
                "status": {"replicas": 7}}),
        ];
        for wanted in &objects {
            assert_eq!(ensured_again(&world, &client, wanted).await, 0, "{wanted}");
        }
    });
}

#[test]
fn zeros_that_the_server_drops_are_wanted_all_the_same() {
    World::run(5, async |world| {
        let client = world.client_named("controller");
        let wanted = deployment();
        ensured_again(&world, &client, &wanted).await;
        let with = |container: Value| json!({"spec": {"template": pod_template(container)}});
        for drift in [
            json!({"spec": {"paused": true}}),
            json!({"spec": {"minReadySeconds": 5}}),
            json!({"spec": {"template": {"spec": {"hostNetwork": true}}}}),
            with(json!({"name": "web", "image": "nginx", "tty": true})),
            with(json!({"name": "web", "image": "nginx", "command": ["x"]})),
            with(json!({"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "1001m"}}})),
        ] {
            meddle(&world, &wanted, drift.clone()).await;
            let api = api_of(client.clone(), &wanted);
            let current = api.get("web").await.unwrap();
            let done = ensure(&api, Some(&current), &dynamic(&wanted)).await.unwrap();
            assert!(matches!(done, Ensured::Updated(_)), "{drift}");
            assert_eq!(ensured_again(&world, &client, &wanted).await, 0, "{drift}");
        }
    });
}

/// An empty struct says which of several things a volume is.
#[test]
fn an_empty_struct_is_something_to_want() {
    World::run(5, async |world| {
        let client = world.client_named("controller");
        let mut wanted = deployment();
        wanted["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        assert_eq!(ensured_again(&world, &client, &wanted).await, 0);
        let other = json!([{"name": "v", "hostPath": {"path": "/"}}]);
        meddle(&world, &wanted, json!({"spec": {"template": {"spec": {"volumes": other}}}})).await;
        assert_eq!(ensured_again(&world, &client, &wanted).await, 0);
        let live = api_of(client, &wanted).get("web").await.unwrap();
        assert_eq!(live.data["spec"]["template"]["spec"]["volumes"][0]["hostPath"], Value::Null);
    });
}

async fn define_widgets(world: &World) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "status": {"type": "object", "properties": {"phase": {"type": "string", "default": "New"}}},
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer"},
                        "color": {"type": "string", "default": "red"},
                    }},
                }}}}],
        },
    });
    let api = api_of(world.direct(), &definition);
    api.create(&PostParams::default(), &dynamic(&definition)).await.unwrap();
}

fn widget(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": spec, "status": {"phase": "x"}})
}

#[test]
fn what_a_server_makes_of_a_custom_resource_is_remembered() {
    World::run(5, async |world| {
        define_widgets(&world).await;
        let (client, _running) = tracked(&world).await;
        // A field that is pruned, a null that becomes a default, a status that has its own path.
        let wanted = widget(json!({"size": 3, "unknown": true, "color": null}));
        assert_eq!(ensured_again(&world, &client, &wanted).await, 0);
        // Somebody else's changes elsewhere do not end it.
        meddle(&world, &wanted, json!({"metadata": {"annotations": {"a": "b"}}})).await;
        assert_eq!(ensured_again(&world, &client, &wanted).await, 0);
        for drift in [json!({"size": 4}), json!({"color": "blue"}), json!({"size": null})] {
            meddle(&world, &wanted, json!({"spec": drift})).await;
            assert_eq!(ensured_again(&world, &client, &wanted).await, 0, "{drift}");
            let live = api_of(world.direct(), &wanted).get("w").await.unwrap();
            assert_eq!(live.data["spec"], json!({"size": 3, "color": "red"}), "{drift}");
        }
        // Another wish is no old one.
        let other = widget(json!({"size": 3, "unknown": false}));
        let current = api_of(world.direct(), &wanted).get("w").await.unwrap();
        let done = ensure(&api_of(client.clone(), &other), Some(&current), &dynamic(&other)).await.unwrap();
        assert!(matches!(done, Ensured::Updated(_)));
        // Nor is another object of the same name.
        api_of(world.direct(), &wanted).delete("w", &Default::default()).await.unwrap();
        meddle_new(&world, &wanted).await;
        let current = api_of(world.direct(), &wanted).get("w").await.unwrap();
        let done = ensure(&api_of(client, &wanted), Some(&current), &dynamic(&wanted)).await.unwrap();
        assert!(matches!(done, Ensured::Updated(_)));
        assert!(current.uid().is_some());
    });
}

async fn meddle_new(world: &World, object: &Value) {
    api_of(world.direct(), object).create(&PostParams::default(), &dynamic(object)).await.unwrap();
}

/// A zero that the server drops and then fills in a default for can be told from a drift only by who wrote last.
#[test]
fn a_zero_where_the_server_has_a_default_is_written_once() {
    World::run(5, async |world| {
        let (client, _running) = tracked(&world).await;
        let mut wanted = deployment();
        wanted["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("");
        wanted["spec"]["template"]["spec"]["restartPolicy"] = json!("");
        assert_eq!(ensured_again(&world, &client, &wanted).await, 0);
        let container = json!({"name": "web", "image": "nginx", "imagePullPolicy": "Never"});
        meddle(&world, &wanted, json!({"spec": {"template": pod_template(container)}})).await;
        assert_eq!(ensured_again(&world, &client, &wanted).await, 0);
        let live = api_of(client, &wanted).get("web").await.unwrap();
        let container = &live.data["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], json!("Always"));
    });
}

/// What one controller has written says nothing to another, though names and uids are the same.
#[test]
fn worlds_share_no_memory() {
    let runs: Vec<usize> = (0..2)
        .map(|_| {
            World::run(5, async |world| {
                define_widgets(&world).await;
                let (client, _running) = tracked(&world).await;
                ensured_again(&world, &client, &widget(json!({"size": 3, "unknown": true}))).await;
                writes(&world, "controller")
            })
        })
        .collect();
    assert_eq!(runs[0], runs[1]);
}
