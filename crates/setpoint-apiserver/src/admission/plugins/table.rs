//! The admission plugins of Kubernetes 1.37, in the order in which they run.

/// A plugin that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    AlwaysAdmit,
    NamespaceAutoProvision,
    NamespaceLifecycle,
    NamespaceExists,
    LimitRanger,
    ServiceAccount,
    TaintNodesByCondition,
    AlwaysPullImages,
    Priority,
    DefaultTolerationSeconds,
    DefaultStorageClass,
    StorageObjectInUseProtection,
    PersistentVolumeClaimResize,
    RuntimeClass,
    CertificateApproval,
    CertificateSigning,
    ClusterTrustBundleAttest,
    CertificateSubjectRestriction,
    DefaultIngressClass,
    DenyServiceExternalIPs,
    MutatingAdmissionWebhook,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionWebhook,
    ResourceQuota,
    AlwaysDeny,
}

impl Plugin {
    pub(super) fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// The group and the plural of a resource.
type Resources = &'static [(&'static str, &'static str)];

/// What is known about a plugin.
pub(super) struct Row {
    pub name: &'static str,
    /// Whether it is on unless told otherwise.
    pub is_default: bool,
    /// None if only Kubernetes has it.
    pub plugin: Option<Plugin>,
    /// What it changes, before webhooks do. Namespaces, webhooks, policies and quotas, which look at everything, have
    /// their own places in `admission.rs`.
    pub mutates: Resources,
    /// What it judges, after validation and before policies and webhooks do.
    pub validates: Resources,
}

const fn row(name: &'static str, is_default: bool, plugin: Plugin) -> Row {
    Row { name, is_default, plugin: Some(plugin), mutates: &[], validates: &[] }
}

/// One that only Kubernetes has.
const fn absent(name: &'static str, is_default: bool) -> Row {
    Row { name, is_default, plugin: None, mutates: &[], validates: &[] }
}

impl Row {
    const fn mutates(self, mutates: Resources) -> Row {
        Row { mutates, ..self }
    }

    const fn validates(self, validates: Resources) -> Row {
        Row { validates, ..self }
    }
}

const PODS: Resources = &[("", "pods")];
const CLAIMS: Resources = &[("", "persistentvolumeclaims")];
const REQUESTS: Resources = &[("certificates.k8s.io", "certificatesigningrequests")];

pub(super) const TABLE: &[Row] = &[
    row("AlwaysAdmit", false, Plugin::AlwaysAdmit),
    row("NamespaceAutoProvision", false, Plugin::NamespaceAutoProvision),
    row("NamespaceLifecycle", true, Plugin::NamespaceLifecycle),
    row("NamespaceExists", false, Plugin::NamespaceExists),
    absent("LimitPodHardAntiAffinityTopology", false),
    row("LimitRanger", true, Plugin::LimitRanger)
        .mutates(PODS)
        .validates(&[("", "pods"), ("", "persistentvolumeclaims")]),
    row("ServiceAccount", true, Plugin::ServiceAccount).mutates(PODS),
    absent("NodeRestriction", false),
    row("TaintNodesByCondition", true, Plugin::TaintNodesByCondition).mutates(&[("", "nodes")]),
    row("AlwaysPullImages", false, Plugin::AlwaysPullImages).mutates(PODS).validates(PODS),
    absent("ImagePolicyWebhook", false),
    absent("PodSecurity", true),
    absent("PodNodeSelector", false),
    row("Priority", true, Plugin::Priority)
        .mutates(PODS)
        .validates(&[("scheduling.k8s.io", "priorityclasses")]),
    row("DefaultTolerationSeconds", true, Plugin::DefaultTolerationSeconds).mutates(PODS),
    absent("PodTolerationRestriction", false),
    absent("EventRateLimit", false),
    absent("ExtendedResourceToleration", false),
    row("DefaultStorageClass", true, Plugin::DefaultStorageClass).mutates(CLAIMS),
    row("StorageObjectInUseProtection", true, Plugin::StorageObjectInUseProtection).mutates(&[
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("storage.k8s.io", "volumeattributesclasses"),
    ]),
    absent("PodGroupProtection", true),
    absent("OwnerReferencesPermissionEnforcement", false),
    row("PersistentVolumeClaimResize", true, Plugin::PersistentVolumeClaimResize).validates(CLAIMS),
    row("RuntimeClass", true, Plugin::RuntimeClass).mutates(PODS).validates(PODS),
    row("CertificateApproval", true, Plugin::CertificateApproval).validates(REQUESTS),
    row("CertificateSigning", true, Plugin::CertificateSigning).validates(REQUESTS),
    row("ClusterTrustBundleAttest", true, Plugin::ClusterTrustBundleAttest)
        .validates(&[("certificates.k8s.io", "clustertrustbundles")]),
    row("CertificateSubjectRestriction", true, Plugin::CertificateSubjectRestriction).validates(REQUESTS),
    row("DefaultIngressClass", true, Plugin::DefaultIngressClass)
        .mutates(&[("networking.k8s.io", "ingresses")]),
    row("DenyServiceExternalIPs", false, Plugin::DenyServiceExternalIPs).validates(&[("", "services")]),
    absent("PodTopologyLabels", true),
    absent("NodeDeclaredFeatureValidator", true),
    absent("PodResizeValidator", true),
    absent("MutatingAdmissionPolicy", true),
    row("MutatingAdmissionWebhook", true, Plugin::MutatingAdmissionWebhook),
    row("ValidatingAdmissionPolicy", true, Plugin::ValidatingAdmissionPolicy),
    row("ValidatingAdmissionWebhook", true, Plugin::ValidatingAdmissionWebhook),
    row("ResourceQuota", true, Plugin::ResourceQuota),
    row("AlwaysDeny", false, Plugin::AlwaysDeny),
];
