//! Reading the few fields that selectors look at, without building the rest of the object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use setpoint_kinds::FieldLabel;

/// What of an object the labels point to, in its place. An error if the object is no JSON that can be read in this way.
pub(super) fn prune(value: &[u8], labels: &[FieldLabel]) -> serde_json::Result<Value> {
    let pointers: Vec<&str> =
        labels.iter().flat_map(|label| [Some(label.pointer), label.fallback]).flatten().collect();
    let mut reader = serde_json::Deserializer::from_slice(value);
    let pruned = Wanted(&pointers).deserialize(&mut reader)?;
    reader.end()?;
    Ok(pruned)
}

/// JSON pointers into a value. An empty one wants all of it.
struct Wanted<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        // One item of an array is worth no special way.
        let is_item = |pointer: &str| pointer.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        match self.0.iter().any(|pointer| pointer.is_empty() || is_item(pointer)) {
            true => serde::Deserialize::deserialize(deserializer),
            false => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Value, M::Error> {
        let mut kept = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let inside =
                self.0.iter().filter_map(|pointer| pointer.strip_prefix('/')?.strip_prefix(name.as_str()));
            let rest: Vec<&str> = inside.filter(|rest| rest.is_empty() || rest.starts_with('/')).collect();
            if rest.is_empty() {
                fields.next_value::<IgnoredAny>()?;
            } else {
                let value = fields.next_value_seed(Wanted(&rest))?;
                kept.insert(name, value);
            }
        }
        Ok(Value::Object(kept))
    }

    // Pointers lead nowhere in anything else.

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Value, S::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_has_the_same_fields_as_the_whole() {
        let pods = setpoint_kinds::table().resource("", "v1", "pods").unwrap().behavior().field_labels;
        let whole = json!({
            "metadata": {"name": "a", "labels": {"nodeName": "b", "spec": "c"}},
            "spec": {"nodeName": "n\u{e9}\"1", "hostNetwork": true, "containers": [{"name": "x"}], "nodeNames": "no"},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        for object in [
            whole,
            json!({}),
            json!({"spec": null, "status": 7}),
            json!({"spec": [1, {"nodeName": "n"}], "status": {"phase": ["Running"]}}),
            json!({"spec": {"nodeName": null, "hostNetwork": "yes"}, "status": true, "metadata": "x"}),
        ] {
            let pruned = prune(object.to_string().as_bytes(), pods).unwrap();
            for label in pods {
                assert_eq!(label.value(&pruned), label.value(&object), "{} of {object}", label.label);
            }
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in ["", "{", "{}x", r#"{"spec": }"#] {
            assert!(prune(text.as_bytes(), &[]).is_err(), "{text}");
        }
    }
}
