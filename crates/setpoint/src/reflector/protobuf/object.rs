//! The bytes of one object.

use std::borrow::Cow;
use std::ops::Range;

use setpoint_kinds::protobuf::{DecodeError, Fields, append_length, check_message, in_order, text};

use super::{MANAGED_FIELDS, METADATA, NAME, NAMESPACE, RESOURCE_VERSION, UID, WireKind};
use crate::held::Identity;
use crate::reflector::decode::is_json;
use crate::{ObjectKey, ResourceVersion};

/// Which object it is, read from the bytes of its metadata.
#[derive(Debug, Default)]
pub(in crate::reflector) struct Outline<'a> {
    name: Cow<'a, str>,
    namespace: Cow<'a, str>,
    uid: Cow<'a, str>,
    version: Cow<'a, str>,
    /// Where the metadata are, their tag and length included.
    metadata: Range<usize>,
    /// How long that tag and length are.
    head: usize,
    /// Where the managedFields are, within the metadata.
    managed_fields: Option<Range<usize>>,
    /// Whether they are in more than one place.
    is_scattered: bool,
}

impl<'a> Outline<'a> {
    /// Reads an object up to its metadata, which come first. (If there are more of them, fields are not in order, and
    /// that is found out later.)
    pub(in crate::reflector) fn read(object: &'a [u8]) -> Result<Outline<'a>, DecodeError> {
        let mut outline = Outline::default();
        for field in Fields::of(object) {
            let field = field?;
            if let (METADATA, Some(metadata)) = (field.number, field.bytes) {
                outline.head = field.range.len() - metadata.len();
                outline.metadata = field.range;
                outline.read_metadata(metadata)?;
                break;
            }
        }
        Ok(outline)
    }

    fn read_metadata(&mut self, metadata: &'a [u8]) -> Result<(), DecodeError> {
        for field in Fields::of(metadata) {
            let field = field?;
            let Some(bytes) = field.bytes else { continue };
            match field.number {
                NAME => self.name = text(bytes),
                NAMESPACE => self.namespace = text(bytes),
                UID => self.uid = text(bytes),
                RESOURCE_VERSION => self.version = text(bytes),
                MANAGED_FIELDS => match &mut self.managed_fields {
                    None => self.managed_fields = Some(field.range),
                    Some(range) if range.end == field.range.start => range.end = field.range.end,
                    Some(_) => self.is_scattered = true,
                },
                _ => {}
            }
        }
        Ok(())
    }

    pub(in crate::reflector) fn key(&self) -> Option<ObjectKey> {
        (!self.name.is_empty()).then(|| match &*self.namespace {
            "" => ObjectKey::cluster(&self.name),
            namespace => ObjectKey::namespaced(namespace, &self.name),
        })
    }

    pub(in crate::reflector) fn version(&self) -> Option<ResourceVersion> {
        some(&self.version).map(ResourceVersion::from)
    }

    /// Which object it is; `None` if it has no name.
    fn identity(&self) -> Option<Identity> {
        Some(Identity::new(self.key()?, some(&self.uid), some(&self.version)))
    }

    /// Writes the object without its managedFields. What is in `out` goes.
    fn write(&self, object: &[u8], keep_managed_fields: bool, out: &mut Vec<u8>) {
        out.clear();
        let cut = self.managed_fields.as_ref().filter(|_| !keep_managed_fields);
        let Some(cut) = cut else {
            // Exactly as much room: it may be kept for long.
            out.reserve_exact(object.len());
            return out.extend_from_slice(object);
        };
        let metadata = &object[self.metadata.start + self.head..self.metadata.end];
        out.reserve_exact(object.len() - cut.len());
        out.extend_from_slice(&object[..self.metadata.start]);
        append_length(METADATA, metadata.len() - cut.len(), out);
        out.extend_from_slice(&metadata[..cut.start]);
        out.extend_from_slice(&metadata[cut.end..]);
        out.extend_from_slice(&object[self.metadata.end..]);
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// What is to be done with an object whose bytes are in the buffer.
pub(in crate::reflector) enum Prepared {
    /// It can be read at any time.
    Sure(Identity),
    /// Nobody knows: it must be decoded now.
    Unsure,
}

/// How the objects of a kind are kept.
#[derive(Clone, Copy)]
pub(in crate::reflector) struct Preparation<'a> {
    pub(in crate::reflector) kind: &'a WireKind,
    pub(in crate::reflector) keep_managed_fields: bool,
    /// Whether it is found out if an object can be read at any time.
    pub(in crate::reflector) checks: bool,
}

impl Preparation<'_> {
    /// Writes an object into `out` as it is kept: without managedFields unless they are kept.
    pub(in crate::reflector) fn prepare(
        self,
        object: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Prepared, DecodeError> {
        match self.prepare_in_order(object, out) {
            Err(DecodeError::Order) => self.prepare_in_order(&in_order(self.kind.ty, object)?, out),
            prepared => prepared,
        }
    }

    /// The same for an object whose fields are in order, or else [`DecodeError::Order`].
    fn prepare_in_order(self, object: &[u8], out: &mut Vec<u8>) -> Result<Prepared, DecodeError> {
        if is_json(object) {
            // It would be taken for JSON when it is read. In order, the metadata come first.
            return Err(DecodeError::Order);
        }
        let outline = Outline::read(object)?;
        if outline.is_scattered {
            return Err(DecodeError::Order);
        }
        outline.write(object, self.keep_managed_fields, out);
        if !self.checks {
            return Ok(Prepared::Unsure);
        }
        Ok(match (check_message(self.kind.ty, out), outline.identity()) {
            (Err(DecodeError::Order), _) => return Err(DecodeError::Order),
            (Ok(()), Some(identity)) => Prepared::Sure(identity),
            _ => Prepared::Unsure,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::ApiResource;
    use serde_json::{Value, json};
    use setpoint_kinds::protobuf::{encode_message, from_message};

    use super::*;

    fn kind() -> WireKind {
        WireKind::of(&ApiResource::erase::<Pod>(&()), false).unwrap()
    }

    fn pod(managed_fields: &Value) -> Vec<u8> {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5",
            "annotations": {"long": "x".repeat(200)}, "managedFields": managed_fields});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "node"}});
        encode_message(kind().ty, &pod).unwrap()
    }

