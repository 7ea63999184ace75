//! Discovery and OpenAPI of all servers together.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_env::Env;

use super::backend::{GROUP, Setup, document};
use super::{FLUNDERS, SERVICES, becomes, with_backend};
use crate::support::Api;

pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What the newer form of discovery says about the group.
pub(super) async fn discovered(api: &Api) -> Value {
    let request = Request::get("/apis").header("accept", AGGREGATED).body(Full::default()).unwrap();
    let all = api.answer(request).await.ok();
    let groups = all["items"].as_array().unwrap().iter();
    groups.clone().find(|group| group["metadata"]["name"] == GROUP).cloned().unwrap_or_default()
}

pub(super) async fn eventually(api: &Api, what: impl AsyncFn(&Api) -> bool) {
    for _ in 0..400 {
        if what(api).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it never comes");
}

#[tokio::test]
async fn discovery_is_that_of_one_server_while_the_backend_answers() {
    for is_new in [true, false] {
        let setup = Setup { is_new, ..Setup::default() };
        let (api, backend) = with_backend(setup).await;
        let resource = json!({
            "resource": "flunders", "responseKind": {"group": "", "version": "", "kind": "Flunder"},
            "scope": "Namespaced", "singularResource": "flunder", "verbs": ["get", "list", "watch"]
        });
        let current = json!({"metadata": {"name": GROUP}, "versions": [
            {"version": "v1", "resources": [resource], "freshness": "Current"}]});
        eventually(&api, async |api| discovered(api).await == current).await;
        let groups = api.get("/apis").await.ok();
        let names: Vec<&str> = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.last(), Some(&GROUP), "its priority is lower than those of the built-in groups");
        assert_eq!(api.get(&format!("/apis/{GROUP}")).await.ok()["preferredVersion"]["version"], "v1");
        let list = api.get(&format!("/apis/{GROUP}/v1")).await.ok();
        assert_eq!(list["resources"][0]["name"], "flunders");
        drop(backend);
        assert_eq!(api.get(FLUNDERS).await.code, 503);
        let stale =
            json!({"metadata": {"name": GROUP}, "versions": [{"version": "v1", "freshness": "Stale"}]});
        eventually(&api, async |api| discovered(api).await == stale).await;
        assert_eq!(api.get(&format!("/apis/{GROUP}/v1")).await.code, 503);
        assert_eq!(api.get(&format!("/apis/{GROUP}")).await.code, 200);
        api.delete(&format!("{SERVICES}/v1.{GROUP}"), &Value::Null).await.ok();
        assert_eq!(discovered(&api).await, Value::Null);
        assert_eq!(api.get(&format!("/apis/{GROUP}")).await.code, 404);
        assert_eq!(api.get(&format!("/apis/{GROUP}/v1")).await.code, 404);
    }
}

#[tokio::test]
async fn schemas_of_a_backend_are_there_and_go_with_it() {
    let (api, _backend) = with_backend(Setup::default()).await;
    let path = format!("apis/{GROUP}/v1");
    eventually(&api, async |api| !api.get("/openapi/v3").await.ok()["paths"][&path].is_null()).await;
    let index = api.get("/openapi/v3").await.ok();
    let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap().to_owned();
    let schema = "com.example.wardle.v1.Flunder";
    assert_eq!(api.get(&url).await.ok()["components"]["schemas"][schema]["description"], "A flunder.");
    let whole = api.get("/openapi/v2").await.ok();
    assert_eq!(whole["definitions"][schema]["description"], "A flunder.");
    assert_eq!(whole["paths"]["/apis/wardle.example.com/v1/flunders"]["get"]["operationId"], "listFlunders");
    assert_ne!(whole["definitions"]["io.k8s.api.core.v1.Pod"]["description"], "stolen");
    assert_ne!(whole["paths"]["/api/v1/pods"]["get"]["operationId"], "stolen");
    api.delete(&format!("{SERVICES}/v1.{GROUP}"), &Value::Null).await.ok();
    assert!(api.get("/openapi/v3").await.ok()["paths"][&path].is_null());
    assert!(api.get("/openapi/v2").await.ok()["definitions"][schema].is_null());
    assert_eq!(api.get(&url).await.code, 404);
}

