//! Answers in `application/vnd.kubernetes.protobuf`, which servers have for the built-in kinds and for metadata.

mod list;
mod object;
mod watch;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::core::ApiResource;
use serde::de::DeserializeOwned;
use setpoint_kinds::protobuf::{DecodeError, Envelope, Fields, MEDIA_TYPE, TypeMeta, from_message};
use setpoint_kinds::{Type, table};

pub(super) use self::list::ListScanner;
pub(super) use self::object::{Outline, Preparation, Prepared};
pub(super) use self::watch::{FrameSplitter, decode_frames};

/// The numbers of fields that all kinds have in common.
const METADATA: u32 = 1;
const NAME: u32 = 1;
const NAMESPACE: u32 = 3;
const UID: u32 = 5;
const RESOURCE_VERSION: u32 = 6;
const MANAGED_FIELDS: u32 = 17;

/// A kind that has a protobuf form.
#[derive(Clone, Debug)]
pub(crate) struct WireKind {
    ty: &'static Type,
    api_version: String,
    kind: String,
}

impl WireKind {
    /// The kind of a resource, or of its metadata alone. `None` for what is JSON everywhere: custom resources.
    pub(crate) fn of(resource: &ApiResource, metadata_only: bool) -> Option<WireKind> {
        if metadata_only {
            let ty = type_named("meta.v1.PartialObjectMetadata");
            let (api_version, kind) = ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata".to_owned());
            return Some(WireKind { ty, api_version, kind });
        }
        let found = table().by_kind(&resource.group, &resource.version, &resource.kind)?;
        let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
        Some(WireKind { ty: found.ty(), api_version, kind })
    }

    #[cfg_attr(not(feature = "protobuf"), expect(dead_code, reason = "nothing asks for protobuf"))]
    pub(super) fn ty(&self) -> &'static Type {
        self.ty
    }

    /// What an object says about its kind in JSON, and in protobuf only the message around it.
    #[cfg_attr(not(feature = "protobuf"), expect(dead_code, reason = "nothing asks for protobuf"))]
    pub(super) fn type_meta(&self) -> TypeMeta<'_> {
        TypeMeta::new(&self.api_version, &self.kind)
    }

    /// What is wrong with an object that should be of this kind.
    fn mismatch(&self, envelope: &Envelope<'_>) -> Option<String> {
        let (api_version, kind) = (envelope.api_version, envelope.kind);
        if api_version == self.api_version && kind == self.kind {
            return None;
        }
        Some(format!("it is a {kind} of {api_version:?}, expected {} of {:?}", self.kind, self.api_version))
    }
}

fn type_named(name: &str) -> &'static Type {
    table().type_named(name).expect("the table has the types of metadata")
}

/// A body whose object is plain protobuf.
fn plain(body: &[u8]) -> Option<Envelope<'_>> {
    let envelope = Envelope::parse(body).ok()?;
    let is_plain = envelope.content_encoding.is_empty() && ["", MEDIA_TYPE].contains(&envelope.content_type);
    is_plain.then_some(envelope)
}

/// The Status in a body.
pub(super) fn status(body: &[u8]) -> Option<Status> {
    let envelope = plain(body).filter(|envelope| envelope.kind == "Status")?;
    from_message(type_named("meta.v1.Status"), None, envelope.raw).ok()
}

/// The metadata of an object of any kind.
pub(crate) fn metadata<M: DeserializeOwned>(object: &[u8]) -> Result<M, DecodeError> {
    let mut metadata: &[u8] = &[];
    for field in Fields::of(object) {
        let field = field?;
        if let (METADATA, Some(bytes)) = (field.number, field.bytes) {
            metadata = bytes;
            break;
        }
    }
    from_message(type_named("meta.v1.ObjectMeta"), None, metadata)
}

/// What of some bytes people can read.
pub(super) fn printable(bytes: &[u8]) -> Vec<u8> {
    let is_printable = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    bytes.iter().take(1024).map(|byte| if is_printable(byte) { *byte } else { b'.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_all_kinds() {
        let meta = type_named("meta.v1.ObjectMeta");
        let numbers = [
            ("name", NAME),
            ("namespace", NAMESPACE),
            ("uid", UID),
            ("resourceVersion", RESOURCE_VERSION),
            ("managedFields", MANAGED_FIELDS),
        ];
        for (name, number) in numbers {
            assert_eq!(meta.field(name).unwrap().number, number);
        }
        let listed = table().resources().iter().filter(|resource| resource.verbs.contains(&"list"));
        for resource in listed {
            assert_eq!(resource.ty().field("metadata").unwrap().number, METADATA, "{}", resource.kind);
            let list = format!("{}List", resource.ty().name);
            let list = table().type_named(&list).unwrap();
            assert_eq!((list.field("metadata").unwrap().number, list.field("items").unwrap().number), (1, 2));
        }
    }

    #[test]
    fn built_in_kinds_and_metadata_have_a_protobuf_form_and_custom_resources_have_none() {
        let resource = |group: &str, kind: &str| ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") },
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        let name = |group, kind, metadata_only| {
            WireKind::of(&resource(group, kind), metadata_only).map(|kind| kind.ty.name)
        };
        assert_eq!(name("", "Pod", false), Some("core.v1.Pod"));
        assert_eq!(name("apps", "Deployment", false), Some("apps.v1.Deployment"));
        assert_eq!(name("example.com", "Foo", false), None);
        // A custom resource may have the name of a built-in kind.
        assert_eq!(name("apps.example.com", "Deployment", false), None);
        assert_eq!(name("example.com", "Foo", true), Some("meta.v1.PartialObjectMetadata"));
    }
}
