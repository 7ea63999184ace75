//! What exists from the start.

use serde_json::{Value, json};

use crate::kinds::{self, SYSTEM_CLASSES, allocation};
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::storage::{Action, Change, Expect, NotStored};
use crate::strategy;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the namespaces, the priority classes of the system, the network of services and the `kubernetes`
/// service. A store that has them already keeps what it has.
pub(crate) async fn run(core: &Core) -> Result<(), NotStored> {
    for name in NAMESPACES {
        namespace(core, name).await?;
    }
    for (name, value, description) in SYSTEM_CLASSES {
        let class = json!({"metadata": {"name": name}, "value": value, "description": description});
        create(core, ("scheduling.k8s.io", "v1", "priorityclasses"), class).await?;
    }
    services(core).await
}

/// Creates a namespace, unless there is one.
pub(crate) async fn namespace(core: &Core, name: &str) -> Result<(), NotStored> {
    create(core, ("", "v1", "namespaces"), json!({"metadata": {"name": name}, "spec": {}})).await
}

/// Creates the network of services and the `kubernetes` service, unless they are there.
pub(crate) async fn services(core: &Core) -> Result<(), NotStored> {
    let ranges = &core.service_ranges;
    let cidrs: Vec<String> = ranges.iter().map(|range| range.to_string()).collect();
    let network = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
    create(core, ("networking.k8s.io", "v1", "servicecidrs"), network).await?;
    let (ip, family) = (ranges.first().first().to_string(), ranges.first().family());
    let service = json!({
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}
        },
        "spec": {
            "clusterIP": ip,
            "clusterIPs": [ip],
            "ipFamilies": [family],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "targetPort": 6443}]
        }
    });
    let address = allocation::ip_record(core, &ip, &service);
    create(core, ("networking.k8s.io", "v1", "ipaddresses"), address).await?;
    create(core, ("", "v1", "services"), service).await
}

pub(crate) async fn create(
    core: &Core,
    (group, version, plural): (&str, &str, &str),
    mut object: Value,
) -> Result<(), NotStored> {
    let resource = Registry::built_in().expect(group, version, plural);
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind().into();
    strategy::prepare_create(resource, &mut object, &core.env);
    kinds::default(resource, &mut object);
    if plural == "servicecidrs" {
        object["status"] = json!({"conditions": [{
            "type": "Ready", "status": "True", "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
            "lastTransitionTime": strategy::timestamp(core.env.now())
        }]});
    }
    let namespace = object::text(&object, &["metadata", "namespace"]).map(str::to_owned);
    let change = Change {
        key: resource.key(namespace.as_deref(), object::name(&object)),
        expect: Expect::Absent,
        action: Action::Put { value: object::encode(&object), ttl: None },
    };
    match core.storage.commit(change).await {
        Ok(_) => Ok(()),
        Err(error) => error.into_current().map(drop),
    }
}
