//! Bytes of one object → the object that is cached, once.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::RwLock;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
#[cfg(feature = "protobuf")]
use setpoint_kinds::protobuf::from_message;

use super::json;
use super::outline::Outline;
use super::protobuf::{self, Prepared, WireKind};
use super::scan::find_managed_fields;
use crate::held::{DecodeFn, Identity, Pack, PackerOf, Recents};
use crate::store::FixedSet;
use crate::{Held, Object, ObjectKey, ResourceVersion};

/// How many forms are remembered. A kind has few; one whose objects all differ is decoded at once.
const MOST_FORMS: usize = 4096;

/// What becomes of the bytes of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    /// They are decoded when they come.
    Decoded,
    /// They stay bytes until the object is read, if it is certain that they can be decoded.
    #[default]
    Lazy,
}

/// Decodes objects of one kind: without managedFields unless they are asked for, transformed, trimmed.
pub(crate) struct Decoder<T> {
    parts: Arc<Parts<T>>,
}

struct Parts<T> {
    decode: DecodeFn<T>,
    keep_managed_fields: bool,
    /// The kind as protobuf has it, if that is asked for.
    wire_kind: Option<Arc<WireKind>>,
    /// Whether a form that was decoded once can be decoded always.
    trusts_forms: bool,
    /// The forms that were decoded.
    forms: RwLock<FixedSet<u64>>,
    keep: Keep,
    /// Compresses the bytes that are kept.
    packer: Option<Arc<dyn Pack<T>>>,
    /// Bounds how many objects are kept decoded.
    recents: Option<Arc<Recents<T>>>,
}

impl<T> Clone for Decoder<T> {
    fn clone(&self) -> Decoder<T> {
        Decoder { parts: self.parts.clone() }
    }
}

/// Working space that is used again for one object after the other.
#[derive(Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

/// What became of the bytes of an object.
#[derive(Debug)]
pub(super) enum Decoded<T> {
    Object(Held<T>),
    Skipped(Skipped),
}

/// An object that could not be decoded. Its key and version are known if at least its metadata is readable.
#[derive(Debug)]
pub(super) struct Skipped {
    pub(super) key: Option<ObjectKey>,
    pub(super) version: Option<ResourceVersion>,
    pub(super) message: String,
}

impl<T: Object> Decoder<T> {
    /// A decoder of `K` that hands each object to `transform` before it is stored. (Only if it is
    /// [`Keep::Decoded`], that is once an object.) Objects come in JSON, or in protobuf too if their kind in it is known.
    pub(crate) fn new<K>(
        keep_managed_fields: bool,
        keep: Keep,
        wire_kind: Option<WireKind>,
        transform: Arc<dyn Fn(K) -> T + Send + Sync>,
    ) -> Decoder<T>
    where
        K: kube::Resource + DeserializeOwned + Clone + 'static,
    {
        let type_name = std::any::type_name::<K>();
        let wire_kind = wire_kind.map(Arc::new);
        let kind = wire_kind.clone();
        let decode = move |bytes: &[u8], lengths: &mut Vec<u32>| {
            let mut object = match &kind {
                #[cfg(feature = "protobuf")]
                Some(kind) if !is_json(bytes) => read_protobuf::<K>(kind, type_name, bytes)?,
                _ => read_json::<K>(bytes, lengths)?,
            };
            if !keep_managed_fields {
                // Cut out of the bytes already, unless somebody spells the name with escapes.
                object.meta_mut().managed_fields = None;
            }
            Ok(transform(object))
        };
        let decode: DecodeFn<T> = Arc::new(decode);
        Decoder {
            parts: Arc::new(Parts {
                packer: None,
                recents: None,
                decode,
                keep_managed_fields,
                wire_kind,
                trusts_forms: reads_forms_alike(type_name),
                forms: RwLock::default(),
                keep,
            }),
        }
    }

    /// The same decoder, which compresses the bytes that are kept.
    pub(crate) fn packed(mut self, packer: PackerOf<T>) -> Decoder<T> {
        if let Some(parts) = Arc::get_mut(&mut self.parts) {
            parts.packer = Some(packer(parts.decode.clone()));
        }
        self
    }

    /// The same decoder, of whose objects at most so many are kept decoded.
    pub(crate) fn recent(mut self, most: NonZeroUsize) -> Decoder<T> {
        if let Some(parts) = Arc::get_mut(&mut self.parts) {
            parts.recents = Some(Recents::shared(parts.decode.clone(), most));
        }
        self
    }

    /// Decodes one object, as far as it must be decoded now.
    pub(super) fn decode(&self, bytes: &[u8], scratch: &mut Scratch) -> Decoded<T> {
        let parts = &*self.parts;
        let bytes = bytes.trim_ascii_start();
        let reads_outline = parts.trusts_forms && parts.keep != Keep::Decoded;
        let outline = reads_outline.then(|| Outline::read(bytes, parts.keep_managed_fields)).flatten();
        let cut = match &outline {
            Some(outline) => outline.managed_fields.clone(),
            None if parts.keep_managed_fields => None,
            None => find_managed_fields(bytes),
        };
        if let Some(outline) = &outline
            && let Some(identity) = outline.identity()
            && parts.forms.read().contains(&outline.form)
        {
            return Decoded::Object(parts.hold(identity, bytes, cut, scratch));
        }
        let Scratch { bytes: buffer, lengths } = scratch;
        let bytes = without(bytes, cut, buffer);
        match parts.decode_now(bytes, lengths) {
            Err(message) => Decoded::Skipped(skipped(bytes, message)),
            Ok(held) => {
                if let Some(outline) = outline {
                    parts.learn(outline.form);
                }
                Decoded::Object(held)
            }
        }
    }

