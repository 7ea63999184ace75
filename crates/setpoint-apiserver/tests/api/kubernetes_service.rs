//! How programs find the server: the service `kubernetes`, and what says whether all is well.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_env::Env;
use tokio::net::TcpListener;

use crate::support::Api;

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

#[tokio::test(start_paused = true)]
async fn the_service_leads_to_where_the_server_listens() {
    let env = Env::seeded(1);
    let server = ApiServer::builder().env(env.clone()).advertise_address([192, 0, 2, 10].into()).build();
    let api = Api::with(server.clone());
    assert_eq!(api.get(ENDPOINTS).await.code, 404, "nobody listens yet");
    let authority = CertificateAuthority::generate(&env).unwrap();
    let tls = authority.server_config(&authority.issue_server(["127.0.0.1"]).unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let _serving = env.spawn(async move { server.serve(listener, tls, CancellationToken::new()).await });
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(11)).await;
        let service = api.get(SERVICE).await.ok();
        assert_eq!(
            service["spec"]["ports"],
            json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}])
        );
        let endpoints = api.get(ENDPOINTS).await.ok();
        assert_eq!(
            endpoints["metadata"]["labels"],
            json!({"endpointslice.kubernetes.io/skip-mirror": "true"})
        );
        assert_eq!(
            endpoints["subsets"],
            json!([{"addresses": [{"ip": "192.0.2.10"}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}])
        );
        let slice = api.get(SLICE).await.ok();
        assert_eq!(slice["metadata"]["labels"], json!({"kubernetes.io/service-name": "kubernetes"}));
        assert_eq!((&slice["addressType"], &slice["metadata"]["generation"]), (&json!("IPv4"), &json!(1)));
        assert_eq!(slice["endpoints"], json!([{"addresses": ["192.0.2.10"], "conditions": {"ready": true}}]));
        assert_eq!(slice["ports"], json!([{"name": "https", "protocol": "TCP", "port": port}]));
        for path in [SERVICE, ENDPOINTS, SLICE] {
            api.delete(path, &Value::Null).await.ok();
        }
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    let made = api.get(ENDPOINTS).await.ok();
    api.merge(ENDPOINTS, &json!({"subsets": null, "metadata": {"annotations": {"a": "b"}}})).await.ok();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let kept = api.get(ENDPOINTS).await.ok();
    assert_eq!((&kept["subsets"], &kept["metadata"]["annotations"]), (&made["subsets"], &json!({"a": "b"})));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.get(ENDPOINTS).await.ok(), kept, "nothing is written when all is well");
}

#[tokio::test]
async fn component_statuses_are_worked_out() {
    let api = Api::new();
    let list = api.get("/api/v1/componentstatuses").await;
    assert_eq!(list.names(), ["scheduler", "controller-manager", "etcd-0"]);
    assert_eq!(list.body["metadata"], json!({}));
    let healthy = |status: &Value| status["conditions"][0]["status"].clone();
    let states: Vec<Value> = list.body["items"].as_array().unwrap().iter().map(healthy).collect();
    assert_eq!(states, ["False", "False", "True"]);
    let one = api.get("/api/v1/componentstatuses/etcd-0").await.ok();
    assert_eq!(
        one,
        json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": "etcd-0"},
        "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]})
    );
    api.get("/api/v1/componentstatuses/x").await.refused(404, "componentstatus \"x\" not found");
    let chosen = api.get("/api/v1/componentstatuses?fieldSelector=metadata.name%3Dscheduler").await;
    assert_eq!(chosen.names(), ["scheduler"]);
    assert_eq!(api.get("/api/v1/componentstatuses?labelSelector=a%3Db").await.names().len(), 0);
    assert_eq!(api.get("/api/v1/componentstatuses?watch=1").await.code, 405);

    let lease = json!({"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "me",
        "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"}});
    api.post("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", &lease).await.ok();
    let scheduler = api.get("/api/v1/componentstatuses/scheduler").await.ok();
    assert_eq!(healthy(&scheduler), "True", "its lease is held");
}
