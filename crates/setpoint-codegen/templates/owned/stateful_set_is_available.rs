/// Whether all pods of the StatefulSet work, as this spec wants them.
pub(crate) fn stateful_set_is_available(child: &StatefulSet) -> bool {
    let wanted = child.spec.replicas.unwrap_or(1);
    child.status.as_ref().is_some_and(|status| {
        status.observed_generation >= child.metadata.generation
            && status.available_replicas.unwrap_or(0) >= wanted
    })
}
