use serde_json::{Value, json};

use super::Kind;
use crate::support::{DEPLOYMENTS, deployment};

fn spec() -> Value {
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    })
}

fn kind(path: &'static str, kind: &str, spec: Value) -> Kind {
    Kind::new(path, json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}))
}

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const REPLICAS: &str = "/apis/apps/v1/namespaces/default/replicasets";

#[tokio::test]
async fn a_deployment_gets_what_it_leaves_out() {
    let made = kind(DEPLOYMENTS, "Deployment", spec()).made(&[]).await;
    let spec = &made["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(spec["revisionHistoryLimit"], 10);
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(spec["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    // What only pods get.
    assert!(spec["template"]["spec"].get("enableServiceLinks").is_none());
    assert!(spec["template"]["spec"].get("tolerations").is_none());
}

#[tokio::test]
async fn what_is_wrong_with_a_deployment() {
    let deployments = kind(DEPLOYMENTS, "Deployment", spec());
    deployments
        .check(
            &[("/spec/selector/matchLabels/app", json!("x"))],
            &["spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template \
               `labels`"],
        )
        .await;
    deployments
        .check(
            &[("/spec/selector", Value::Null)],
            &[
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template \
                 `labels`",
            ],
        )
        .await;
    deployments
        .check(
            &[("/spec/strategy", json!({"type": "Odd"}))],
            &["spec.strategy: Unsupported value: {\"Type\":\"Odd\",\"RollingUpdate\":null}: supported values: \
               \"Recreate\", \"RollingUpdate\""],
        )
        .await;
    deployments
        .check(
            &[("/spec/strategy", json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}))],
            &["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"],
        )
        .await;
    deployments
        .check(
            &[("/spec/template/spec/restartPolicy", json!("Never"))],
            &["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""],
        )
        .await;
}

#[tokio::test]
async fn the_selector_of_a_deployment_stays() {
    let other = json!({"matchLabels": {"app": "other"}});
    let edits = [("/spec/selector", other), ("/spec/template/metadata/labels", json!({"app": "other"}))];
    let scaled = [("/spec/replicas", json!(7))];
    Kind::new(DEPLOYMENTS, deployment("web"))
        .check_updates(&[
            (&scaled, &[]),
            (
                &edits,
                &["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"other\"}}: field is immutable"],
            ),
        ])
        .await;
}

#[tokio::test]
async fn stateful_sets() {
    let sets = kind(SETS, "StatefulSet", spec());
    let made = sets
        .made(&[
            (
                "/spec/volumeClaimTemplates",
                json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                   "resources": {"requests": {"storage": "1Gi"}}}}]),
            ),
            (
                "/spec/template/spec/containers/0/volumeMounts",
                json!([{"name": "data", "mountPath": "/data"}]),
            ),
        ])
        .await;
    assert_eq!(made["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(
        made["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}})
    );
    let claim = &made["spec"]["volumeClaimTemplates"][0];
    assert_eq!(
        (claim["kind"].as_str(), claim["status"]["phase"].as_str()),
        (Some("PersistentVolumeClaim"), Some("Pending"))
    );
    sets.check(
        &[("/spec/podManagementPolicy", json!("Odd"))],
        &["spec.podManagementPolicy: Invalid value: \"Odd\": must be 'OrderedReady' or 'Parallel'"],
    )
    .await;
    let name = [("/spec/serviceName", json!("other"))];
    let replicas = [("/spec/replicas", json!(3))];
    sets.check_updates(&[
        (&replicas, &[]),
        (&name, &["spec.serviceName: Invalid value: \"other\": field is immutable"]),
    ])
    .await;
}

#[tokio::test]
async fn daemon_sets_count_changes_of_their_template() {
    let daemons = kind(DAEMONS, "DaemonSet", spec());
    let made = daemons.made(&[]).await;
    let counter = "deprecated.daemonset.template.generation";
    assert_eq!(made["metadata"]["annotations"][counter], "1");
    assert_eq!(
        made["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    );
    let image = [("/spec/template/spec/containers/0/image", json!("other"))];
    daemons.check_updates(&[(&image, &[])]).await;
    let changed = daemons.api.get(&format!("{DAEMONS}/web")).await.ok();
    assert_eq!(changed["metadata"]["annotations"][counter], "2");
    daemons
        .check(
            &[("/spec/updateStrategy", json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}))],
            &["spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is \
               non-zero"],
        )
        .await;
}

#[tokio::test]
async fn replica_sets_and_their_ancestors() {
    kind(REPLICAS, "ReplicaSet", spec())
        .check(
            &[("/spec/replicas", json!(-1))],
            &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        )
        .await;
    let path = "/api/v1/namespaces/default/replicationcontrollers";
    let template = spec()["template"].clone();
    let controllers = Kind::new(
        path,
        json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"},
               "spec": {"template": template}}),
    );
    let made = controllers.made(&[]).await;
    assert_eq!(made["spec"]["selector"], json!({"app": "web"}));
    assert_eq!(made["metadata"]["labels"], json!({"app": "web"}));
    controllers
        .check(
            &[("/spec/template", Value::Null)],
            &["spec.selector: Required value", "spec.template: Required value"],
        )
        .await;
}