    fn prepare(object: &[u8], out: &mut Vec<u8>) -> Result<Prepared, DecodeError> {
        Preparation { kind: &kind(), keep_managed_fields: false, checks: true }.prepare(object, out)
    }

    #[test]
    fn managed_fields_are_cut_out_unless_they_are_kept() {
        let entry = json!({"manager": "kubectl", "fieldsV1": {"f:spec": {}}});
        let (bare, managed) = (pod(&json!([])), pod(&json!([entry, entry])));
        for (keeps, expected) in [(false, &bare), (true, &managed)] {
            let mut out = b"something else".to_vec();
            let preparation = Preparation { kind: &kind(), keep_managed_fields: keeps, checks: true };
            let prepared = preparation.prepare(&managed, &mut out).unwrap();
            let Prepared::Sure(identity) = prepared else { panic!("it can be read") };
            assert_eq!(identity.key, "n/a".into());
            assert_eq!(&out, expected);
        }
    }

    #[test]
    fn what_is_out_of_order_or_looks_like_json_is_brought_into_order() {
        // The name in a second part, managedFields around it, a group in front that begins like JSON.
        let metadata = b"\x0a\x03\x8a\x01\x00\x0a\x09\x8a\x01\x00\x0a\x01a\x8a\x01\x00";
        let grouped = [b"{\x08\x01|", &metadata[..]].concat();
        for object in [&metadata[..], &grouped] {
            let mut out = Vec::new();
            let prepared = prepare(object, &mut out).unwrap();
            assert!(matches!(prepared, Prepared::Sure(identity) if identity.key == "a".into()));
            assert!(!is_json(&out));
            let pod: Pod = from_message(kind().ty, None, &out).unwrap();
            assert_eq!((pod.metadata.name.as_deref(), pod.metadata.managed_fields), (Some("a"), None));
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_known_by_its_name_wherever_its_managed_fields_are() {
        // They are around the name, and the spec is a number.
        let object = b"\x0a\x09\x8a\x01\x00\x0a\x01a\x8a\x01\x00\x10\x01";
        assert!(prepare(object, &mut Vec::new()).is_err());
        assert_eq!(Outline::read(object).unwrap().key(), Some("a".into()));
    }

    #[test]
    fn what_cannot_be_read_at_any_time_is_said() {
        let mut out = Vec::new();
        // No name; a wrong wire type in the spec.
        for object in [&b"\x0a\x00"[..], b"\x0a\x03\x0a\x01a\x10\x01"] {
            assert!(matches!(prepare(object, &mut out), Ok(Prepared::Unsure)));
        }
        assert!(prepare(b"\x0a\x03\x0a\x09a", &mut out).is_err());
    }
}
