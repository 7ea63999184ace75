//! What the audit log tells.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use setpoint_apiserver::audit::{AuditLog, Policy};
use setpoint_apiserver::{ApiServer, LogLine, LogSource, User};
use setpoint_env::Env;
use tempfile::TempDir;
use tower::ServiceExt;

use crate::support::{Api, MAPS, map};

struct World {
    api: Api,
    folder: TempDir,
}

impl World {
    fn new(policy: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let mut log = AuditLog::new(folder.path().join("audit.log"));
        if !policy.is_empty() {
            let text = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, {policy}}}");
            log = log.policy(Policy::parse(&text).unwrap());
        }
        let server = ApiServer::builder().env(Env::seeded(1)).audit(log).unwrap().build();
        World { api: Api::with(server), folder }
    }

    /// Everything that was written so far.
    async fn events(&self) -> Vec<Value> {
        self.api.server.close().await;
        let text = std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn each_request_is_one_line_of_metadata() {
    let world = World::new("");
    world.api.post(MAPS, &map("a", "secret")).await.ok();
    let jane = Api::as_user(world.api.server.clone(), User::new("jane", ["developers"]));
    assert_eq!(jane.get(&format!("{MAPS}/a?pretty=1")).await.code, 403);
    let request =
        http::Request::builder().uri("/version").body(http_body_util::Full::<bytes::Bytes>::default());
    assert_eq!(world.api.server.clone().oneshot(request.unwrap()).await.unwrap().status(), 401);

    let events = world.events().await;
    let [create, get, unauthorized] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        (&create["kind"], &create["apiVersion"], &create["level"], &create["stage"], &create["verb"]),
        (
            &json!("Event"),
            &json!("audit.k8s.io/v1"),
            &json!("Metadata"),
            &json!("ResponseComplete"),
            &json!("create")
        )
    );
    assert_eq!(create["user"]["username"], "kubernetes-admin");
    assert_eq!(create["responseStatus"]["code"], 201);
    let reference = json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1"});
    assert_eq!(create["objectRef"], reference);
    assert_eq!(create["annotations"]["authorization.k8s.io/decision"], "allow");
    assert!(!create.to_string().contains("secret"), "metadata has no objects: {create}");
    assert_eq!(get["requestURI"], format!("{MAPS}/a?pretty=1"));
    assert_eq!((&get["responseStatus"]["code"], &get["objectRef"]["name"]), (&json!(403), &json!("a")));
    assert_eq!(get["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(unauthorized["responseStatus"]["code"], 401);
    assert_ne!(create["auditID"], get["auditID"]);
}

#[tokio::test]
async fn the_policy_says_how_much_is_written() {
    let world = World::new(
        "rules: [{level: None, verbs: [get]}, {level: Request, namespaces: [kube-public], omitStages: \
         [RequestReceived]}, {level: RequestResponse, omitStages: [RequestReceived]}]",
    );
    world.api.get(MAPS).await.ok();
    world.api.get("/version").await.ok();
    world.api.post(MAPS, &map("a", "x")).await.ok();
    world.api.post("/api/v1/namespaces/kube-public/configmaps", &map("b", "x")).await.ok();
    let events = world.events().await;
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let verb = event["verb"].as_str().unwrap();
            (verb, event.get("requestObject").is_some(), event.get("responseObject").is_some())
        })
        .collect();
    assert_eq!(told, [("list", false, true), ("create", true, true), ("create", true, false)]);
    assert_eq!(events[1]["requestObject"]["data"]["key"], "x");
    assert!(events[1]["responseObject"]["metadata"]["uid"].is_string());
}

#[tokio::test]
async fn a_watch_is_told_when_it_begins_and_when_it_ends() {
    let world = World::new("rules: [{level: Metadata, verbs: [watch]}]");
    let watch = world.api.watch(&format!("{MAPS}?watch=1")).await;
    drop(watch);
    let stages: Vec<Value> = world.events().await.iter().map(|event| event["stage"].clone()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
}

#[tokio::test]
async fn an_impersonator_is_named_with_whom_they_act_as() {
    let world = World::new("");
    let request = http::Request::builder()
        .uri(MAPS)
        .header("impersonate-user", "jane")
        .body(http_body_util::Full::default())
        .unwrap();
    assert_eq!(world.api.answer(request).await.code, 403);
    let events = world.events().await;
    assert_eq!(events[0]["user"]["username"], "kubernetes-admin");
    assert_eq!(events[0]["impersonatedUser"]["username"], "jane");
}

/// Knows nothing of any container.
#[derive(Debug)]
struct Broken;

impl LogSource for Broken {
    fn lines(&self, _: &Pod, _: &str, _: bool, _: Timestamp) -> Option<Vec<LogLine>> {
        panic!("no lines")
    }
}

#[tokio::test]
async fn a_handler_that_panics_is_an_error_of_its_own_stage_and_the_server_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let log = AuditLog::new(folder.path().join("audit.log"));
    let server = ApiServer::builder().env(Env::seeded(1)).audit(log).unwrap().logs(Broken).build();
    let world = World { api: Api::with(server), folder };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    world.api.post("/api/v1/namespaces/default/pods", &pod).await.ok();
    let status = json!({"status": {"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true,
        "restartCount": 0, "state": {"running": {}}}]}});
    let path = "/api/v1/namespaces/default/pods/a";
    world.api.merge(&format!("{path}/status"), &status).await.ok();
    let answer = world.api.get(&format!("{path}/log")).await;
    assert_eq!((answer.code, answer.reason()), (500, "InternalError"));
    world.api.get(path).await.ok();

    let events = world.events().await;
    let [.., panicked, after] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&panicked["stage"], &panicked["responseStatus"]["code"]), (&json!("Panic"), &json!(500)));
    assert_eq!(panicked["responseStatus"]["message"], "APIserver panic'd: no lines");
    assert_eq!(
        (&after["stage"], &after["responseStatus"]["code"]),
        (&json!("ResponseComplete"), &json!(200))
    );
    let metrics = world.api.get("/metrics").await.ok();
    assert!(metrics.as_str().unwrap().contains("\nsetpoint_request_panics_total 1\n"));
}
