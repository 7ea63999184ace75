//! The sentences of `kubectl explain`.
//!
//! They are Kubernetes' own: `build.rs` takes them from the `k8s-openapi` crate.

use std::collections::HashMap;

/// A line for each type, its name and a text in JSON, and behind it a line for each of its fields that begins with a space.
const TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/descriptions.txt"));

/// What types and fields are for, by the name that OpenAPI gives the type.
pub(super) struct Descriptions(HashMap<&'static str, Entry>);

/// What is said of one type, as it is written.
struct Entry {
    description: &'static str,
    fields: &'static str,
}

impl Descriptions {
    /// Finds the types. To read a megabyte takes less than keeping the places of all types for a document that is seldom asked
    /// for.
    pub(super) fn find() -> Descriptions {
        let mut types = HashMap::new();
        let mut rest = TEXT;
        while let Some((line, after)) = rest.split_once('\n') {
            let (fields, next) = split_fields(after);
            if let Some((name, description)) = line.split_once(' ') {
                types.insert(name, Entry { description, fields });
            }
            rest = next;
        }
        Descriptions(types)
    }

    /// What a type is for.
    pub(super) fn of_type(&self, name: &str) -> Option<String> {
        read(self.0.get(name)?.description)
    }

    /// What a field is for.
    pub(super) fn of_field(&self, name: &str, field: &str) -> Option<String> {
        let mut fields = self.0.get(name)?.fields.lines();
        read(fields.find_map(|line| line.strip_prefix(' ')?.strip_prefix(field)?.strip_prefix(' '))?)
    }
}

/// The lines that begin with a space, and what follows them.
fn split_fields(text: &'static str) -> (&'static str, &'static str) {
    let lines = text.split_inclusive('\n').take_while(|line| line.starts_with(' '));
    text.split_at(lines.map(str::len).sum())
}

fn read(text: &str) -> Option<String> {
    serde_json::from_str(text).ok().filter(|text: &String| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use setpoint_kinds::table;

    use super::*;

    #[test]
    fn every_kind_is_described() {
        let descriptions = Descriptions::find();
        for resource in table().resources() {
            let name = resource.ty().openapi_name();
            assert!(descriptions.of_type(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_line_is_read() {
        let descriptions = Descriptions::find();
        let mut ty = "";
        for line in TEXT.lines() {
            let (name, text) = line.trim_start().split_once(' ').unwrap();
            let is_field = line.starts_with(' ');
            ty = if is_field { ty } else { name };
            let found = if is_field { descriptions.of_field(ty, name) } else { descriptions.of_type(ty) };
            assert_eq!(
                found.unwrap_or_default(),
                serde_json::from_str::<String>(text).unwrap(),
                "{ty} {name}"
            );
        }
        assert_eq!(descriptions.of_field("io.k8s.api.core.v1.Pod", "spe"), None);
    }
}
