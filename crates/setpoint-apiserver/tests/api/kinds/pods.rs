use serde_json::json;

use super::Kind;
use crate::support::{Api, PODS, pod};

fn pods() -> Kind {
    Kind::new(PODS, pod("web"))
}

#[tokio::test]
async fn a_pod_gets_what_it_leaves_out() {
    let made = pods().made(&[]).await;
    let tolerations =
        |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        made["spec"],
        json!({
            "containers": [{
                "name": "web", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0, "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "tolerations": [tolerations("node.kubernetes.io/not-ready"), tolerations("node.kubernetes.io/unreachable")]
        })
    );
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[tokio::test]
async fn probes_ports_and_volumes_get_what_they_leave_out() {
    let made = pods()
        .made(&[
            ("/spec/hostNetwork", json!(true)),
            ("/spec/containers/0/ports", json!([{"containerPort": 80}])),
            ("/spec/containers/0/livenessProbe", json!({"httpGet": {"port": 80}})),
            ("/spec/containers/0/resources", json!({"limits": {"cpu": "1", "memory": "1Gi"}})),
            ("/spec/volumes", json!([{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}])),
        ])
        .await;
    let container = &made["spec"]["containers"][0];
    assert_eq!(container["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
    assert_eq!(
        container["livenessProbe"],
        json!({
            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3
        })
    );
    assert_eq!(container["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(made["status"]["qosClass"], "Guaranteed");
    assert_eq!(
        made["spec"]["volumes"],
        json!([{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}}])
    );
}

#[tokio::test]
async fn what_is_wrong_with_containers() {
    let pods = pods();
    pods.check(&[("/spec/containers", json!([]))], &["spec.containers: Required value"]).await;
    pods.check(
        &[("/spec/containers/0", json!({"imagePullPolicy": "Odd"}))],
        &[
            "spec.containers[0].name: Required value",
            "spec.containers[0].image: Required value",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Odd\": supported values: \"Always\", \
             \"IfNotPresent\", \"Never\"",
        ],
    )
    .await;
    pods.check(
        &[("/spec/containers/1", json!({"name": "web", "image": "x"}))],
        &["spec.containers[1].name: Duplicate value: \"web\""],
    )
    .await;
    pods.check(
        &[("/spec/containers/0/ports", json!([{"containerPort": 0}, {"containerPort": 70000, "name": "A"}]))],
        &[
            "spec.containers[0].ports[0].containerPort: Required value",
            "spec.containers[0].ports[1].name: Invalid value: \"A\": must contain only alpha-numeric characters (a-z, \
             0-9), and hyphens (-)",
            "spec.containers[0].ports[1].name: Invalid value: \"A\": must contain at least one letter (a-z)",
            "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ],
    )
    .await;
    pods.check(
        &[("/spec/containers/0/resources", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}))],
        &["spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
    )
    .await;
    pods.check(
        &[("/spec/containers/0/volumeMounts", json!([{"name": "x", "mountPath": ""}]))],
        &[
            "spec.containers[0].volumeMounts[0].name: Not found: \"x\"",
            "spec.containers[0].volumeMounts[0].mountPath: Required value",
        ],
    )
    .await;
    pods.check(
        &[("/spec/containers/0/readinessProbe", json!({"periodSeconds": -1}))],
        &[
            "spec.containers[0].readinessProbe: Required value: must specify a handler type",
            "spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ],
    )
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_the_rest_of_a_pod() {
    let pods = pods();
    pods.check(
        &[("/spec/restartPolicy", json!("Odd"))],
        &["spec.restartPolicy: Unsupported value: \"Odd\": supported values: \"Always\", \"OnFailure\", \"Never\""],
    )
    .await;
    pods.check(
        &[("/spec/volumes", json!([{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}]))],
        &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
    )
    .await;
    pods.check(
        &[("/spec/tolerations", json!([{"key": "a", "operator": "Exists", "value": "b"}]))],
        &["spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"],
    )
    .await;
    pods.check(
        &[("/spec/securityContext", json!({"runAsUser": -1}))],
        &["spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
    )
    .await;
    pods.check(
        &[(
            "/spec/topologySpreadConstraints",
            json!([{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "DoNotSchedule"}]),
        )],
        &[
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
        ],
    )
    .await;
    pods.check(
        &[("/spec/dnsPolicy", json!("None"))],
        &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    )
    .await;
}

#[tokio::test]
async fn few_fields_of_a_pod_may_change() {
    let image = [("/spec/containers/0/image", json!("nginx:2"))];
    let labels = [("/metadata/labels", json!({"a": "b"}))];
    let fewer = [("/spec/tolerations", json!([]))];
    let more = [("/spec/containers/1", json!({"name": "b", "image": "c"}))];
    let gates = [("/spec/schedulingGates", json!([{"name": "g"}]))];
    pods()
        .check_updates(&[
            (&image, &[]),
            (&labels, &[]),
            (&fewer, &[]),
            (&more, &["spec.containers: Forbidden: pod updates may not add or remove containers"]),
            (&gates, &["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling \
                        gate 'g'"]),
        ])
        .await;
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let path = format!("{PODS}/web");
    let answer = api.merge(&path, &json!({"spec": {"hostname": "other"}})).await;
    assert!(
        answer.message().contains("pod updates may not change fields other than"),
        "{}",
        answer.message()
    );
    assert!(answer.message().contains("+ hostname: \"other\""), "{}", answer.message());
}

#[tokio::test]
async fn the_priority_of_a_pod_comes_from_its_class() {
    let api = Api::new();
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class =
        json!({"metadata": {"name": "high"}, "value": 7, "globalDefault": true, "preemptionPolicy": "Never"});
    api.post(classes, &class).await.ok();
    let made = api.post(PODS, &pod("default")).await.ok();
    assert_eq!(made["spec"]["priority"], 7);
    assert_eq!(made["spec"]["priorityClassName"], "high");
    assert_eq!(made["spec"]["preemptionPolicy"], "Never");
    let mut critical = pod("critical");
    critical["spec"]["priorityClassName"] = json!("system-node-critical");
    assert_eq!(api.post(PODS, &critical).await.ok()["spec"]["priority"], 2_000_001_000);
    let mut unknown = pod("unknown");
    unknown["spec"]["priorityClassName"] = json!("nope");
    api.post(PODS, &unknown)
        .await
        .refused(403, "pods \"unknown\" is forbidden: no PriorityClass with name nope was found");
    let second = json!({"metadata": {"name": "second"}, "value": 8, "globalDefault": true});
    api.post(classes, &second).await.refused(
        403,
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass high is already marked as default. Only \
         one default can exist",
    );
}

#[tokio::test]
async fn the_status_of_a_pod_has_rules_too() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let path = format!("{PODS}/web/status");
    let made = api.merge(&path, &json!({"status": {"podIP": "10.0.0.1"}})).await.ok();
    assert_eq!(made["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]));
    assert_eq!(made["status"]["qosClass"], "BestEffort");
    let answer = api.merge(&path, &json!({"status": {"qosClass": "Guaranteed"}})).await;
    answer.refused(
        422,
        "Pod \"web\" is invalid: status.qosClass: Invalid value: \"Guaranteed\": field is immutable",
    );
}
