//! Tables: objects as rows for people, with the columns that kubectl users know.
//!
//! What each kind shows is in `table/`, a file a family. Rows are made from stored objects, whichever version was
//! asked for: every version of a kind has the same columns. Cells of wide columns are always there; kubectl shows
//! them with `-o wide`.

mod admission;
mod autoscaling;
mod cells;
mod core;
mod network;
mod pod;
mod scheduling;
mod security;
mod storage;
mod workload;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use self::cells::{name, text};
use crate::convert;
use crate::negotiate::{IncludeObject, TableShape};
use crate::object::{self, ListMeta};
use crate::resource::Resource;
use crate::storage::Record;

/// One column.
#[derive(Clone, Copy, Debug, Serialize)]
struct Column {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    priority: u8,
}

impl Column {
    const fn new(name: &'static str, kind: &'static str, description: &'static str) -> Column {
        Column { name, kind, format: "", description, priority: 0 }
    }

    const fn text(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "string", description)
    }

    const fn integer(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "integer", description)
    }

    const fn boolean(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "boolean", description)
    }

    /// Shown with `-o wide` only.
    const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    /// Holds the name of an object.
    const fn name(self) -> Column {
        Column { format: "name", ..self }
    }
}

const NAME: Column = Column::text("Name", "The name of the object, unique in its namespace.").name();
const AGE: Column = Column::text("Age", "The time since the object was created.");
const CREATED_AT: Column = Column::new("Created At", "date", "When the object was created.");
const CONTAINERS: Column = Column::text("Containers", "The containers of the pod template.").wide();
const IMAGES: Column = Column::text("Images", "The images of the containers of the pod template.").wide();
const SELECTOR: Column = Column::text("Selector", "The labels of the pods that belong to it.").wide();

/// What rows are made with.
pub(crate) struct Context {
    now: Timestamp,
    /// The storage class that claims get which ask for none.
    default_class: Option<String>,
}

/// How a kind is shown.
struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, &Context) -> Vec<Value>,
}

/// For kinds that are shown like most others.
const PLAIN: Printer =
    Printer { columns: &[NAME, CREATED_AT], cells: |object, _| vec![name(object), created_at(object)] };

fn created_at(object: &Value) -> Value {
    // What was never created was created at the beginning of Go's time.
    cells::text_or(object, "/metadata/creationTimestamp", "0001-01-01T00:00:00Z").into()
}

const SCALE: Printer = Printer {
    columns: &[
        Column::text("Name", "The name of what is scaled."),
        Column::integer("Desired", "How many pods there should be."),
        Column::integer("Available", "How many pods there are."),
        AGE,
    ],
    cells: |object, context| {
        let count = |path| cells::int(object, path).into();
        vec![name(object), count("/spec/replicas"), count("/status/replicas"), context.age(object)]
    },
};

fn printer(group: &str, plural: &str) -> &'static Printer {
    let found = match group {
        "" => core::printer(plural)
            .or_else(|| pod::printer(plural))
            .or_else(|| network::printer(plural))
            .or_else(|| storage::printer(plural))
            .or_else(|| workload::printer(plural)),
        "apps" | "batch" | "policy" => workload::printer(plural),
        "autoscaling" => autoscaling::printer(plural),
        "networking.k8s.io" | "discovery.k8s.io" => network::printer(plural),
        "storage.k8s.io" | "storagemigration.k8s.io" => storage::printer(plural),
        "events.k8s.io" => core::printer(plural),
        "admissionregistration.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "apiregistration.k8s.io"
        | "apiextensions.k8s.io" => admission::printer(plural),
        "rbac.authorization.k8s.io" | "certificates.k8s.io" => security::printer(plural),
        "scheduling.k8s.io" | "coordination.k8s.io" | "node.k8s.io" | "resource.k8s.io" => {
            scheduling::printer(plural)
        }
        _ => None,
    };
    found.unwrap_or(&PLAIN)
}

/// How the objects of one resource become rows.
pub(crate) struct Tabulator {
    resource: Arc<Resource>,
    printer: &'static Printer,
    shape: TableShape,
    context: Context,
}

impl Tabulator {
    pub(crate) fn new(resource: &Arc<Resource>, shape: TableShape, now: Timestamp) -> Tabulator {
        let printer = printer(resource.group(), resource.plural());
        let context = Context { now, default_class: None };
        Tabulator { resource: Arc::clone(resource), printer, shape, context }
    }

