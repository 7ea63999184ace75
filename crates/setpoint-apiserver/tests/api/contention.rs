//! Many writers of one object, on the engine where a commit takes time: all of them get through.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};
use setpoint_apiserver::ApiServer;
use tempfile::TempDir;

use crate::support::{Answer, Api, DEPLOYMENTS, MAPS, deployment, map, version};

const WRITERS: usize = 24;
const ROUNDS: usize = 6;

async fn durable() -> (TempDir, Arc<Api>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ApiServer::builder().open(&folder).await.expect("a new folder has no store yet");
    (folder, Arc::new(Api::with(server)))
}

/// Lets many writers send `ROUNDS` requests each; the answers that were refused.
#[expect(clippy::disallowed_methods, reason = "writers race only on threads of their own")]
async fn refused<F, W>(api: &Arc<Api>, write: F) -> Vec<Value>
where
    F: Fn(Arc<Api>, usize, usize) -> W + Clone + Send + 'static,
    W: Future<Output = Answer> + Send,
{
    let writer = |n: usize| {
        let (api, write) = (Arc::clone(api), write.clone());
        tokio::spawn(async move {
            let mut refused = Vec::new();
            for round in 0..ROUNDS {
                let answer = write(Arc::clone(&api), n, round).await;
                if answer.code >= 300 {
                    refused.push(answer.body);
                }
            }
            refused
        })
    };
    let all = join_all((0..WRITERS).map(writer)).await;
    all.into_iter().flat_map(|refused| refused.expect("writers do not panic")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_without_a_version_are_never_refused_for_the_writes_of_others() {
    let (_folder, api) = durable().await;
    for media in [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ] {
        let created = api.post(MAPS, &map("shared", "x")).await.ok();
        let refused = refused(&api, move |api, writer, round| async move {
            let key = format!("writer-{writer}");
            let (body, path) = match media {
                "application/json-patch+json" => (
                    json!([{"op": "add", "path": format!("/data/{key}"), "value": round.to_string()}]),
                    format!("{MAPS}/shared"),
                ),
                "application/apply-patch+yaml" => (
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {key: round.to_string()}}),
                    format!("{MAPS}/shared?fieldManager=writer-{writer}"),
                ),
                _ => (json!({"data": {key: round.to_string()}}), format!("{MAPS}/shared")),
            };
            api.call("PATCH", &path, media, body.to_string()).await
        })
        .await;
        assert!(refused.is_empty(), "{media}: {} were refused, as {}", refused.len(), refused[0]);
        let shared = api.get(&format!("{MAPS}/shared")).await.ok();
        for writer in 0..WRITERS {
            assert_eq!(shared["data"][format!("writer-{writer}")], (ROUNDS - 1).to_string(), "{media}");
        }
        let revisions = version(&shared) - version(&created);
        assert_eq!(revisions, (WRITERS * ROUNDS) as u64, "{media}: each patch is one revision");
        api.delete(&format!("{MAPS}/shared"), &Value::Null).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_that_name_no_version_are_never_refused_for_the_writes_of_others() {
    let (_folder, api) = durable().await;
    api.post(MAPS, &map("shared", "x")).await.ok();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let refused = refused(&api, |api, writer, round| async move {
        let text = format!("{writer} {round}");
        match writer % 3 {
            0 => api.put(&format!("{MAPS}/shared"), &map("shared", &text)).await,
            1 => {
                let status = json!({"status": {"replicas": 100 * writer + round}});
                api.merge(&format!("{DEPLOYMENTS}/web/status"), &status).await
            }
            _ => {
                let scale = json!({"spec": {"replicas": 100 * writer + round}});
                api.merge(&format!("{DEPLOYMENTS}/web/scale"), &scale).await
            }
        }
    })
    .await;
    assert!(refused.is_empty(), "{} were refused, as {}", refused.len(), refused[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_comes_and_goes_is_always_deleted_or_written() {
    let (_folder, api) = durable().await;
    let limits = "/api/v1/namespaces/default/limitranges";
    let refused = refused(&api, move |api, writer, round| async move {
        let holder = format!("{writer}-{round}");
        let limit = json!({
            "apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "shared", "labels": {"holder": holder}},
            "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}
        });
        let path = format!("{limits}/shared");
        let mut answer = match writer % 3 {
            // A PUT makes a limit range that is not there.
            0 => api.put(&path, &limit).await,
            1 => {
                let path = format!("{path}?fieldManager=writer&force=true");
                api.call("PATCH", &path, "application/apply-patch+yaml", limit.to_string()).await
            }
            _ => api.delete(&path, &Value::Null).await,
        };
        if writer % 3 == 2 && answer.code == 404 {
            answer.code = 200;
        }
        answer
    })
    .await;
    assert!(refused.is_empty(), "{} were refused, as {}", refused.len(), refused[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_names_a_version_is_refused_when_it_is_an_old_one() {
    let (_folder, api) = durable().await;
    let created = api.post(MAPS, &map("shared", "x")).await.ok();
    let old = created["metadata"]["resourceVersion"].clone();
    let outcomes = refused(&api, move |api, writer, round| {
        let old = old.clone();
        async move {
            let body = json!({
                "metadata": {"resourceVersion": old}, "data": {format!("writer-{writer}"): round.to_string()}
            });
            api.merge(&format!("{MAPS}/shared"), &body).await
        }
    })
    .await;
    assert_eq!(outcomes.len(), WRITERS * ROUNDS - 1, "one of them was first");
    assert!(outcomes.iter().all(|status| status["reason"] == "Conflict"), "{outcomes:?}");
}
