//! Backups of a running server.

use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use kube::client::Body;
use serde_json::json;
use setpoint_apiserver::store::{self, BACKUP_PATH};
use setpoint_apiserver::{ApiServer, User};

async fn create<K>(api: Api<K>, object: serde_json::Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test]
async fn no_role_allows_a_backup() {
    let server = ApiServer::builder().build();
    create::<ClusterRole>(
        Api::all(server.client()),
        json!({"metadata": {"name": "all"}, "rules": [
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        ]}),
    )
    .await;
    create::<ClusterRoleBinding>(
        Api::all(server.client()),
        json!({"metadata": {"name": "jane"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}),
    )
    .await;
    let ask = |client: kube::Client| async move {
        client.send(Request::get(BACKUP_PATH).body(Body::empty()).unwrap()).await.unwrap()
    };
    let refused = ask(server.client_as(User::new("jane", ["developers"]))).await;
    assert_eq!(refused.status(), 403);
    let text = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("only members of system:masters"), "{text:?}");
    assert_eq!(ask(server.client()).await.status(), 200);
}

#[tokio::test]
async fn a_backup_is_of_one_moment_although_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let map =
        |name: usize| json!({"metadata": {"name": format!("map-{name}")}, "data": {"x": "y".repeat(9_000)}});
    for number in 0..50 {
        create(maps.clone(), map(number)).await;
    }
    let mut pieces = server.backup();
    let first = pieces.next().unwrap();
    for number in 0..50 {
        maps.delete(&format!("map-{number}"), &Default::default()).await.unwrap();
        create(maps.clone(), map(number + 50)).await;
    }
    let file = folder.path().join("backup");
    let mut backup = store::BackupFile::create(&file).unwrap();
    for piece in std::iter::once(first).chain(pieces) {
        assert!(piece.len() < 1 << 20, "it is made piece by piece");
        std::io::Write::write_all(&mut backup, &piece).unwrap();
    }
    let summary = backup.finish().unwrap();
    assert_eq!(store::verify(&file).unwrap(), summary);

    let place = folder.path().join("data");
    store::restore(&file, &place, false, summary.made).unwrap();
    let server = ApiServer::builder().open(&place).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut found: Vec<_> = maps.list(&Default::default()).await.unwrap().items;
    found.retain(|map| map.metadata.name.as_ref().unwrap().starts_with("map-"));
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|map| map.metadata.name.as_ref().unwrap()[4..].parse::<u8>().unwrap() < 50));
}