    /// The ages of the rows that follow are as of `now`.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.context.now = now;
    }

    /// Looks at a whole list, which a few kinds need.
    pub(crate) fn prepare_list(&mut self, records: &mut [Arc<Record>]) {
        match (self.resource.group(), self.resource.plural()) {
            ("storage.k8s.io", "storageclasses") => {
                self.context.default_class = storage::default_class(records);
            }
            ("flowcontrol.apiserver.k8s.io", "flowschemas") => admission::sort_flow_schemas(records),
            _ => {}
        }
    }

    /// The beginning of a table; its rows, with commas between them, and [`TABLE_END`] follow.
    pub(crate) fn start(&self, meta: &ListMeta, with_columns: bool) -> String {
        let columns = with_columns.then(|| match self.resource.definition() {
            None => serde_json::to_value(self.printer.columns),
            Some(custom) => {
                let columns = custom.columns.iter().map(serde_json::to_value);
                std::iter::once(serde_json::to_value(NAME)).chain(columns).collect()
            }
        });
        let columns = columns.map(|columns| columns.expect("columns are plain data"));
        table_start(self.shape, columns, meta)
    }

    /// A stored object as a row.
    pub(crate) fn write_row(&self, value: &[u8], revision: u64, out: &mut Vec<u8>) {
        self.write_value(object::decode(value, revision), out);
    }

    /// A table of one stored object.
    pub(crate) fn write_one(&self, value: &[u8], revision: u64, with_columns: bool, out: &mut Vec<u8>) {
        self.write_table(object::decode(value, revision), with_columns, out);
    }

    /// A table of an object that is not stored, in the version of the resource.
    pub(crate) fn write_unstored(&self, served: Value, out: &mut Vec<u8>) {
        self.write_table(convert::to_stored(&self.resource, served), true, out);
    }

    /// The table that stands for a bookmark: a row of an object that has a version and nothing else.
    pub(crate) fn write_bookmark(&self, metadata: Value, with_columns: bool, out: &mut Vec<u8>) {
        self.write_table(json!({"metadata": metadata}), with_columns, out);
    }

    fn write_table(&self, stored: Value, with_columns: bool, out: &mut Vec<u8>) {
        let version = text(&stored, "/metadata/resourceVersion");
        let meta = ListMeta { revision: version.parse().unwrap_or(0), ..ListMeta::default() };
        out.extend_from_slice(self.start(&meta, with_columns).as_bytes());
        self.write_value(stored, out);
        out.extend_from_slice(TABLE_END.as_bytes());
    }

    fn write_value(&self, stored: Value, out: &mut Vec<u8>) {
        let (stored, cells) = match self.resource.definition() {
            None => {
                let cells = (self.printer.cells)(&stored, &self.context);
                (stored, cells)
            }
            Some(custom) => {
                let served = convert::to_served(&self.resource, stored);
                let age = |time| self.context.since(Some(time)).into();
                let columns = custom.columns.iter().map(|column| column.cell(&served, age));
                let cells = std::iter::once(name(&served)).chain(columns).collect();
                (served, cells)
            }
        };
        out.extend_from_slice(b"{\"cells\":");
        append(out, &cells);
        if let Some(condition) = pod::condition(&self.resource, &stored) {
            out.extend_from_slice(b",\"conditions\":[");
            append(out, &condition);
            out.push(b']');
        }
        out.extend_from_slice(b",\"object\":");
        // The bookmark at the end of a streaming list must be told from others.
        let ends_initial_events =
            stored.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some();
        match self.shape.include {
            IncludeObject::Object => {
                object::append_object(out, &convert::to_served(&self.resource, stored));
            }
            IncludeObject::None if !ends_initial_events => out.extend_from_slice(b"null"),
            IncludeObject::Metadata | IncludeObject::None => {
                let api_version = self.shape.version.api_version();
                out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":");
                append(out, api_version);
                out.extend_from_slice(b",\"metadata\":");
                append(out, &stored["metadata"]);
                out.push(b'}');
            }
        }
        out.push(b'}');
    }
}

/// A Scale as a table.
pub(crate) fn write_scale(scale: &Value, shape: TableShape, now: Timestamp, out: &mut Vec<u8>) {
    let version = text(scale, "/metadata/resourceVersion");
    let meta = ListMeta { revision: version.parse().unwrap_or(0), ..ListMeta::default() };
    out.extend_from_slice(table_start(shape, serde_json::to_value(SCALE.columns).ok(), &meta).as_bytes());
    let context = Context { now, default_class: None };
    let object = match shape.include {
        IncludeObject::Object => scale.clone(),
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": shape.version.api_version(),
            "metadata": scale["metadata"],
        }),
    };
    out.extend_from_slice(b"{\"cells\":");
    append(out, &(SCALE.cells)(scale, &context));
    out.extend_from_slice(b",\"object\":");
    object::append_object(out, &object);
    out.push(b'}');
    out.extend_from_slice(TABLE_END.as_bytes());
}

/// The end of a table.
pub(crate) const TABLE_END: &str = "]}\n";

fn table_start(shape: TableShape, columns: Option<Value>, meta: &ListMeta) -> String {
    let list = object::list_start(shape.version.api_version(), "Table", meta);
    let columns = columns.unwrap_or_default();
    let head = list.strip_suffix("\"items\":[").expect("lists start so");
    format!("{head}\"columnDefinitions\":{columns},\"rows\":[")
}

fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("JSON values always serialise into memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;

    /// Each printer makes as many cells as it has columns, whatever the object lacks. The one exception is
    /// kube-apiserver's: an IP address has an age that no column shows.
    #[test]
    fn an_empty_object_has_a_cell_for_each_column() {
        let context = Context { now: Timestamp::UNIX_EPOCH, default_class: None };
        for facts in setpoint_kinds::table().resources() {
            let printer = printer(facts.group, facts.plural);
            let cells = (printer.cells)(&json!({}), &context);
            let extra = usize::from(facts.plural == "ipaddresses");
            assert_eq!(cells.len(), printer.columns.len() + extra, "{}/{}", facts.group, facts.plural);
        }
    }

    #[test]
    fn columns_are_given_or_left_out() {
        let pods = Registry::built_in().expect("", "v1", "pods");
        let shape = TableShape::default();
        let tabulator = Tabulator::new(pods, shape, Timestamp::UNIX_EPOCH);
        let read = |with_columns| -> Value {
            let mut out = Vec::new();
            tabulator.write_bookmark(json!({"resourceVersion": "7"}), with_columns, &mut out);
            serde_json::from_slice(&out).unwrap()
        };
        assert_eq!(read(true)["columnDefinitions"][1]["name"], "Ready");
        let without = read(false);
        assert_eq!(without["columnDefinitions"], Value::Null);
        assert_eq!(without["metadata"]["resourceVersion"], "7");
        assert_eq!(without["rows"][0]["cells"][1], "0/0");
        assert_eq!(cells::list(&without, "/rows").len(), 1);
    }
}
