//! The seam for `pods/log`: who knows what the containers of a pod have written.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

/// The source of container logs.
///
/// The server keeps no logs. It asks a source, and cuts out what the client wants: the last lines, those since a
/// time, with or without timestamps. To follow a log it asks again and again, with the pod as it is then.
pub trait LogSource: std::fmt::Debug + Send + Sync + 'static {
    /// What a container of `pod` has written until `now`, in order. With `previous`, what the one before its last
    /// restart has; `None` if there was none.
    fn lines(&self, pod: &Pod, container: &str, previous: bool, now: Timestamp) -> Option<Vec<LogLine>>;
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written.
    pub time: Timestamp,
    /// The line, without its end.
    pub text: String,
}
