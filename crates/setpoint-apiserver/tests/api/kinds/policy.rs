use serde_json::json;

use super::Kind;
use crate::support::Api;

const GROUP: &str = "rbac.authorization.k8s.io";

#[tokio::test]
async fn roles_and_bindings() {
    let role = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": "a:b"}, "rules": []});
    Kind::new("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", role)
        .check(
            &[("/rules", json!([{}]))],
            &[
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                "rules[0].verbs: Required value",
            ],
        )
        .await;
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]
    });
    let bindings = Kind::new("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding);
    let made = bindings.made(&[]).await;
    assert_eq!(made["roleRef"]["apiGroup"], GROUP);
    assert_eq!(made["subjects"][0]["apiGroup"], GROUP);
    let other = [("/roleRef/name", json!("other"))];
    bindings
        .check_updates(&[(
            &other,
            &["roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: \
               field is immutable"],
        )])
        .await;
}

#[tokio::test]
async fn autoscalers_are_one_kind_in_two_versions() {
    let api = Api::new();
    let [v1, v2] = ["v1", "v2"]
        .map(|version| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"));
    let target = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
    let made = api
        .post(&v1, &json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 5, "scaleTargetRef": target}}))
        .await
        .ok();
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 80);
    assert_eq!(made["spec"]["minReplicas"], 1);
    let hub = api.get(&format!("{v2}/a")).await.ok();
    assert_eq!(hub["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    let pods = json!({"type": "Pods", "pods": {
        "metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "1k"}}});
    api.merge(&format!("{v2}/a"), &json!({"spec": {"metrics": [pods]}})).await.ok();
    let old = api.get(&format!("{v1}/a")).await.ok();
    assert_eq!(
        old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"],
        r#"[{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"1k"}}]"#
    );
    let answer = api.merge(&format!("{v1}/a"), &json!({"spec": {"maxReplicas": 0}})).await;
    answer.refused(
        422,
        "HorizontalPodAutoscaler.autoscaling \"a\" is invalid: [spec.maxReplicas: Invalid value: 0: must be greater than \
         or equal to `minReplicas`, spec.maxReplicas: Required value]",
    );
}

#[tokio::test]
async fn budgets_and_priority_classes() {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {}});
    Kind::new("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        .check(
            &[("/spec/minAvailable", json!("200%"))],
            &["spec.minAvailable: Invalid value: \"200%\": must not be greater than 100%"],
        )
        .await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 5});
    let classes = Kind::new("/apis/scheduling.k8s.io/v1/priorityclasses", class);
    classes
        .check(
            &[("/metadata/name", json!("system-x"))],
            &["metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. \
               error: system-x is not a known system priority class"],
        )
        .await;
    let value = [("/value", json!(6))];
    classes.check_updates(&[(&value, &["value: Forbidden: may not be changed in an update."])]).await;
}

#[tokio::test]
async fn events_of_both_apis_have_their_own_words() {
    let core = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}
    });
    Kind::new("/api/v1/namespaces/default/events", core)
        .check(
            &[("/involvedObject/namespace", json!("other"))],
            &["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"],
        )
        .await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "a.b/c", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal"
    });
    let events = Kind::new("/apis/events.k8s.io/v1/namespaces/default/events", event);
    events.check(&[("/type", json!("Odd"))], &["type: Invalid value: \"\": has invalid value: Odd"]).await;
    let note = [("/note", json!("other"))];
    events.check_updates(&[(&note, &["message: Invalid value: \"other\": field is immutable"])]).await;
}

#[tokio::test]
async fn leases() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    Kind::new("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)
        .check(
            &[("/spec/leaseDurationSeconds", json!(0))],
            &["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
        )
        .await;
}