    /// The kind as protobuf has it, if that is asked for.
    pub(crate) fn wire_kind(&self) -> Option<&WireKind> {
        self.parts.wire_kind.as_deref()
    }

    /// Decodes one object from protobuf, as far as it must be decoded now. It need not wait for another of its form: to
    /// check that it can be decoded is quick.
    pub(super) fn decode_protobuf(&self, message: &[u8], scratch: &mut Scratch) -> Decoded<T> {
        let parts = &*self.parts;
        let skipped = |message: &[u8], words: String| {
            let outline = protobuf::Outline::read(message).unwrap_or_default();
            Decoded::Skipped(Skipped { key: outline.key(), version: outline.version(), message: words })
        };
        let Some(kind) = &parts.wire_kind else {
            return skipped(message, "it is protobuf, which was not asked for".to_owned());
        };
        let preparation = protobuf::Preparation {
            kind,
            keep_managed_fields: parts.keep_managed_fields,
            checks: parts.trusts_forms && parts.keep != Keep::Decoded,
        };
        let Scratch { bytes: buffer, lengths } = scratch;
        match preparation.prepare(message, buffer) {
            Err(error) => skipped(message, error.to_string()),
            Ok(Prepared::Sure(identity)) => Decoded::Object(match &parts.packer {
                Some(packer) => Held::packed(identity, buffer, packer),
                None => parts.hold_bytes(identity, std::mem::take(buffer).into()),
            }),
            Ok(Prepared::Unsure) => match parts.decode_now(buffer, lengths) {
                Ok(held) => Decoded::Object(held),
                Err(words) => skipped(message, words),
            },
        }
    }
}

/// Whether the bytes of an object are JSON. No message of protobuf that is kept begins like an object of JSON: that would
/// be a group, which nobody writes.
pub(crate) fn is_json(object: &[u8]) -> bool {
    object.first() == Some(&b'{')
}

fn read_json<K: DeserializeOwned + Clone>(
    bytes: &[u8],
    lengths: &mut Vec<u32>,
) -> Result<K, serde_json::Error> {
    match json::from_slice::<K>(bytes, lengths) {
        Some(object) => Ok(object),
        // A clone has vectors of exactly their length; those of serde_json have room to grow.
        // From text, as `kube` reads answers: the same reader is not compiled a second time for each kind.
        None => Ok(serde_json::from_str::<K>(text(bytes)?)?.clone()),
    }
}

/// Bytes of JSON as text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, serde_json::Error> {
    std::str::from_utf8(bytes).map_err(serde_json::Error::custom)
}

#[cfg(feature = "protobuf")]
fn read_protobuf<K: DeserializeOwned>(
    kind: &WireKind,
    type_name: &str,
    bytes: &[u8],
) -> Result<K, serde_json::Error> {
    // The types of k8s-openapi know what they are.
    let types = (!type_name.starts_with("k8s_openapi::")).then(|| kind.type_meta());
    from_message(kind.ty(), types, bytes).map_err(serde_json::Error::custom)
}

impl<T: Object> Parts<T> {
    /// Holds bytes that can be decoded, without those that are cut out.
    fn hold(
        &self,
        identity: Identity,
        bytes: &[u8],
        cut: Option<Range<usize>>,
        scratch: &mut Scratch,
    ) -> Held<T> {
        if let Some(packer) = &self.packer {
            return Held::packed(identity, without(bytes, cut, &mut scratch.bytes), packer);
        }
        let bytes = match cut {
            Some(range) => [&bytes[..range.start], &bytes[range.end..]].concat(),
            None => bytes.to_vec(),
        };
        self.hold_bytes(identity, bytes.into())
    }

    /// Holds bytes that can be decoded, as they are.
    fn hold_bytes(&self, identity: Identity, bytes: Box<[u8]>) -> Held<T> {
        match &self.recents {
            Some(recents) => Held::recent(identity, bytes, recents),
            None => Held::lazy(identity, bytes, self.decode.clone()),
        }
    }

    /// Decodes bytes of which nobody knows whether they can be decoded; what is wrong with them, if they cannot.
    fn decode_now(&self, bytes: &[u8], lengths: &mut Vec<u32>) -> Result<Held<T>, String> {
        let decoded = catch_unwind(AssertUnwindSafe(|| (self.decode)(bytes, lengths)));
        let object = decoded.map_err(|_| "the transform panicked".to_owned())?;
        let object = object.map_err(|error| error.to_string())?;
        let held = Held::named(object).ok_or("it has no name")?;
        Ok(match (&self.packer, &self.recents) {
            (Some(packer), _) => Held::packed(held.identity(), bytes, packer),
            (None, Some(recents)) => Held::recent(held.identity(), bytes.into(), recents),
            (None, None) => held,
        })
    }

