/// Whether the Deployment has pods that work, as this spec wants them.
pub(crate) fn deployment_is_available(child: &Deployment) -> bool {
    child.status.as_ref().is_some_and(|status| {
        let mut conditions = status.conditions.iter().flatten();
        let available = conditions.find(|one| one.type_.as_deref() == Some("Available"));
        status.observed_generation >= child.metadata.generation
            && available.is_some_and(|one| one.status.as_deref() == Some("True"))
    })
}