/// Servers on older libraries know v2 alone.
#[tokio::test]
async fn schemas_of_version_2_are_told_in_both_versions() {
    let kind = json!({"group": GROUP, "version": "v1", "kind": "Flunder"});
    let reference = json!({"$ref": "#/definitions/com.example.wardle.v1.Flunder"});
    let whole = json!({"swagger": "2.0", "info": {"title": "wardle"},
        "paths": {
            "/apis/wardle.example.com/v1/flunders": {"post": {"operationId": "createFlunder", "consumes": ["*/*"],
                "produces": ["application/json"], "x-kubernetes-group-version-kind": kind,
                "parameters": [{"name": "body", "in": "body", "schema": reference}],
                "responses": {"200": {"description": "OK", "schema": reference}}}},
            "/api/v1/pods": {"get": {"operationId": "stolen"}},
        },
        "definitions": {"com.example.wardle.v1.Flunder": {"type": "object", "description": "A flunder."}}});
    let setup = Setup {
        instead: Arc::new(move |asked: &str| match asked {
            "/openapi/v3" => {
                let answer = http::Response::builder().status(404);
                Some(answer.body(super::backend::full("")).unwrap())
            }
            "/openapi/v2" => Some(document("application/json", &whole)),
            _ => None,
        }),
        ..Setup::default()
    };
    let (api, _backend) = with_backend(setup).await;
    let path = format!("apis/{GROUP}/v1");
    eventually(&api, async |api| !api.get("/openapi/v3").await.ok()["paths"][&path].is_null()).await;
    let index = api.get("/openapi/v3").await.ok();
    let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap().to_owned();
    let schema = "com.example.wardle.v1.Flunder";
    let found = api.get(&url).await.ok();
    assert_eq!(found["components"]["schemas"][schema]["description"], "A flunder.");
    let post = &found["paths"]["/apis/wardle.example.com/v1/flunders"]["post"];
    let expect = format!("#/components/schemas/{schema}");
    assert_eq!(post["requestBody"]["content"]["*/*"]["schema"]["$ref"], expect);
    assert!(found["paths"]["/api/v1/pods"].is_null(), "it has no say in those");
    assert_eq!(api.get(&format!("/openapi/v3/{path}?hash=old")).await.code, 301);
    let whole = api.get("/openapi/v2").await.ok();
    assert_eq!(whole["definitions"][schema]["description"], "A flunder.");
    let post = &whole["paths"]["/apis/wardle.example.com/v1/flunders"]["post"];
    assert_eq!(post["parameters"][0]["schema"]["$ref"], format!("#/definitions/{schema}"));
    api.delete(&format!("{SERVICES}/v1.{GROUP}"), &Value::Null).await.ok();
    assert!(api.get("/openapi/v3").await.ok()["paths"][&path].is_null());
    assert_eq!(api.get(&url).await.code, 404);
}

