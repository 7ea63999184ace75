//! Requests and answers, as they are on the wire.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::object::{Fields, Item, Key, Mark, State, Version};

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// `GET`, `POST` …
    pub(crate) method: &'static str,
    /// With its query.
    pub(crate) path: String,
    /// The type of the body.
    pub(crate) media: &'static str,
    /// Empty for none.
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn get(path: String) -> Request {
        Request { method: "GET", path, media: "application/json", body: String::new() }
    }
}

/// An answer that came in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) code: u16,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// What we read of an object, a list or a Status.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wire {
    pub(crate) metadata: Metadata,
    data: Marks,
    spec: Spec,
    status: Status,
    pub(crate) items: Vec<Wire>,
    pub(crate) reason: String,
    pub(crate) code: u16,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    name: String,
    uid: String,
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) token: String,
    pub(crate) annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Marks {
    mark: Option<String>,
    previous: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

/// That of an object, or the one word that a Status has.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Status {
    Object {
        #[serde(default)]
        phase: String,
    },
    Word(#[expect(dead_code, reason = "whatever it is")] String),
}

impl Default for Status {
    fn default() -> Status {
        Status::Object { phase: String::new() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    uid: String,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) object: Wire,
}

impl Wire {
    pub(crate) fn version(&self) -> Option<Version> {
        self.metadata.resource_version.parse().ok()
    }

    pub(crate) fn item(&self) -> Option<Item> {
        let annotation = |name: &str| self.metadata.annotations.get(name);
        let mark = Mark::parse(self.data.mark.as_ref().or_else(|| annotation("mark"))?)?;
        let previous = match self.data.previous.as_ref().or_else(|| annotation("previous")) {
            Some(previous) => Some(Mark::parse(previous)?),
            None => None,
        };
        // Each write sets both.
        let team = self.metadata.labels.get("team")?;
        if *team != format!("t{}", mark.team()) {
            return None;
        }
        let state = State { mark, previous, uid: uid(&self.metadata.uid)?, fields: self.fields()? };
        Some(Item { key: Key::parse(&self.metadata.name)?, version: self.version()?, state })
    }

    fn fields(&self) -> Option<Fields> {
        let node = match self.spec.node_name.as_deref() {
            None | Some("") => None,
            Some(name) => Some(name.strip_prefix('n')?.parse().ok()?),
        };
        let is_running = matches!(&self.status, Status::Object { phase } if phase == "Running");
        Some(Fields { node, is_running, is_leaving: self.metadata.deletion_timestamp.is_some() })
    }

    /// The uid of what a delete has removed.
    pub(crate) fn deleted(&self) -> Option<u128> {
        uid(&self.details.uid).or_else(|| uid(&self.metadata.uid))
    }
}

fn uid(text: &str) -> Option<u128> {
    u128::from_str_radix(&text.replace('-', ""), 16).ok()
}
