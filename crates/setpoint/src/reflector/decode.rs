//! Bytes of one object → the object that is cached, once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::json;
use super::scan::find_managed_fields;
use crate::{Object, ObjectKey, ResourceVersion};

type DecodeFn<T> = Arc<dyn Fn(&[u8], &mut Vec<u32>) -> Result<T, serde_json::Error> + Send + Sync>;

/// Decodes objects of one kind: without managedFields unless they are asked for, transformed, trimmed.
pub(crate) struct Decoder<T> {
    decode: DecodeFn<T>,
    keep_managed_fields: bool,
}

impl<T> Clone for Decoder<T> {
    fn clone(&self) -> Decoder<T> {
        Decoder { decode: self.decode.clone(), keep_managed_fields: self.keep_managed_fields }
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
    Object(ObjectKey, Arc<T>),
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
    /// A decoder of `K` that hands each object to `transform`, once, before it is stored.
    pub(crate) fn new<K>(
        keep_managed_fields: bool,
        transform: Arc<dyn Fn(K) -> T + Send + Sync>,
    ) -> Decoder<T>
    where
        K: kube::Resource + DeserializeOwned + Clone + 'static,
    {
        let decode = move |bytes: &[u8], lengths: &mut Vec<u32>| {
            let mut object = match json::from_slice::<K>(bytes, lengths) {
                Some(object) => object,
                // A clone has vectors of exactly their length; those of serde_json have room to grow.
                None => serde_json::from_slice::<K>(bytes)?.clone(),
            };
            if !keep_managed_fields {
                // Cut out of the bytes already, unless somebody spells the name with escapes.
                object.meta_mut().managed_fields = None;
            }
            Ok(transform(object))
        };
        Decoder { decode: Arc::new(decode), keep_managed_fields }
    }

    /// Decodes one object.
    pub(super) fn decode(&self, bytes: &[u8], scratch: &mut Scratch) -> Decoded<T> {
        let cut = if self.keep_managed_fields { None } else { find_managed_fields(bytes) };
        let bytes = match cut {
            Some(range) => {
                scratch.bytes.clear();
                scratch.bytes.extend_from_slice(&bytes[..range.start]);
                scratch.bytes.extend_from_slice(&bytes[range.end..]);
                &*scratch.bytes
            }
            None => bytes,
        };
        match catch_unwind(AssertUnwindSafe(|| (self.decode)(bytes, &mut scratch.lengths))) {
            Ok(Ok(object)) => match ObjectKey::of(object.meta()) {
                Some(key) => Decoded::Object(key, Arc::new(object)),
                None => Decoded::Skipped(skipped(bytes, "it has no name".to_owned())),
            },
            Ok(Err(error)) => Decoded::Skipped(skipped(bytes, error.to_string())),
            Err(_) => Decoded::Skipped(skipped(bytes, "the transform panicked".to_owned())),
        }
    }
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

    const POD: &str = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"5",
        "managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{}}}]},"spec":{"containers":[{"name":"c"}]}}"#;

    #[test]
    fn managed_fields_are_dropped_unless_asked_for() {
        for keep in [false, true] {
            let Decoded::Object(key, pod) = decode(&Decoder::new(keep, Arc::new(|pod: Pod| pod)), POD) else {
                panic!("the pod decodes");
            };
            assert_eq!(key, "n/a".into());
            assert_eq!(pod.metadata.managed_fields.is_some(), keep);
        }
    }

    #[test]
    fn managed_fields_that_are_spelled_with_escapes_are_dropped_too() {
        let text = POD.replace("managedFields", "m\\u0061nagedFields");
        let Decoded::Object(_, pod) = decode(&Decoder::new(false, Arc::new(|pod: Pod| pod)), &text) else {
            panic!("the pod decodes");
        };
        assert_eq!(pod.metadata.managed_fields, None);
    }

    #[test]
    fn an_object_that_does_not_decode_is_skipped_with_its_key_and_version() {
        let decoder = Decoder::new(false, Arc::new(|pod: Pod| pod));
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
        let decoder = Decoder::new(false, Arc::new(|pod: Pod| pod));
        let Decoded::Skipped(skipped) = decode(&decoder, r#"{"metadata":{}}"#) else { panic!("no name") };
        assert_eq!(skipped.message, "it has no name");
    }

    #[test]
    fn a_transform_that_panics_costs_one_object() {
        let decoder = Decoder::new(false, Arc::new(|_: Pod| -> Pod { panic!("as planned") }));
        let Decoded::Skipped(skipped) = decode(&decoder, POD) else { panic!("it panicked") };
        assert_eq!(skipped.key, Some("n/a".into()));
    }
}
