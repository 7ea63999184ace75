//! Times as objects have them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The second that a moment is in: the server keeps no more of a time.
pub(crate) fn whole_second(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// A moment as a field of an object.
pub(crate) fn time(moment: Timestamp) -> Time {
    Time(whole_second(moment))
}