#[tokio::test]
async fn a_backend_that_never_tells_its_schemas_has_its_resources_shown_and_its_state_told() {
    let setup = Setup { silent: &["/openapi/v3"], ..Setup::default() };
    let (api, _backend) = with_backend(setup).await;
    let begun = tokio::time::Instant::now();
    eventually(&api, async |api| discovered(api).await["versions"][0]["freshness"] == "Current").await;
    // What somebody writes by hand is looked into at once, too.
    let claimed = json!({"status": {"conditions": [{"type": "Available", "status": "False", "reason": "Rumour",
        "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    api.merge(&format!("{SERVICES}/v1.{GROUP}/status"), &claimed).await.ok();
    becomes(&api, "Passed").await;
    eventually(&api, async |api| api.get(FLUNDERS).await.code == 200).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody waits for the schemas: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_backend_that_never_tells_its_resources_keeps_nobodys_discovery_waiting() {
    let setup = Setup { silent: &["/apis"], ..Setup::default() };
    let (api, _backend) = with_backend(setup).await;
    let stale = json!({"metadata": {"name": GROUP}, "versions": [{"version": "v1", "freshness": "Stale"}]});
    let asked = tokio::time::timeout(Duration::from_secs(2), discovered(&api)).await;
    assert_eq!(asked.expect("it is told what is known"), stale);
    assert_eq!(api.get(FLUNDERS).await.code, 200, "its objects are there all the same");
}

#[tokio::test]
async fn a_backend_that_tells_nonsense_breaks_nobody_elses_discovery() {
    let setup = Setup::default();
    *setup.resources.lock() = json!([{"name": {"a": 1}, "kind": ["x"], "singularName": 7, "verbs": "get"}]);
    let resources = Arc::clone(&setup.resources);
    let (api, _backend) = with_backend(setup).await;
    let stale = json!({"metadata": {"name": GROUP}, "versions": [{"version": "v1", "freshness": "Stale"}]});
    assert_eq!(discovered(&api).await, stale);
    assert_eq!(api.get("/api/v1/namespaces/default").await.code, 200);
    *resources.lock() = json!([{"name": "a", "kind": "A", "singularName": "a", "verbs": ["get"]}]);
    eventually(&api, async |api| discovered(api).await["versions"][0]["freshness"] == "Current").await;
    becomes(&api, "Passed").await;
}

/// Go's servers have null where they have no list: a subresource without verbs is listed so.
#[tokio::test]
async fn null_in_a_document_is_nothing() {
    for is_new in [true, false] {
        let setup = Setup { is_new, ..Setup::default() };
        *setup.resources.lock() = json!([
            {"name": "flunders", "singularName": "flunder", "kind": "Flunder", "verbs": null, "shortNames": null},
        ]);
        let (api, _backend) = with_backend(setup).await;
        eventually(&api, async |api| discovered(api).await["versions"][0]["freshness"] == "Current").await;
        assert_eq!(discovered(&api).await["versions"][0]["resources"][0]["verbs"], json!([]));
    }
}

#[tokio::test]
async fn a_document_of_another_form_breaks_nothing() {
    const RESOURCES: &str = "/apis/wardle.example.com/v1";
    const SCHEMAS: &str = "/openapi/v3/apis/wardle.example.com/v1";
    for path in [RESOURCES, "/apis", "/openapi/v3", SCHEMAS] {
        for form in [json!([]), json!("text"), json!(7), json!({"resources": {}, "items": "x", "paths": []})]
        {
            let answer = form.clone();
            let setup = Setup {
                is_new: path == "/apis",
                instead: Arc::new(move |asked: &str| {
                    let media = if path == "/apis" { AGGREGATED } else { "application/json" };
                    (asked == path).then(|| document(media, &answer))
                }),
                ..Setup::default()
            };
            let (api, _backend) = with_backend(setup).await;
            // Whoever looks after backends still does.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let claimed = json!({"status": {"conditions": [{"type": "Available", "status": "False", "reason": "Rumour",
                "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
            api.merge(&format!("{SERVICES}/v1.{GROUP}/status"), &claimed).await.ok();
            becomes(&api, "Passed").await;
            assert_eq!(api.get(FLUNDERS).await.code, 200, "{path} {form}");
            let metrics = api.get("/metrics").await.ok();
            let line = "\nsetpoint_task_panics_total{task=\"aggregation\"} 0\n";
            assert!(metrics.as_str().unwrap().contains(line), "{path} {form}");
        }
    }
}

#[tokio::test]
async fn what_a_backend_has_is_known_while_its_priority_and_its_bundle_change() {
    let (api, backend) = with_backend(Setup::default()).await;
    eventually(&api, async |api| discovered(api).await["versions"][0]["freshness"] == "Current").await;
    let other = CertificateAuthority::generate(&Env::system()).unwrap();
    let both = STANDARD.encode(format!("{}{}", other.certificate_pem(), backend.bundle));
    for change in [json!({"versionPriority": 20}), json!({"caBundle": both})] {
        api.merge(&format!("{SERVICES}/v1.{GROUP}"), &json!({"spec": change})).await.ok();
        assert_eq!(discovered(&api).await["versions"][0]["freshness"], "Current");
    }
    becomes(&api, "Passed").await;
    assert_eq!(api.get(FLUNDERS).await.code, 200);
}
