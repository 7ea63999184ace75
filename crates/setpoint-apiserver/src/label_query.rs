//! A LabelSelector object as the text that list requests take.

use serde_json::Value;

/// A selector in the form that list requests take: `app=web,tier in (a,b)`.
pub(crate) fn of(selector: &Value) -> String {
    let labels = selector.get("matchLabels").or_else(|| {
        // Replication controllers have the labels themselves.
        selector.get("matchExpressions").is_none().then_some(selector)
    });
    let mut terms = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        terms.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for term in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = term["key"].as_str().unwrap_or_default();
        let mut values: Vec<_> =
            term["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match term["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => continue,
        };
        terms.push((key.to_owned(), text));
    }
    terms.sort();
    terms.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_read_as_lists_take_them() {
        let check = |selector: Value, expect: &str| assert_eq!(of(&selector), expect);
        check(json!({"matchLabels": {"b": "2", "a": "1"}}), "a=1,b=2");
        check(json!({"app": "web"}), "app=web");
        check(Value::Null, "");
        check(
            json!({"matchLabels": {"z": "1"}, "matchExpressions": [
                {"key": "t", "operator": "In", "values": ["y", "x"]},
                {"key": "u", "operator": "Exists"},
                {"key": "v", "operator": "DoesNotExist"}]}),
            "t in (x,y),u,!v,z=1",
        );
    }
}
