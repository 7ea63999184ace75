//! The server behind an API server, as `kubectl top` and a watcher see it.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use setpoint_apiserver::extension::{Asked, Beside};
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, FrontProxy, User};
use setpoint_env::Env;
use tokio::net::TcpListener;

use example_extension_server::{
    Alarm, AlarmSpec, CPU, NAMESPACE, NodeMetrics, Nodes, Peak, Peaks, PodMetrics, SERVICE,
};

#[tokio::test]
async fn nodes_and_pods_have_metrics_and_peaks_are_seen() {
    let env = Env::system();
    let proxies = CertificateAuthority::generate(&env).unwrap();
    let identity = proxies.issue_client(&User::new("front-proxy-client", [""; 0])).unwrap();
    let api = ApiServer::builder()
        .proxy_client(identity)
        .published_proxy(FrontProxy::usual(vec![proxies.certificate_der().clone()]))
        .build();
    let client = api.client();
    let own = Peaks::new(env.clone());
    let server = example_extension_server::server(client.clone(), own.clone(), &env).await.unwrap();
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let (serving, admin) = (server.clone(), client.clone());
    let beside = Beside::new(NAMESPACE, SERVICE);
    let _serving = env.spawn(async move {
        serving.serve_beside(&admin, &beside, listener, CancellationToken::new()).await.unwrap();
    });

    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {(CPU): "400"}},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "main", "image": "nginx", "resources": {"requests": {"memory": "64Mi"}}}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let running = json!({"status": {"phase": "Running"}});
    pods.patch_status("web", &PatchParams::default(), &Patch::Merge(&running)).await.unwrap();

    let metrics: Api<NodeMetrics> = Api::all(client.clone());
    let measured = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match metrics.get("n1").await {
                Ok(measured) => break measured,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    assert_eq!(measured.await.expect("it is registered").usage["cpu"], "450m");
    let metrics: Api<PodMetrics> = Api::default_namespaced(client.clone());
    let selected = metrics.list(&ListParams::default().labels("app=web")).await.unwrap();
    let [web] = selected.items.as_slice() else { panic!("{selected:?}") };
    assert_eq!(web.containers[0].usage["memory"], format!("{}Ki", 32 << 10));
    assert!(metrics.list(&ListParams::default().labels("app=other")).await.unwrap().items.is_empty());

    let asked = Asked::by(User::admin());
    let nodes = Nodes::new(client.clone(), env.clone());
    let (alarms, direct): (Api<Alarm>, Api<Alarm>) = (Api::all(client.clone()), Api::all(server.client()));
    for (name, cpu) in [("low", "0.4"), ("high", "2")] {
        let alarm = Alarm::new(name, AlarmSpec { cpu: cpu.to_owned(), reason: None });
        alarms.create(&PostParams::default(), &alarm).await.unwrap();
    }
    let bad = Alarm::new("bad", AlarmSpec { cpu: "much".to_owned(), reason: None });
    let refused = alarms.create(&PostParams::default(), &bad).await.unwrap_err();
    assert!(refused.to_string().contains("must be a quantity"), "{refused}");
    let following = example_extension_server::follow(&own, &nodes, &direct, &asked);
    let peaks: Api<Peak> = Api::all(client);
    let seen = async {
        loop {
            match peaks.get_opt("n1").await {
                Ok(Some(peak)) if is_raised(&alarms, "low").await => break peak,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let peak = tokio::select! {
        () = following => unreachable!("it goes on"),
        peak = tokio::time::timeout(Duration::from_secs(20), seen) => peak.expect("it is seen"),
    };
    assert_eq!(peak.cpu, "450m");
    assert!(!is_raised(&alarms, "high").await);
    let mut watch = peaks
        .watch(&WatchParams::default(), peak.metadata.resource_version.as_deref().unwrap())
        .await
        .unwrap()
        .boxed();
    let mut more = peak_of("n1", "900m");
    assert!(own.see(&more));
    let event = tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("it is told");
    let Some(Ok(WatchEvent::Modified(told))) = event else { panic!("{event:?}") };
    assert_eq!(told.cpu, "900m");
    drop(watch);
    more.usage.insert("cpu".to_owned(), "1".to_owned());
    assert!(own.see(&more));
    let mut watch = peaks
        .watch(&WatchParams::default(), told.metadata.resource_version.as_deref().unwrap())
        .await
        .unwrap()
        .boxed();
    let event = tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("it resumes");
    let Some(Ok(WatchEvent::Modified(told))) = event else { panic!("{event:?}") };
    assert_eq!(told.cpu, "1000m");
    let refused = peaks.delete("n1", &kube::api::DeleteParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 405));
}

async fn is_raised(alarms: &Api<Alarm>, name: &str) -> bool {
    let status = alarms.get(name).await.unwrap().status;
    status.is_some_and(|status| status.raised == ["n1"])
}

fn peak_of(node: &str, cpu: &str) -> NodeMetrics {
    serde_json::from_value(json!({
        "metadata": {"name": node}, "timestamp": "", "window": "", "usage": {"cpu": cpu},
    }))
    .unwrap()
}
