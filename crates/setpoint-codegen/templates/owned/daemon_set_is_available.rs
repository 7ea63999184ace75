/// Whether the DaemonSet has a pod that works on every node that shall have one, as this spec wants them.
pub(crate) fn daemon_set_is_available(child: &DaemonSet) -> bool {
    child.status.as_ref().is_some_and(|status| {
        status.observed_generation >= child.metadata.generation
            && status.number_available.unwrap_or(0) >= status.desired_number_scheduled
    })
}
