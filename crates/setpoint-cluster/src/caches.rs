//! The indices of the caches that several controllers share. Whoever asks by node, by claim or by class looks at what it
//! asks for, however many others there are.

use std::num::NonZeroUsize;

use setpoint::k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use setpoint::kube::ResourceExt;
use setpoint::{InformerBuilder, SharedInformer, SharedInformerFactory};

use crate::persistent_volume_binder::{claims_of, class_of_volume};

/// Pods by the node that they are bound to.
pub(crate) const BY_NODE: &str = "node";
/// Pods by their addresses: whoever asks whether one is taken reads no pod.
pub(crate) const BY_ADDRESS: &str = "address";
/// Pods by the claims that they use: `NAMESPACE/NAME`.
pub(crate) const BY_CLAIM: &str = "claim";
/// Volumes by the claim that they are for, `NAMESPACE/NAME`; those that are for none by their class, [`free_of_class`].
pub(crate) const BY_CLAIM_OR_CLASS: &str = "claim-or-class";

/// How many pods are kept decoded: those that have changed last. Each controller looks at them then, and at most of the
/// others never again.
const DECODED_PODS: NonZeroUsize = NonZeroUsize::new(8192).expect("it is not 0");

/// The cache of pods.
pub(crate) fn pods(informers: &SharedInformerFactory) -> SharedInformer<Pod> {
    informers.informer_with(|pods: InformerBuilder<Pod>| pods.keep_decoded(DECODED_PODS))
}

/// Adds the index of pods by their addresses.
pub(crate) fn index_pods_by_address(pods: &SharedInformer<Pod>) {
    let by_address =
        |pod: &Pod| pod.status.iter().filter_map(|status| status.pod_ip.clone()).collect::<Vec<_>>();
    // As below.
    let _ = pods.add_index(BY_ADDRESS, by_address);
}

/// Adds the index of pods by node, unless another controller has.
pub(crate) fn index_pods(pods: &SharedInformer<Pod>) {
    let by_node = |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect();
    // The only error is that the index is there.
    let _ = pods.add_index(BY_NODE, by_node);
}

/// Adds the index of pods by claim, unless another controller has.
pub(crate) fn index_pods_by_claim(pods: &SharedInformer<Pod>) {
    let by_claim = |pod: &Pod| {
        let namespace = pod.namespace().unwrap_or_default();
        claims_of(pod).iter().map(|claim| claim_value(&namespace, claim)).collect()
    };
    // As above.
    let _ = pods.add_index(BY_CLAIM, by_claim);
}

/// Adds the index of volumes by claim or class, unless another controller has.
pub(crate) fn index_volumes(volumes: &SharedInformer<PersistentVolume>) {
    let value = |volume: &PersistentVolume| {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        match claim {
            Some(claim) => {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                vec![claim_value(&text(&claim.namespace), &text(&claim.name))]
            }
            None => vec![free_of_class(class_of_volume(volume).unwrap_or_default())],
        }
    };
    // As above.
    let _ = volumes.add_index(BY_CLAIM_OR_CLASS, value);
}

/// What is found under a claim.
pub(crate) fn claim_value(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// What volumes that are for no claim are found under. No namespace is empty.
pub(crate) fn free_of_class(class: &str) -> String {
    format!("/{class}")
}
