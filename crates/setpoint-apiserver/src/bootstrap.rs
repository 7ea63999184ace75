//! What exists from the start.

use futures::FutureExt;
use serde_json::{Value, json};

use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::storage::{Action, Change, Expect};
use crate::strategy;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the namespaces and the `kubernetes` service.
pub(crate) fn run(core: &Core) {
    for name in NAMESPACES {
        create(
            core,
            "namespaces",
            json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {}
            }),
        );
    }
    create(
        core,
        "services",
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"}
            },
            "spec": {
                "clusterIP": "10.96.0.1",
                "clusterIPs": ["10.96.0.1"],
                "internalTrafficPolicy": "Cluster",
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
                "sessionAffinity": "None",
                "type": "ClusterIP"
            }
        }),
    );
}

fn create(core: &Core, plural: &str, mut object: Value) {
    let resource = Registry::built_in().expect("", "v1", plural);
    strategy::prepare_create(resource, &mut object, &core.env);
    let namespace = object::text(&object, &["metadata", "namespace"]).map(str::to_owned);
    let change = Change {
        key: resource.key(namespace.as_deref(), object::name(&object)),
        expect: Expect::Absent,
        action: Action::Put { value: object::encode(&object), expires: None },
    };
    // A store that has them already keeps what it has.
    let _exists = core.storage.commit(change).now_or_never();
}
