//! The sentences of `kubectl explain`.
//!
//! They are Kubernetes' own and come with the `k8s-openapi` crate, which can write JSON schemas of its types.
//! Those schemas lack what patches need, so only their descriptions are taken.

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates,
    coordination, core, discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling,
    storage, storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use k8s_openapi::schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};

/// What types and fields are for, by the name that OpenAPI gives the type.
pub(super) struct Descriptions(Map<String, Value>);

impl Descriptions {
    /// Those of the kinds of one group-version, and of all that they refer to.
    pub(super) fn of(group: &str, version: &str) -> Descriptions {
        let mut generator = SchemaSettings::openapi3().into_generator();
        visit(group, version, &mut generator);
        generator.subschema_for::<meta::v1::DeleteOptions>();
        generator.subschema_for::<meta::v1::Status>();
        generator.subschema_for::<meta::v1::ListMeta>();
        Descriptions(generator.take_definitions(false))
    }

    /// Those that custom resources need.
    pub(super) fn of_custom() -> Descriptions {
        let mut generator = SchemaSettings::openapi3().into_generator();
        generator.subschema_for::<autoscaling::v1::Scale>();
        generator.subschema_for::<meta::v1::DeleteOptions>();
        generator.subschema_for::<meta::v1::Status>();
        generator.subschema_for::<meta::v1::ListMeta>();
        Descriptions(generator.take_definitions(false))
    }

    /// What a type is for.
    pub(super) fn of_type(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.get("description")?.as_str()
    }

    /// What a field is for.
    pub(super) fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        self.0.get(name)?.get("properties")?.get(field)?.get("description")?.as_str()
    }
}

macro_rules! visit {
    ($generator:expr, $module:path: $($kind:ident)*) => {{
        use $module as kinds;
        $( $generator.subschema_for::<kinds::$kind>(); )*
    }};
}

fn visit(group: &str, version: &str, generator: &mut SchemaGenerator) {
    match (group, version) {
        ("", "v1") => {
            visit!(generator, core::v1: Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace
                Node PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota
                Secret Service ServiceAccount);
            visit!(generator, authentication::v1: TokenRequest);
            visit!(generator, autoscaling::v1: Scale);
            visit!(generator, policy::v1: Eviction);
        }
        ("apps", "v1") => {
            visit!(generator, apps::v1: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet);
            visit!(generator, autoscaling::v1: Scale);
        }
        ("admissionregistration.k8s.io", "v1") => {
            visit!(generator, admissionregistration::v1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
                MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
                ValidatingWebhookConfiguration);
        }
        ("apiextensions.k8s.io", "v1") => visit!(generator, apiextensions::v1: CustomResourceDefinition),
        ("apiregistration.k8s.io", "v1") => visit!(generator, apiregistration::v1: APIService),
        ("authentication.k8s.io", "v1") => {
            visit!(generator, authentication::v1: SelfSubjectReview TokenReview);
        }
        ("authorization.k8s.io", "v1") => {
            visit!(generator, authorization::v1: LocalSubjectAccessReview SelfSubjectAccessReview
                SelfSubjectRulesReview SubjectAccessReview);
        }
        ("autoscaling", "v1") => visit!(generator, autoscaling::v1: HorizontalPodAutoscaler),
        ("autoscaling", "v2") => visit!(generator, autoscaling::v2: HorizontalPodAutoscaler),
        ("batch", "v1") => visit!(generator, batch::v1: CronJob Job),
        ("certificates.k8s.io", "v1") => {
            visit!(generator, certificates::v1: CertificateSigningRequest ClusterTrustBundle
                PodCertificateRequest);
        }
        ("coordination.k8s.io", "v1") => visit!(generator, coordination::v1: Lease),
        ("discovery.k8s.io", "v1") => visit!(generator, discovery::v1: EndpointSlice),
        ("events.k8s.io", "v1") => visit!(generator, events::v1: Event),
        ("flowcontrol.apiserver.k8s.io", "v1") => {
            visit!(generator, flowcontrol::v1: FlowSchema PriorityLevelConfiguration);
        }
        ("networking.k8s.io", "v1") => {
            visit!(generator, networking::v1: IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR);
        }
        ("node.k8s.io", "v1") => visit!(generator, node::v1: RuntimeClass),
        ("policy", "v1") => visit!(generator, policy::v1: PodDisruptionBudget),
        ("rbac.authorization.k8s.io", "v1") => {
            visit!(generator, rbac::v1: ClusterRole ClusterRoleBinding Role RoleBinding);
        }
        ("resource.k8s.io", "v1") => {
            visit!(generator, resource::v1: DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate
                ResourceSlice);
        }
        ("scheduling.k8s.io", "v1") => visit!(generator, scheduling::v1: PriorityClass),
        ("storage.k8s.io", "v1") => {
            visit!(generator, storage::v1: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment
                VolumeAttributesClass);
        }
        ("storagemigration.k8s.io", "v1") => visit!(generator, storagemigration::v1: StorageVersionMigration),
        // A version that the crate does not know is explained without words.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use setpoint_kinds::table;

    use super::*;

    #[test]
    fn every_kind_is_described() {
        for resource in table().resources() {
            let descriptions = Descriptions::of(resource.group, resource.version);
            let name = resource.ty().openapi_name();
            assert!(descriptions.of_type(&name).is_some_and(|text| !text.is_empty()), "{name}");
        }
    }
}
