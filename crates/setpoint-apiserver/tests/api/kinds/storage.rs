use serde_json::{Value, json};

use super::Kind;

#[tokio::test]
async fn claims() {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    });
    let claims = Kind::new("/api/v1/namespaces/default/persistentvolumeclaims", claim);
    let made = claims.made(&[]).await;
    assert_eq!(made["spec"]["volumeMode"], "Filesystem");
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    claims
        .check(
            &[("/spec/accessModes", json!([])), ("/spec/resources", Value::Null)],
            &[
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
        )
        .await;
}

#[tokio::test]
async fn volumes_and_classes() {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}
    });
    let volumes = Kind::new("/api/v1/persistentvolumes", volume);
    let made = volumes.made(&[]).await;
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    volumes
        .check(
            &[("/spec/nfs", json!({"server": "s", "path": "/p"}))],
            &["spec.nfs: Forbidden: may not specify more than 1 volume type"],
        )
        .await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "a.b/c"
    });
    let classes = Kind::new("/apis/storage.k8s.io/v1/storageclasses", class);
    assert_eq!(classes.made(&[]).await["volumeBindingMode"], "Immediate");
    let other = [("/provisioner", json!("x.b/c"))];
    classes.check_updates(&[(&other, &["provisioner: Invalid value: null: field is immutable"])]).await;
}

#[tokio::test]
async fn quotas_and_limits() {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}
    });
    Kind::new("/api/v1/namespaces/default/resourcequotas", quota)
        .check(
            &[("/spec/hard", json!({"pods": "1500m", "unknown": "1"}))],
            &[
                "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
                "spec.hard[unknown]: Invalid value: \"unknown\": must be a standard resource type or fully qualified",
                "spec.hard[unknown]: Invalid value: \"unknown\": must be a standard resource for quota",
            ],
        )
        .await;
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}]}
    });
    let ranges = Kind::new("/api/v1/namespaces/default/limitranges", range);
    let made = ranges.made(&[]).await;
    assert_eq!(made["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
    assert_eq!(made["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2"}));
    ranges
        .check(
            &[("/spec/limits/0/default", json!({"cpu": "3"}))],
            &[
                "spec.limits[0].defaultRequest[cpu]: Invalid value: \"3\": default request value 3 is greater than max \
                 value 2",
                "spec.limits[0].default[cpu]: Invalid value: \"2\": default value 3 is greater than max value 2",
            ],
        )
        .await;
}
