//! Who waits for whom when bodies are long.

use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;
use tower::ServiceExt;

use super::super::*;

async fn send(service: AsUser, method: &str, path: &str, body: String) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = service.oneshot(request.body(Full::new(Bytes::from(body))).unwrap()).await;
    let response = response.expect("the service never fails");
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    response
}

#[tokio::test]
async fn bodies_that_stream_go_through_the_lane_of_their_user() {
    let server = ApiServer::builder().build();
    let (admin, jane) = (server.as_user(User::admin()), User::new("jane", [""; 0]));
    let binding = json!({
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    send(admin.clone(), "POST", bindings, binding.to_string()).await;
    for name in ["a", "b"] {
        let map = json!({"metadata": {"name": name}, "data": {"x": "x".repeat(300_000)}});
        send(admin.clone(), "POST", "/api/v1/namespaces/default/configmaps", map.to_string()).await;
    }
    for path in ["/api/v1/configmaps", "/api/v1/configmaps?watch=true"] {
        let mut body = send(server.as_user(jane.clone()), "GET", path, String::new()).await.into_body();
        let place = server.shared.core.limits.request(&jane).unwrap();
        let turn = place.lane().expect("she is no administrator").hold();
        // More often than the stream lets others go first.
        for _ in 0..8 {
            assert!(futures::poll!(body.frame()).is_pending(), "{path}");
        }
        drop(turn);
        body.frame().await.expect("it goes on").unwrap();
    }
}
