//! kube-apiserver's own layout: its keys, its versions and its encodings, from the table of kinds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use setpoint_kinds::protobuf::{self, Envelope, MAGIC};
use setpoint_kinds::{Encoding, Stored, Type, conform, table};

use super::super::Key;
use super::Layout;
use crate::object;
use crate::resource;

mod definition;
mod go_json;

/// What encrypted values begin with; the name of the provider follows.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// Ranges of numbers, each one object: which node ports are taken.
const RANGES: &str = "ranges";

/// The built-in kinds by the first segments of their keys; everything else is of custom resources.
pub(crate) struct Registry {
    by_prefix: BTreeMap<&'static str, BuiltIn>,
    /// The prefix of each collection.
    prefixes: BTreeMap<Arc<str>, &'static str>,
}

struct BuiltIn {
    collection: Arc<str>,
    facts: &'static setpoint_kinds::Resource,
    stored: Stored,
}

impl Registry {
    pub(crate) fn new() -> Registry {
        let (mut by_prefix, mut prefixes) = (BTreeMap::new(), BTreeMap::new());
        for facts in table().resources() {
            let Some(stored) = facts.stored else { continue };
            let known = resource::Registry::built_in().expect(facts.group, facts.version, facts.plural);
            let collection = Arc::clone(known.collection());
            prefixes.insert(Arc::clone(&collection), stored.prefix);
            by_prefix.insert(stored.prefix, BuiltIn { collection, facts: facts.storage(), stored });
        }
        Registry { by_prefix, prefixes }
    }

    /// How long the records of a collection live, if they have an end.
    pub(super) fn ttl(&self, collection: &str) -> Option<Duration> {
        self.built_in(collection)?.facts.behavior().ttl
    }

    fn built_in(&self, collection: &str) -> Option<&BuiltIn> {
        self.by_prefix.get(self.prefixes.get(collection)?)
    }
}

impl Layout for Registry {
    fn place(&self, key: &Key) -> String {
        format!("{}{}", self.folder(&key.collection), key.path)
    }

    fn folder(&self, collection: &str) -> String {
        format!("{}/", self.prefixes.get(collection).copied().unwrap_or(collection))
    }

    fn key(&self, place: &str) -> Option<Key> {
        let (first, rest) = place.split_once('/')?;
        let second =
            rest.split_once('/').map(|(second, rest)| (&place[..first.len() + 1 + second.len()], rest));
        let known = |prefix, path: &str| {
            let found: &BuiltIn = self.by_prefix.get(prefix)?;
            Some((Arc::clone(&found.collection), path.to_owned()))
        };
        let found = known(first, rest).or_else(|| second.and_then(|(prefix, rest)| known(prefix, rest)));
        let (collection, path) = match (found, second) {
            (Some(found), _) => found,
            (None, _) if first == RANGES => (RANGES.into(), rest.to_owned()),
            // The groups of custom resources have a dot.
            (None, Some((prefix, rest))) if first.contains('.') => (prefix.into(), rest.to_owned()),
            _ => return None,
        };
        (!path.is_empty()).then(|| Key { collection, path: path.into() })
    }

    fn encode(&self, key: &Key, value: &Bytes) -> Result<Vec<u8>, String> {
        if &*key.collection == RANGES {
            let ty = range_type();
            return protobuf::encode_as(ty, "v1", "RangeAllocation", protobuf::Json::text(value))
                .map_err(|error| error.to_string());
        }
        let parsed = || serde_json::from_slice(value).map_err(|error: serde_json::Error| error.to_string());
        let Some(BuiltIn { facts, stored, .. }) = self.built_in(&key.collection) else {
            return Ok(go_json::of_map(&parsed()?));
        };
        match stored.encoding {
            Encoding::Protobuf => {
                let json = protobuf::Json::text(value);
                let encoded = protobuf::encode_as(facts.ty(), &stored.api_version(), facts.kind, json);
                encoded.map_err(|error| error.to_string())
            }
            Encoding::Json if facts.kind == "CustomResourceDefinition" => {
                Ok(go_json::of_struct(facts.ty(), &definition::to_v1beta1(parsed()?)))
            }
            Encoding::Json => Ok(go_json::of_struct(facts.ty(), &parsed()?)),
        }
    }

