//! Conditions in a status: what is true of an object, and since when.
//!
//! Set them in a copy of the cached status; [`patch_status`](crate::patch_status) writes what is different:
//!
//! ```
//! use setpoint::conditions::{new_condition, set_condition};
//! use setpoint::k8s_openapi::api::core::v1::Service;
//! use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
//! use setpoint::kube::{Api, ResourceExt};
//! use setpoint::{Context, ReconcileError, patch_status};
//!
//! async fn say(cx: &Context, service: &Service, is_ready: bool) -> Result<(), ReconcileError> {
//!     let mut status = service.status.clone().unwrap_or_default();
//!     let ready = new_condition("Ready", is_ready, "Checked", "");
//!     let ready = Condition { observed_generation: service.metadata.generation, ..ready };
//!     set_condition(status.conditions.get_or_insert_default(), ready, cx.env().now());
//!     let services: Api<Service> = Api::namespaced(cx.client(), &service.namespace().unwrap_or_default());
//!     patch_status(&services, service, &status).await?;
//!     Ok(())
//! }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The schema of a list of conditions, for a status that derives `JsonSchema`. (With the feature `schemars` of `k8s-openapi`
/// each of its types has one; to compile those of seven hundred types takes longer than the rest of the crate.)
///
/// ```
/// use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
///
/// #[derive(schemars::JsonSchema)]
/// struct WidgetStatus {
///     #[schemars(schema_with = "setpoint::conditions::schema")]
///     conditions: Vec<Condition>,
/// }
/// let schema = schemars::schema_for!(WidgetStatus).to_value();
/// assert_eq!(schema["properties"]["conditions"]["items"]["properties"]["status"]["type"], "string");
/// ```
#[cfg(feature = "schemars")]
pub fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": {
            "description": "Condition contains details for one aspect of the current state of this API Resource.",
            "type": "object",
            "properties": {
                "lastTransitionTime": {
                    "description": "lastTransitionTime is the last time the condition transitioned from one status to another. \
                        This should be when the underlying condition changed.  If that is not known, then using the time when \
                        the API field changed is acceptable.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "message is a human readable message indicating details about the transition. This may be \
                        an empty string.",
                    "type": "string",
                },
                "observedGeneration": {
                    "description": "observedGeneration represents the .metadata.generation that the condition was set based \
                        upon. For instance, if .metadata.generation is currently 12, but the \
                        .status.conditions[x].observedGeneration is 9, the condition is out of date with respect to the \
                        current state of the instance.",
                    "type": "integer",
                    "format": "int64",
                },
                "reason": {
                    "description": "reason contains a programmatic identifier indicating the reason for the condition's last \
                        transition. Producers of specific condition types may define expected values and meanings for this \
                        field, and whether the values are considered a guaranteed API. The value should be a CamelCase \
                        string. This field may not be empty.",
                    "type": "string",
                },
                "status": {
                    "description": "status of the condition, one of True, False, Unknown.",
                    "type": "string",
                },
                "type": {
                    "description": "type of condition in CamelCase or in foo.example.com/CamelCase.",
                    "type": "string",
                },
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
    })
}

/// Sets a condition in a list of conditions. Says whether the list changed, that is, whether there is
/// something to write.
///
/// `lastTransitionTime` becomes `now` when the status of the condition changes, and stays when only its reason,
/// message or observed generation does; what `condition` says about it is not used.
///
/// ```
/// use setpoint::Env;
/// use setpoint::conditions::{is_condition_true, new_condition, set_condition};
///
/// let mut conditions = Vec::new();
/// let now = Env::system().now();
/// let ready = new_condition("Ready", true, "AllGood", "every replica is up");
/// assert!(set_condition(&mut conditions, ready.clone(), now));
/// assert!(!set_condition(&mut conditions, ready, now)); // nothing to write
/// assert!(is_condition_true(&conditions, "Ready"));
/// ```
#[doc(alias = "SetStatusCondition")]
pub fn set_condition(conditions: &mut Vec<Condition>, mut condition: Condition, now: Timestamp) -> bool {
    // The server keeps whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let found = conditions.iter_mut().find(|known| known.type_ == condition.type_);
    let Some(known) = found else {
        condition.last_transition_time = Time(now);
        conditions.push(condition);
        return true;
    };
    let is_same = known.status == condition.status;
    condition.last_transition_time = if is_same { known.last_transition_time.clone() } else { Time(now) };
    let is_changed = *known != condition;
    *known = condition;
    is_changed
}

/// A condition that is true or false. Its transition time is set by [`set_condition`]; set
/// `observed_generation` to the generation of the spec that was looked at.
pub fn new_condition(
    type_: impl Into<String>,
    status: bool,
    reason: impl Into<String>,
    message: impl Into<String>,
) -> Condition {
    Condition {
        type_: type_.into(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

/// The condition of this type.
#[doc(alias = "FindStatusCondition")]
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of this type is there and true.
#[doc(alias = "IsStatusConditionTrue")]
pub fn is_condition_true(conditions: &[Condition], type_: &str) -> bool {
    find_condition(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Removes the condition of this type. Says whether there was one.
#[doc(alias = "RemoveStatusCondition")]
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_changes_with_the_status_and_with_nothing_else() {
        let mut list = Vec::new();
        let mut set = |status, reason, second| {
            let changed = set_condition(&mut list, new_condition("Ready", status, reason, "m"), at(second));
            (changed, list[0].last_transition_time.0.as_second())
        };
        assert_eq!(set(false, "Starting", 10), (true, 10));
        assert_eq!(set(false, "Starting", 20), (false, 10));
        assert_eq!(set(false, "Waiting", 30), (true, 10));
        assert_eq!(set(true, "Done", 40), (true, 40));
        assert_eq!(set(true, "Done", 50), (false, 40));
    }

    #[test]
    fn a_new_observed_generation_is_a_change_and_no_transition() {
        let mut list = vec![];
        set_condition(&mut list, new_condition("Ready", true, "R", "m"), at(1));
        let condition = Condition { observed_generation: Some(2), ..new_condition("Ready", true, "R", "m") };
        assert!(set_condition(&mut list, condition, at(2)));
        assert_eq!((list[0].observed_generation, list[0].last_transition_time.0), (Some(2), at(1)));
    }

    #[test]
    fn times_are_whole_seconds_so_that_what_comes_back_is_what_was_sent() {
        let mut list = vec![];
        let now = Timestamp::from_nanosecond(1_500_000_000).unwrap();
        set_condition(&mut list, new_condition("Ready", true, "R", "m"), now);
        assert_eq!(list[0].last_transition_time.0, at(1));
    }

    #[test]
    fn conditions_are_found_and_removed_by_type() {
        let mut list = vec![];
        set_condition(&mut list, new_condition("Ready", true, "R", "m"), at(1));
        set_condition(&mut list, new_condition("Stalled", false, "R", "m"), at(1));
        assert!(is_condition_true(&list, "Ready"));
        assert!(!is_condition_true(&list, "Stalled") && !is_condition_true(&list, "Other"));
        assert!(remove_condition(&mut list, "Ready") && !remove_condition(&mut list, "Ready"));
        assert_eq!(
            find_condition(&list, "Stalled").map(|condition| condition.type_.as_str()),
            Some("Stalled")
        );
        assert_eq!(list.len(), 1);
    }
}
