//! Which objects of its namespace a quota means.

use serde_json::Value;

/// One requirement of a quota.
pub(super) struct Scope<'a> {
    pub(super) name: &'a str,
    operator: &'a str,
    values: &'a [Value],
}

/// The requirements of a quota: its scopes, then its selector.
pub(super) fn of(quota: &Value) -> impl Iterator<Item = Scope<'_>> {
    let spec = &quota["spec"];
    let named = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    named.map(|name| Scope { name, operator: "Exists", values: &[] }).chain(selected.map(|requirement| {
        Scope {
            name: requirement["scopeName"].as_str().unwrap_or_default(),
            operator: requirement["operator"].as_str().unwrap_or_default(),
            values: requirement["values"].as_array().map(Vec::as_slice).unwrap_or_default(),
        }
    }))
}

impl Scope<'_> {
    /// Whether the operator holds for the name that an object has there, if it has one.
    pub(super) fn holds(&self, found: Option<&str>) -> bool {
        let is_listed = || found.is_some_and(|found| self.values.iter().any(|value| value == found));
        match self.operator {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    }

    /// Whether it asks only that there is a name.
    pub(super) fn is_presence(&self) -> bool {
        self.operator == "Exists"
    }
}
