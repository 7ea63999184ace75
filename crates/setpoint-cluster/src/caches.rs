//! The indices of the caches that several controllers share.

use setpoint::SharedInformer;
use setpoint::k8s_openapi::api::core::v1::Pod;

/// Pods by the node that they are bound to.
pub(crate) const BY_NODE: &str = "node";

/// Adds the index of pods by node, unless another controller has.
pub(crate) fn index_pods(pods: &SharedInformer<Pod>) {
    let by_node = |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect();
    // The only error is that the index is there.
    let _ = pods.add_index(BY_NODE, by_node);
}
