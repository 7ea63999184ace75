//! `metadata.managedFields`: which manager owns which fields.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::field_set::FieldSet;

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who owns fields. One that applies is the same in every version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// Empty if it applies.
    api_version: String,
    pub(crate) subresource: String,
}

impl Manager {
    pub(crate) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Manager {
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Manager {
            name: if name.is_empty() { "unknown" } else { name }.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

/// As conflicts name it: `"kubectl" with subresource "scale" using apps/v1`.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owned {
    /// The version that the paths are of.
    pub(crate) api_version: String,
    pub(crate) set: FieldSet,
    /// When it last changed something.
    pub(crate) time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Managed(pub(crate) BTreeMap<Manager, Owned>);

impl Managed {
    /// Reads `metadata.managedFields`; absent is empty.
    pub(crate) fn decode(entries: Option<&Value>) -> Result<Managed, String> {
        let mut managed = Managed::default();
        for (at, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
            }
            let manager = Manager {
                // An empty name is somebody, too.
                name: text("manager").to_owned(),
                operation,
                api_version: if operation == Operation::Apply { "" } else { text("apiVersion") }.to_owned(),
                subresource: text("subresource").to_owned(),
            };
            let set = FieldSet::from_fields_v1(entry.get("fieldsV1").unwrap_or(&Value::Null))
                .map_err(|why| format!("error decoding set: {why}"))?;
            let time = Some(text("time")).filter(|time| !time.is_empty()).map(str::to_owned);
            managed.0.insert(manager, Owned { api_version: text("apiVersion").to_owned(), set, time });
        }
        Ok(managed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in the order of kube-apiserver: who applies, then the others, older changes first.
    pub(crate) fn encode(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<(&Manager, &Owned)> = self.0.iter().collect();
        entries.sort_by(|(a, a_owned), (b, b_owned)| {
            (a.operation, &a_owned.time, &a.name, &a_owned.api_version, &a.subresource).cmp(&(
                b.operation,
                &b_owned.time,
                &b.name,
                &b_owned.api_version,
                &b.subresource,
            ))
        });
        Some(entries.into_iter().map(|(manager, owned)| encode_entry(manager, owned)).collect())
    }
}

fn encode_entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, text: &str| {
        if !text.is_empty() {
            entry.insert(name.to_owned(), text.into());
        }
    };
    put("apiVersion", &owned.api_version);
    put("fieldsType", "FieldsV1");
    put("manager", &manager.name);
    put("operation", manager.operation.as_str());
    put("subresource", &manager.subresource);
    put("time", owned.time.as_deref().unwrap_or_default());
    entry.insert("fieldsV1".to_owned(), owned.set.to_fields_v1());
    Value::Object(entry)
}

/// At most this many entries are kept of managers that update.
const MAX_UPDATERS: usize = 10;
/// Who owns what the oldest of too many managers owned.
const ANCIENT: &str = "ancient-changes";

impl Managed {
    /// Joins the oldest of too many managers that update, version by version.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<Manager> =
            self.0.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        if count <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by_cached_key(|manager| (self.0[manager].time.clone(), manager.clone()));
        let mut firsts: BTreeMap<String, Manager> = BTreeMap::new();
        for manager in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let version = self.0[&manager].api_version.clone();
            let bucket = Manager::new(ANCIENT, Operation::Update, &version, "");
            let Some(first) = firsts.get(&version) else {
                firsts.insert(version, manager);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let Some(owned) = self.0.remove(&manager) {
                let joined =
                    self.0.get(&bucket).map_or_else(|| owned.set.clone(), |old| owned.set.union(&old.set));
                self.0.insert(bucket, Owned { set: joined, ..owned });
                count -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn updater(name: &str, time: &str, field: &str) -> (Manager, Owned) {
        let owned = Owned {
            api_version: "v1".to_owned(),
            set: FieldSet::of_fields(&[&[field]]),
            time: Some(time.to_owned()),
        };
        (Manager::new(name, Operation::Update, "v1", ""), owned)
    }

    #[test]
    fn entries_are_read_and_written_in_one_order() {
        let entries = json!([
            {"manager": "z", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:data": {}}},
            {"manager": "b", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {}}},
            {"manager": "a", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "time": "2026-01-02T00:00:00Z", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ]);
        let managed = Managed::decode(Some(&entries)).unwrap();
        assert_eq!(managed.encode(), Some(entries));
        assert_eq!(Managed::default().encode(), None);
    }

    #[test]
    fn bad_entries_are_refused() {
        for entry in [
            json!({"operation": "Merge", "apiVersion": "v1", "fieldsType": "FieldsV1"}),
            json!({"operation": "Update", "fieldsType": "FieldsV1"}),
            json!({"operation": "Update", "apiVersion": "v1"}),
            json!({"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f": {}}}),
        ] {
            assert!(Managed::decode(Some(&json!([entry]))).is_err(), "{entry}");
        }
    }

    #[test]
    fn the_oldest_of_too_many_updaters_are_joined() {
        let mut managed = Managed::default();
        for at in 0..12 {
            let (manager, owned) =
                updater(&format!("m{at:02}"), &format!("2026-01-01T00:00:{at:02}Z"), &format!("f{at:02}"));
            managed.0.insert(manager, owned);
        }
        managed.cap();
        assert_eq!(managed.0.len(), 10);
        let ancient = &managed.0[&Manager::new(ANCIENT, Operation::Update, "v1", "")];
        assert_eq!(ancient.set, FieldSet::of_fields(&[&["f00"], &["f01"], &["f02"]]));
        assert_eq!(ancient.time.as_deref(), Some("2026-01-01T00:00:02Z"));
    }
}
