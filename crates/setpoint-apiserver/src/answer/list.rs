//! Lists as text: JSON, indented JSON or YAML, piece by piece, an item at a time.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::write_object;
use crate::indent::indent;
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
        let (start, end) = match shape {
            Shape::Object if resource.definition().is_some() => {
                object::custom_list(resource.api_version(), &resource.list_kind(), meta)
            }
            Shape::Object => {
                let start = object::list_start(resource.api_version(), &resource.list_kind(), meta);
                (start, object::LIST_END.to_owned())
            }
            Shape::PartialMetadata(version) => {
                let start = object::list_start(version.api_version(), "PartialObjectMetadataList", meta);
                (start, object::LIST_END.to_owned())
            }
            Shape::Table(shape) => {
                let made = tabulator.insert(Tabulator::new(resource, shape, request.received));
                made.prepare_list(&mut records);
                (made.start(meta, true), TABLE_END.to_owned())
            }
        };
        let layout = Layout::of(&request.representation);
        let (start, end) = match layout {
            Layout::Compact => (start, end),
            Layout::Indented => indented_frame(&start, &end, records.is_empty()),
            Layout::Yaml => yaml_frame(&format!("{start}{end}"), records.is_empty()),
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
        let text = match self.layout {
            Layout::Yaml => yaml_item(&json),
            _ => format!("\n    {}{}", indented(&json), if is_last { "" } else { "," }),
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

/// What stands before and after the items of an indented list.
fn indented_frame(start: &str, end: &str, is_empty: bool) -> (String, String) {
    let text = |json: String| String::from_utf8_lossy(&indent(json.as_bytes())).into_owned();
    if is_empty {
        return (text(format!("{start}{end}")), String::new());
    }
    // A nought stands for the items.
    let before = text(start.to_owned());
    let after = text(format!("{start}0{end}")).split_off(before.len() + 1);
    (before.trim_end().to_owned(), after)
}

/// The same for a list in YAML, which is given in JSON, without items.
fn yaml_frame(list: &str, is_empty: bool) -> (String, String) {
    let fields: Map<String, Value> = serde_json::from_str(list).expect("it was just written as JSON");
    let (mut start, mut end) = (String::new(), String::new());
    let mut is_before = true;
    for (name, value) in fields {
        let out = if is_before { &mut start } else { &mut end };
        if matches!(name.as_str(), "items" | "rows") {
            is_before = false;
            *out += &if is_empty { format!("{name}: []\n") } else { format!("{name}:\n") };
        } else {
            *out += &yaml(&Value::Object(Map::from_iter([(name, value)])));
        }
    }
    (start, end)
}

/// An item as indented JSON, its lines but the first as far in as items are. No string has a line break in JSON.
fn indented(json: &[u8]) -> String {
    String::from_utf8_lossy(&indent(json)).replace('\n', "\n    ")
}

/// An item as YAML.
fn yaml_item(json: &[u8]) -> String {
    let item: Value = serde_json::from_slice(json).expect("it was just written as JSON");
    yaml(&Value::Array(vec![item]))
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

    const START: &str = r#"{"kind":"FooList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#;

    fn laid_out(layout: Layout, items: &[Value]) -> String {
        let is_empty = items.is_empty();
        let (start, end) = match layout {
            Layout::Yaml => yaml_frame(&format!("{START}]}}"), is_empty),
            _ => indented_frame(START, "]}", is_empty),
        };
        let mut text = start;
        for (index, item) in items.iter().enumerate() {
            let comma = if index + 1 == items.len() { "" } else { "," };
            let item = item.to_string();
            text += &match layout {
                Layout::Yaml => yaml_item(item.as_bytes()),
                _ => format!("\n    {}{comma}", indented(item.as_bytes())),
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
            let json = format!("{START}{}", &Value::from(items.clone()).to_string()[1..]) + "}";
            let at_once = String::from_utf8(indent(json.as_bytes())).unwrap();
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
