//! Requests and answers, as they are on the wire.

use serde::Deserialize;

use crate::object::{Item, Key, Mark, State, Version};

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
    data: Data,
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
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    mark: String,
    previous: Option<String>,
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
        let previous = match &self.data.previous {
            Some(previous) => Some(Mark::parse(previous)?),
            None => None,
        };
        let state = State { mark: Mark::parse(&self.data.mark)?, previous, uid: uid(&self.metadata.uid)? };
        Some(Item { key: Key::parse(&self.metadata.name)?, version: self.version()?, state })
    }

    /// The uid of what a delete has removed.
    pub(crate) fn deleted(&self) -> Option<u128> {
        uid(&self.details.uid).or_else(|| uid(&self.metadata.uid))
    }
}

fn uid(text: &str) -> Option<u128> {
    u128::from_str_radix(&text.replace('-', ""), 16).ok()
}
