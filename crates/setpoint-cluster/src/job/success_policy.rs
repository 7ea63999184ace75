//! When a Job with a success policy has succeeded early.

use k8s_openapi::api::batch::v1::SuccessPolicy;

use super::indexes::Indexes;

/// The message of the first rule that is met.
pub(super) fn met(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.len() == 0 {
        return None;
    }
    let rules = &policy?.rules;
    let place = rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(required) => {
            let required = Indexes::parse(required, completions);
            let done = required.overlap(succeeded);
            required.len() > 0
                && (done == required.len() || rule.succeeded_count.is_some_and(|count| done >= count))
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.len() >= count),
    })?;
    Some(format!("Matched rules at index {place}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn enough_of_the_right_indexes_are_a_success() {
        let policy: SuccessPolicy = serde_json::from_value(json!({"rules": [
            {"succeededIndexes": "0,1"}, {"succeededIndexes": "2-9", "succeededCount": 2}, {"succeededCount": 5},
        ]}))
        .unwrap();
        let check = |succeeded: &str, expected: Option<&str>| {
            let message = met(Some(&policy), 10, &Indexes::parse(succeeded, 10));
            assert_eq!(message.as_deref(), expected, "{succeeded}");
        };
        check("", None);
        check("0", None);
        check("0,1", Some("Matched rules at index 0"));
        check("0,2", None);
        check("0,2,9", Some("Matched rules at index 1"));
    }
}