    fn learn(&self, form: u64) {
        let mut forms = self.forms.write();
        if forms.len() < MOST_FORMS {
            forms.insert(form);
        }
    }
}

/// The bytes without a part of them.
fn without<'a>(bytes: &'a [u8], cut: Option<Range<usize>>, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(range) = cut else { return bytes };
    buffer.clear();
    buffer.extend_from_slice(&bytes[..range.start]);
    buffer.extend_from_slice(&bytes[range.end..]);
    buffer
}

/// Whether a type reads all objects of one form, or none (see `outline`). That is known of types that consist
/// of others of `k8s-openapi` alone. A type of somebody else may look closer: it may have an enum of names, or
/// read strings in its own way.
fn reads_forms_alike(type_name: &str) -> bool {
    type_name.starts_with("k8s_openapi::")
        || type_name.starts_with("kube_core::metadata::PartialObjectMeta<")
        || type_name == "kube_core::dynamic::DynamicObject"
}

/// Reads as much of an undecodable object as the cache needs to know which one it is.
fn skipped(bytes: &[u8], message: String) -> Skipped {
    let metadata = Metadata::read(bytes).unwrap_or_default();
    Skipped { version: metadata.version(), key: metadata.key(), message }
}

/// The metadata of an object of any kind, as far as a reflector needs it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

impl Metadata {
    pub(super) fn read(object: &[u8]) -> Result<Metadata, serde_json::Error> {
        #[derive(Deserialize)]
        struct Anything {
            #[serde(default)]
            metadata: Metadata,
        }
        serde_json::from_slice(object).map(|object: Anything| object.metadata)
    }

    pub(super) fn key(&self) -> Option<ObjectKey> {
        let (name, namespace) = (self.name.clone(), self.namespace.clone());
        ObjectKey::of(&ObjectMeta { name, namespace, ..ObjectMeta::default() })
    }

    pub(super) fn version(&self) -> Option<ResourceVersion> {
        let version = self.resource_version.as_deref()?;
        (!version.is_empty()).then(|| version.into())
    }

    /// Whether this is the bookmark that ends a streaming list.
    pub(super) fn ends_initial_events(&self) -> bool {
        let annotations = self.annotations.as_ref();
        annotations.and_then(|all| all.get("k8s.io/initial-events-end")).is_some_and(|value| value == "true")
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn decode(decoder: &Decoder<Pod>, text: &str) -> Decoded<Pod> {
        decoder.decode(text.as_bytes(), &mut Scratch::default())
    }

    fn decoder(keep_managed_fields: bool) -> Decoder<Pod> {
        Decoder::new(keep_managed_fields, Keep::Lazy, None, Arc::new(|pod: Pod| pod))
    }

    const POD: &str = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"5",
        "managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{}}}]},"spec":{"containers":[{"name":"c"}]}}"#;

    #[test]
    fn managed_fields_are_dropped_unless_asked_for() {
        for keep in [false, true] {
            let Decoded::Object(pod) = decode(&decoder(keep), POD) else {
                panic!("the pod decodes");
            };
            assert_eq!(*pod.key(), "n/a".into());
            assert_eq!(pod.metadata.managed_fields.is_some(), keep);
        }
    }

    #[test]
    fn managed_fields_that_are_spelled_with_escapes_are_dropped_too() {
        let text = POD.replace("managedFields", "m\\u0061nagedFields");
        let Decoded::Object(pod) = decode(&decoder(false), &text) else {
            panic!("the pod decodes");
        };
        assert_eq!(pod.metadata.managed_fields, None);
    }

    #[test]
    fn an_object_that_does_not_decode_is_skipped_with_its_key_and_version() {
        let decoder = decoder(false);
        for (text, message) in [
            (POD.replace("\"containers\":[", "\"containers\":[7,"), "invalid type"),
            (POD.replacen('{', "{\"kind\":\"Node\",", 1), "expected Pod"),
        ] {
            let Decoded::Skipped(skipped) = decode(&decoder, &text) else { panic!("it does not decode") };
            assert_eq!((skipped.key, skipped.version), (Some("n/a".into()), Some("5".into())));
            assert!(skipped.message.contains(message), "{}", skipped.message);
        }
    }

    #[test]
    fn an_object_without_a_name_is_skipped() {
        let decoder = decoder(false);
        let Decoded::Skipped(skipped) = decode(&decoder, r#"{"metadata":{}}"#) else { panic!("no name") };
        assert_eq!(skipped.message, "it has no name");
    }

    #[test]
    fn a_transform_that_panics_costs_one_object() {
        let decoder =
            Decoder::new(false, Keep::Decoded, None, Arc::new(|_: Pod| -> Pod { panic!("as planned") }));
        let Decoded::Skipped(skipped) = decode(&decoder, POD) else { panic!("it panicked") };
        assert_eq!(skipped.key, Some("n/a".into()));
    }
}
