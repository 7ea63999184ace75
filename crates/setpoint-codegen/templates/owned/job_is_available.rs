/// Whether a pod of the Job works, or has done its work.
pub(crate) fn job_is_available(child: &Job) -> bool {
    let some = |number: Option<i32>| number.unwrap_or(0) > 0;
    child.status.as_ref().is_some_and(|status| some(status.ready) || some(status.succeeded))
}
