//! Writes the sentences of `kubectl explain`: what the types of Kubernetes and their fields are for.
//!
//! They are Kubernetes' own and come with the `k8s-openapi` crate, whose types can describe themselves. Asked here, they cost
//! the build a few seconds. Asked in the server, its program would carry a function for each of 700 types.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates,
    coordination, core, discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling,
    storage, storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use k8s_openapi::schemars::SchemaGenerator;
use k8s_openapi::schemars::generate::SchemaSettings;
use serde_json::Value;

/// `visit!(generator, module: Kind …; …)`: these types, and all that they refer to.
macro_rules! visit {
    ($generator:expr, $($module:path: $($kind:ident)*;)*) => {
        $({
            use $module as kinds;
            $( $generator.subschema_for::<kinds::$kind>(); )*
        })*
    };
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = SchemaSettings::openapi3().into_generator();
    visit_all(&mut generator);
    // A line for each type, its name and a text in JSON, and behind it a line for each of its fields that begins with a space.
    let mut text = String::new();
    for (name, schema) in generator.take_definitions(false) {
        writeln!(text, "{name} {}", description(&schema))?;
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            if schema["description"].is_string() {
                writeln!(text, " {field} {}", description(schema))?;
            }
        }
    }
    let folder = env::var_os("OUT_DIR").ok_or("cargo gives a build script a folder")?;
    fs::write(Path::new(&folder).join("descriptions.txt"), text)?;
    Ok(())
}

/// In one line.
fn description(schema: &Value) -> Value {
    schema["description"].as_str().unwrap_or_default().into()
}

fn visit_all(generator: &mut SchemaGenerator) {
    visit!(generator,
        admissionregistration::v1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
            MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
            ValidatingWebhookConfiguration;
        apiextensions::v1: CustomResourceDefinition;
        apiregistration::v1: APIService;
        apps::v1: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
        authentication::v1: SelfSubjectReview TokenRequest TokenReview;
        authorization::v1: LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview
            SubjectAccessReview;
        autoscaling::v1: HorizontalPodAutoscaler Scale;
        autoscaling::v2: HorizontalPodAutoscaler;
        batch::v1: CronJob Job;
        certificates::v1: CertificateSigningRequest ClusterTrustBundle PodCertificateRequest;
        coordination::v1: Lease;
        core::v1: Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node
            PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController
            ResourceQuota Secret Service ServiceAccount;
        discovery::v1: EndpointSlice;
        events::v1: Event;
        flowcontrol::v1: FlowSchema PriorityLevelConfiguration;
        networking::v1: IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR;
        node::v1: RuntimeClass;
        policy::v1: Eviction PodDisruptionBudget;
        rbac::v1: ClusterRole ClusterRoleBinding Role RoleBinding;
        resource::v1: DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice;
        scheduling::v1: PriorityClass;
        storage::v1: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment
            VolumeAttributesClass;
        storagemigration::v1: StorageVersionMigration;
        meta::v1: DeleteOptions ListMeta Status;
    );
}
