//! Lists as text: JSON, indented JSON or YAML, piece by piece, an item at a time.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::write_object;
use crate::negotiate::{Media, Representation, Shape};
use crate::object::{self, ListMeta};
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::storage::Record;
use crate::table::{TABLE_END, Tabulator};

/// A piece is given out once it is this long.
pub(super) const PIECE: usize = 256 * 1024;
/// Or once this many bytes of stored objects were read for it: what is left of them may be little.
pub(super) const WORK: usize = 1024 * 1024;

/// How text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Compact,
    Indented,
    Yaml,
}

impl Layout {
    fn of(representation: &Representation) -> Layout {
        match representation.media {
            Media::Yaml => Layout::Yaml,
            Media::Json | Media::Protobuf if representation.pretty => Layout::Indented,
            Media::Json | Media::Protobuf => Layout::Compact,
        }
    }
}

/// A list as pieces of text.
pub(super) struct List {
    resource: Arc<Resource>,
    shape: Shape,
    /// Makes rows, if the list is a table.
    tabulator: Option<Tabulator>,
    layout: Layout,
    start: String,
    end: String,
    records: std::iter::Peekable<std::vec::IntoIter<Arc<Record>>>,
    is_written: bool,
}

impl List {
    pub(super) fn new(request: &ResourceRequest, mut records: Vec<Arc<Record>>, meta: &ListMeta) -> List {
        let resource = &request.resource;
        let shape = request.representation.shape;
        let mut tabulator = None;
        let start = match shape {
            Shape::Object => object::list_start(resource.api_version(), &resource.list_kind(), meta),
            Shape::PartialMetadata(version) => {
                object::list_start(version.api_version(), "PartialObjectMetadataList", meta)
            }
            Shape::Table(shape) => {
                let made = tabulator.insert(Tabulator::new(resource, shape, request.received));
                made.prepare_list(&mut records);
                made.start(meta, true)
            }
        };
        let end = if tabulator.is_some() { TABLE_END } else { object::LIST_END };
        let end = String::from_utf8_lossy(end).into_owned();
        let layout = Layout::of(&request.representation);
        let (start, end) = match layout {
            Layout::Compact => (start, end),
            _ => frame(layout, &format!("{start}{end}"), records.is_empty()),
        };
        let records = records.into_iter().peekable();
        List {
            resource: Arc::clone(resource),
            shape,
            tabulator,
            layout,
            start,
            end,
            records,
            is_written: false,
        }
    }

    /// Whether all pieces were given out.
    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    fn write_item(&self, record: &Record, out: &mut Vec<u8>) {
        let (value, revision) = (&record.value, record.revision);
        match (&self.tabulator, self.shape) {
            (Some(tabulator), _) => tabulator.write_row(value, revision, out),
            // Only items of built-in kinds leave it to the list to say what they are.
            (None, Shape::Object)
                if !self.resource.is_converted() && self.resource.definition().is_none() =>
            {
                object::write_item(value, revision, out);
            }
            (None, shape) => write_object(&self.resource, shape, value, revision, out),
        }
    }

    /// An item, and what stands between it and the next one.
    fn write_laid_out(&self, record: &Record, out: &mut Vec<u8>, is_last: bool) {
        if self.layout == Layout::Compact {
            self.write_item(record, out);
            if !is_last {
                out.push(b',');
            }
            return;
        }
        let mut json = Vec::new();
        self.write_item(record, &mut json);
        let item: Value = serde_json::from_slice(&json).expect("it was just written as JSON");
        let text = match self.layout {
            Layout::Yaml => yaml(&Value::Array(vec![item])),
            _ => format!("\n    {}{}", indented(&item, 4), if is_last { "" } else { "," }),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

impl Iterator for List {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_written {
            return None;
        }
        let mut out = std::mem::take(&mut self.start).into_bytes();
        let mut work = 0;
        while out.len() < PIECE && work < WORK {
            let Some(record) = self.records.next() else {
                out.extend_from_slice(self.end.as_bytes());
                self.is_written = true;
                break;
            };
            work += record.value.len();
            let is_last = self.records.peek().is_none();
            self.write_laid_out(&record, &mut out, is_last);
        }
        Some(out.into())
    }
}

/// What stands before and after the items of a list, which is given in JSON, without any.
fn frame(layout: Layout, list: &str, is_empty: bool) -> (String, String) {
    let fields: Map<String, Value> = serde_json::from_str(list).expect("it was just written as JSON");
    let (mut start, mut end) = (String::new(), String::new());
    let mut is_before = true;
    for (name, value) in fields {
        let out = if is_before { &mut start } else { &mut end };
        if matches!(name.as_str(), "items" | "rows") {
            is_before = false;
            match layout {
                Layout::Yaml if is_empty => *out += &format!("{name}: []\n"),
                Layout::Yaml => *out += &format!("{name}:\n"),
                _ => {
                    let text = format!("{}\"{name}\": [", separator(out));
                    out.push_str(&text);
                    end += if is_empty { "]" } else { "\n  ]" };
                }
            }
        } else if layout == Layout::Yaml {
            *out += &yaml(&Value::Object(Map::from_iter([(name, value)])));
        } else {
            let text = format!("{}{}: {}", separator(out), Value::from(name), indented(&value, 2));
            out.push_str(&text);
        }
    }
    if layout != Layout::Yaml {
        end += "\n}";
    }
    (start, end)
}

/// What stands before the next field of an indented object.
fn separator(written: &str) -> &'static str {
    if written.is_empty() { "{\n  " } else { ",\n  " }
}

/// A value as indented JSON, its lines but the first so many spaces in. No string has a line break in JSON.
fn indented(value: &Value, spaces: usize) -> String {
    let text = serde_json::to_string_pretty(value).expect("JSON values always serialise into memory");
    text.replace('\n', &format!("\n{}", " ".repeat(spaces)))
}

/// A value as YAML, with a line break at the end.
fn yaml(value: &Value) -> String {
    // JSON is YAML, too.
    let mut text = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items() -> Vec<Value> {
        vec![
            json!({"a": "line\n  indented\n\nend\n", "b": {"c": [1, {"d": "x: y"}, [], {}]}, "e": "- f", "g": null}),
            json!({"a": " starts with a blank\nmore", "b": "true", "c": "", "tab": "\ta\n\tb", "n": "1e3"}),
            json!({}),
        ]
    }

    fn laid_out(layout: Layout, items: &[Value]) -> String {
        let head = r#"{"kind":"FooList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;
        let (start, end) = frame(layout, head, items.is_empty());
        let mut text = start;
        for (index, item) in items.iter().enumerate() {
            let comma = if index + 1 == items.len() { "" } else { "," };
            text += &match layout {
                Layout::Yaml => yaml(&Value::Array(vec![item.clone()])),
                _ => format!("\n    {}{comma}", indented(item, 4)),
            };
        }
        text + &end
    }

    fn whole(items: &[Value]) -> Value {
        json!({"kind": "FooList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items})
    }

    #[test]
    fn an_indented_list_is_the_same_item_by_item_as_at_once() {
        for items in [items(), Vec::new()] {
            let at_once = serde_json::to_string_pretty(&whole(&items)).unwrap();
            assert_eq!(laid_out(Layout::Indented, &items), at_once);
        }
    }

    #[test]
    fn a_list_in_yaml_reads_as_what_it_was() {
        for items in [items(), Vec::new()] {
            let text = laid_out(Layout::Yaml, &items);
            let read: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(read, whole(&items), "{text}");
        }
    }
}
