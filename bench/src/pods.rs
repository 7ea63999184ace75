//! The Pods that are replayed: about 5.2 KB of JSON each, 2.3 KB of it managedFields.

mod template;

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_kinds::protobuf::encode_message;
use setpoint_kinds::{conform, table};

use self::template::{Own, Template};

/// What stands for the resourceVersion in the template: nine bytes, as long as every version that is replayed.
const VERSION: &str = "@VERSION@";

/// One Pod as JSON or protobuf, without its resourceVersion.
pub(crate) struct PodText {
    before: Bytes,
    after: Bytes,
}

impl PodText {
    pub(crate) fn new(n: usize) -> PodText {
        // Building and writing a million values would take minutes.
        static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::new(pod));
        PodText::split(TEMPLATE.text(&Own::of(n)).as_bytes())
    }

    pub(crate) fn protobuf(n: usize) -> PodText {
        let ty = table().type_of_kind("", "v1", "Pod").expect("Pods are built in");
        let mut pod = pod(&Own::of(n));
        conform(ty, &mut pod, &mut Vec::new()).expect("the template is a Pod");
        PodText::split(&encode_message(ty, &pod).expect("the template is a Pod"))
    }

    fn split(text: &[u8]) -> PodText {
        let at = memchr::memmem::find(text, VERSION.as_bytes()).expect("a version in the template");
        PodText {
            before: Bytes::copy_from_slice(&text[..at]),
            after: Bytes::copy_from_slice(&text[at + VERSION.len()..]),
        }
    }

    /// How long it is with a version of nine digits.
    pub(crate) fn len(&self) -> usize {
        self.before.len() + VERSION.len() + self.after.len()
    }

    /// Appends the Pod in this version.
    pub(crate) fn write(&self, version: u64, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.before);
        to.extend_from_slice(version.to_string().as_bytes());
        to.extend_from_slice(&self.after);
    }
}

fn pod(own: &Own) -> Value {
    let [name, set_name, instance, namespace, uid, owner, ..] = own.texts();
    let metadata = json!({
        "name": name,
        "generateName": format!("{set_name}-"),
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": VERSION,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "app.kubernetes.io/name": "web",
            "app.kubernetes.io/instance": instance,
            "pod-template-hash": "7d9c",
        },
        "annotations": {
            "prometheus.io/scrape": "true",
        },
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set_name, "uid": owner,
            "controller": true, "blockOwnerDeletion": true,
        }],
        "managedFields": managed_fields(),
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": metadata,
        "spec": spec(own),
        "status": status(own),
    })
}

fn spec(own: &Own) -> Value {
    let [.., node, _, _, _] = own.texts();
    json!({
        "volumes": [{
            "name": "kube-api-access-x2x9z",
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
                ],
            },
        }],
        "containers": [{
            "name": "web",
            "image": "registry.example.com/team/web:1.27.3",
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "PORT", "value": "8080"}],
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [{"name": "kube-api-access-x2x9z", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": node,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "priority": 0,
        "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
    })
}

fn status(own: &Own) -> Value {
    let [.., host, address, container] = own.texts();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:05Z"});
    json!({
        "phase": "Running",
        "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{
            "name": "web",
            "state": {"running": {"startedAt": "2026-01-01T00:00:04Z"}},
            "lastState": {},
            "ready": true,
            "restartCount": 0,
            "image": "registry.example.com/team/web:1.27.3",
            "imageID": "registry.example.com/team/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "containerID": container,
            "started": true,
        }],
        "qosClass": "Burstable",
    })
}

fn managed_fields() -> Value {
    let condition = |kind: &str| {
        (
            format!("k:{{\"type\":\"{kind}\"}}"),
            json!({".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}),
        )
    };
    let conditions: serde_json::Map<String, Value> =
        ["ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"]
            .into_iter()
            .map(condition)
            .collect();
    json!([
        {
            "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:annotations": {".": {}, "f:prometheus.io/scrape": {}},
                    "f:generateName": {},
                    "f:labels": {".": {}, "f:app.kubernetes.io/instance": {}, "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"0f1c9a46-6a1c-4a2e-9f67-0b9f9d5c8a11\"}": {}},
                },
                "f:spec": {
                    "f:containers": {
                        "k:{\"name\":\"web\"}": {
                            ".": {},
                            "f:env": {".": {}, "k:{\"name\":\"LOG_LEVEL\"}": {".": {}, "f:name": {}, "f:value": {}}, "k:{\"name\":\"PORT\"}": {".": {}, "f:name": {}, "f:value": {}}},
                            "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:name": {}, "f:protocol": {}}},
                            "f:readinessProbe": {".": {}, "f:failureThreshold": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}, "f:scheme": {}}, "f:periodSeconds": {}, "f:successThreshold": {}, "f:timeoutSeconds": {}},
                            "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
                            "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                        },
                    },
                    "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}, "f:nodeName": {}, "f:preemptionPolicy": {}, "f:priority": {}, "f:serviceAccountName": {}, "f:tolerations": {}, "f:volumes": {},
                },
            },
        },
        {
            "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "subresource": "status",
            "time": "2026-01-01T00:00:05Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:status": {
                    "f:conditions": conditions,
                    "f:containerStatuses": {}, "f:hostIP": {}, "f:hostIPs": {}, "f:phase": {}, "f:podIP": {},
                    "f:podIPs": {".": {}, "k:{\"ip\":\"10.0.0.1\"}": {".": {}, "f:ip": {}}},
                    "f:startTime": {},
                },
            },
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_the_size_that_we_say() {
        let (all, managed) = (pod(&Own::of(12_345)).to_string().len(), managed_fields().to_string().len());
        assert!((5100..5400).contains(&all), "{all}");
        assert!((2200..2400).contains(&managed), "{managed}");
    }

    #[test]
    fn a_text_from_the_template_is_that_of_the_value() {
        for n in [0, 7, 12_345, 999_999] {
            let mut text = Vec::new();
            PodText::new(n).write(100_000_001, &mut text);
            let value = pod(&Own::of(n)).to_string().replace(VERSION, "100000001");
            assert_eq!(String::from_utf8(text).unwrap(), value);
        }
    }
}