    fn decode(&self, key: &Key, value: &[u8]) -> Result<Bytes, String> {
        if value.starts_with(ENCRYPTED) {
            let provider = value[ENCRYPTED.len()..].split(|byte| *byte == b':').next().unwrap_or_default();
            let provider = String::from_utf8_lossy(provider);
            return Err(format!(
                "it is encrypted (k8s:enc:{provider}), and this server does not decrypt; let kube-apiserver write it \
                 with the provider identity"
            ));
        }
        if &*key.collection == RANGES {
            let envelope = Envelope::parse(value).map_err(|error| error.to_string())?;
            let range =
                protobuf::decode_message(range_type(), envelope.raw).map_err(|error| error.to_string())?;
            return serde_json::to_vec(&range).map(Bytes::from).map_err(|error| error.to_string());
        }
        let mut object = match (self.built_in(&key.collection), value.starts_with(MAGIC)) {
            (Some(found), true) => found.decode(value)?,
            (None, true) => return Err("it is protobuf, which custom resources are not".to_owned()),
            (found, false) => {
                let object = serde_json::from_slice(value).map_err(|error| error.to_string())?;
                match found {
                    Some(found) => found.adopt(object)?,
                    None => object,
                }
            }
        };
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.filter(|metadata| metadata.get("name").is_some_and(Value::is_string));
        metadata.ok_or("it has no name")?.remove("resourceVersion");
        if !object["apiVersion"].is_string() || !object["kind"].is_string() {
            return Err("it does not say what it is".to_owned());
        }
        Ok(object::encode(&object))
    }
}

impl BuiltIn {
    /// The resource in the version that this server keeps.
    fn served(&self) -> &'static resource::Resource {
        resource::Registry::built_in().expect(self.facts.group, self.facts.version, self.facts.plural)
    }

    fn decode(&self, value: &[u8]) -> Result<Value, String> {
        let envelope = Envelope::parse(value).map_err(|error| error.to_string())?;
        if !envelope.content_encoding.is_empty() {
            return Err(format!("its encoding {:?} is unknown", envelope.content_encoding));
        }
        let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", envelope.api_version));
        // A version that is stored and not served has the fields of the one that is.
        let is_stored = (group, version) == (self.stored.group, self.stored.version);
        let known = table().type_of_kind(group, version, envelope.kind);
        let ty = known.or_else(|| is_stored.then(|| self.facts.ty())).ok_or_else(|| {
            format!("it is a {} of {}, which is unknown here", envelope.kind, envelope.api_version)
        })?;
        let mut object =
            Value::Object(protobuf::decode_message(ty, envelope.raw).map_err(|error| error.to_string())?);
        object["apiVersion"] = match known {
            Some(_) => envelope.api_version.into(),
            None => self.facts.api_version().into(),
        };
        object["kind"] = envelope.kind.into();
        self.adopt(object)
    }

    /// An object in any version of its kind, as this server keeps it.
    fn adopt(&self, object: Value) -> Result<Value, String> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let mut object = match api_version.as_str() {
            "apiextensions.k8s.io/v1beta1" => definition::to_v1(object),
            _ => object,
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        if let Some(served) = resource::Registry::built_in().find(group, version, self.facts.plural) {
            object = crate::convert::to_stored(served, object);
        }
        if object["apiVersion"] != self.facts.api_version().as_str() {
            return Err(format!("it is of {api_version}, which is unknown here"));
        }
        conform(self.facts.ty(), &mut object, &mut Vec::new()).map_err(|error| error.to_string())?;
        // As kube-apiserver does whenever it decodes: what was stored by an older server has the newer defaults, too.
        crate::kinds::default(self.served(), &mut object);
        object["apiVersion"] = self.facts.api_version().into();
        object["kind"] = self.facts.kind.into();
        Ok(object)
    }
}

fn range_type() -> &'static Type {
    table().type_of_kind("", "v1", "RangeAllocation").expect("the table has the types of stored objects")
}

#[cfg(test)]
mod tests;
