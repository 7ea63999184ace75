//! What one writer changes in a status, on top of what another one wrote.

use serde_json::{Map, Value};

const CONDITIONS: &str = "conditions";
const TIME: &str = "lastTransitionTime";

/// Whether a merge patch replaces or removes a list: then it undoes what others have done to it.
pub(super) fn replaces_list(base: &Value, patch: &Value) -> bool {
    match (base, patch) {
        (base, Value::Object(patch)) => {
            patch.iter().any(|(name, patch)| replaces_list(base.get(name).unwrap_or(&Value::Null), patch))
        }
        (_, Value::Array(_)) => true,
        (base, Value::Null) => has_list(base),
        _ => false,
    }
}

fn has_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(has_list),
        _ => false,
    }
}

/// Makes conditions keep the time of their last transition if their status is what it was.
pub(super) fn keep_times(base: &Value, wish: &mut Value) {
    let (Some(base), Some(Value::Array(wish))) = (base.get(CONDITIONS), wish.get_mut(CONDITIONS)) else {
        return;
    };
    for condition in wish {
        let before = type_of(condition).and_then(|type_| find(base, type_));
        if let Some(before) = before {
            keep_time(before, condition);
        }
    }
}

fn keep_time(before: &Value, condition: &mut Value) {
    if let (Some(time), Value::Object(fields)) = (before.get(TIME), condition)
        && before.get("status") == fields.get("status")
    {
        fields.insert(TIME.to_owned(), time.clone());
    }
}

/// `theirs` with what differs between `base` and `ours`. None if both have changed a list that cannot be merged.
pub(super) fn merge(base: &Value, ours: &Value, theirs: &Value) -> Option<Value> {
    merge_field("", Some(base), Some(ours), Some(theirs)).map(Option::unwrap_or_default)
}

/// The outer `None` is a conflict, the inner one a field that is not there.
fn merge_field(
    name: &str,
    base: Option<&Value>,
    ours: Option<&Value>,
    theirs: Option<&Value>,
) -> Option<Option<Value>> {
    if ours == base || ours == theirs {
        return Some(theirs.cloned());
    }
    if let Some(Value::Object(ours)) = ours {
        return merge_fields(base, ours, theirs).map(|fields| Some(Value::Object(fields)));
    }
    let is_list = |value: Option<&Value>| value.is_some_and(Value::is_array);
    if !is_list(base) && !is_list(ours) || theirs == base {
        return Some(ours.cloned());
    }
    if name != CONDITIONS {
        return None;
    }
    let merged = merge_conditions(conditions(base)?, conditions(ours)?, conditions(theirs)?);
    Some(Some(Value::Array(merged)))
}

fn merge_fields(
    base: Option<&Value>,
    ours: &Map<String, Value>,
    theirs: Option<&Value>,
) -> Option<Map<String, Value>> {
    let of = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (base, mut theirs) = (of(base), of(theirs));
    for name in ours.keys().chain(base.keys().filter(|name| !ours.contains_key(*name))) {
        match merge_field(name, base.get(name), ours.get(name), theirs.get(name))? {
            Some(value) => drop(theirs.insert(name.clone(), value)),
            None => drop(theirs.remove(name)),
        }
    }
    Some(theirs)
}

/// The items of a list of conditions; none if they are something else.
fn conditions(value: Option<&Value>) -> Option<&[Value]> {
    let Some(value) = value else { return Some(&[]) };
    let items = value.as_array()?;
    items.iter().all(|item| type_of(item).is_some()).then_some(items)
}

fn merge_conditions(base: &[Value], ours: &[Value], theirs: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = theirs.to_vec();
    for condition in ours.iter().filter(|condition| !base.contains(condition)) {
        let at = merged.iter().position(|item| type_of(item) == type_of(condition));
        let mut condition = condition.clone();
        match at {
            Some(at) => {
                keep_time(&merged[at], &mut condition);
                merged[at] = condition;
            }
            None => merged.push(condition),
        }
    }
    let has = |list: &[Value], of: &Value| list.iter().any(|item| type_of(item) == type_of(of));
    merged.retain(|item| has(ours, item) || !has(base, item));
    merged
}

fn type_of(condition: &Value) -> Option<&str> {
    condition.get("type").and_then(Value::as_str)
}

fn find<'a>(conditions: &'a Value, type_: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|condition| type_of(condition) == Some(type_))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_go_to_whoever_changed_them() {
        let base = json!({"a": 1, "b": 1, "c": {"d": 1, "e": 1}, "gone": 1});
        let ours = json!({"a": 2, "b": 1, "c": {"d": 2, "e": 1}, "new": {"x": 1}});
        let theirs = json!({"a": 3, "b": 3, "c": {"d": 1, "e": 3, "f": 3}, "gone": 3});
        let merged = json!({"a": 2, "b": 3, "c": {"d": 2, "e": 3, "f": 3}, "new": {"x": 1}});
        assert_eq!(merge(&base, &ours, &theirs), Some(merged));
    }

    #[test]
    fn lists_that_both_have_changed_are_a_conflict() {
        let (base, ours) = (json!({"list": [1]}), json!({"list": [2]}));
        assert_eq!(merge(&base, &ours, &json!({"list": [3]})), None);
        assert_eq!(merge(&base, &ours, &json!({})), None);
        assert_eq!(merge(&base, &json!({}), &json!({"list": [3]})), None);
        assert_eq!(merge(&base, &ours, &json!({"list": [1], "x": 1})), Some(json!({"list": [2], "x": 1})));
        assert_eq!(merge(&base, &ours, &json!({"list": [2]})), Some(ours.clone()));
        // Conditions without a type are a list as any.
        let odd = |n: u32| json!({"conditions": [n]});
        assert_eq!(merge(&odd(1), &odd(2), &odd(3)), None);
    }

    #[test]
    fn a_patch_that_takes_a_list_away_is_known() {
        let base = json!({"a": {"list": []}, "b": 1, "list": [1]});
        for patch in [json!({"list": null}), json!({"a": null}), json!({"new": [1]}), json!({"x": {"y": []}})]
        {
            assert!(replaces_list(&base, &patch), "{patch}");
        }
        for patch in [json!({"b": null}), json!({"b": 2}), json!({"a": {"x": 1}}), json!({"x": null})] {
            assert!(!replaces_list(&base, &patch), "{patch}");
        }
    }

    /// Which of a few conditions there are, and their status; the time follows from the status.
    fn lists() -> impl Strategy<Value = Value> {
        let of = |(n, state): (u8, Option<bool>)| {
            state.map(
                |state| json!({"type": format!("T{n}"), "status": state.to_string(), TIME: u8::from(state)}),
            )
        };
        prop::collection::vec(any::<Option<bool>>(), 4)
            .prop_map(move |all| (0..4).zip(all).filter_map(of).collect::<Value>())
    }

    proptest! {
        /// Each condition by itself: ours if we changed it, else theirs.
        #[test]
        fn conditions_are_merged_one_by_one(base in lists(), ours in lists(), theirs in lists()) {
            let status = |list: &Value| json!({"conditions": list});
            let merged = merge(&status(&base), &status(&ours), &status(&theirs)).unwrap();
            for type_ in ["T0", "T1", "T2", "T3"] {
                let [base, ours, theirs] = [&base, &ours, &theirs].map(|list| find(list, type_));
                let expected = if ours == base { theirs } else { ours };
                prop_assert_eq!(find(&merged[CONDITIONS], type_), expected);
            }
        }
    }
}
