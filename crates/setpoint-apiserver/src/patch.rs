//! PATCH: how a body changes an object, by the body's media type.

mod apply;
mod json;
mod merge;
mod strategic;

use serde_json::Value;
use setpoint_kinds::Type;

use crate::bounds::Bounded;
use crate::request::ResourceRequest;
use crate::schema::Nulls;
use crate::status::{Result, Status};

pub(crate) use apply::decode as decode_applied;
pub(crate) use merge::drop_nulls;
pub(crate) use strategic::{conversion_error, go_text, go_type};

/// The kinds of patches that Kubernetes knows, each with its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 6902: a list of operations.
    Json,
    /// RFC 7386: an object that is laid over the current one.
    Merge,
    /// Like merge, but lists are merged by their items' keys.
    Strategic,
    /// Server-side apply.
    Apply,
    /// Server-side apply, encoded in CBOR.
    ApplyCbor,
}

impl PatchType {
    /// What this server applies. A type that comes later needs its line here and its arm in [`apply`].
    const ACCEPTED: &'static [PatchType] =
        &[PatchType::Json, PatchType::Merge, PatchType::Strategic, PatchType::Apply];

    const ALL: &'static [PatchType] =
        &[PatchType::Json, PatchType::Merge, PatchType::Strategic, PatchType::Apply, PatchType::ApplyCbor];

    /// The media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Strategic => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
            PatchType::ApplyCbor => "application/apply-patch+cbor",
        }
    }

    /// The type of a request's patch. Objects without a Go type know no strategic merge.
    pub(crate) fn of(request: &ResourceRequest) -> Result<PatchType> {
        let content_type = request.content_type.as_deref().unwrap_or_default();
        let found = PatchType::from_content_type(content_type);
        if request.resource.ty().is_some() {
            return found;
        }
        found.ok().filter(|found| *found != PatchType::Strategic).ok_or_else(|| {
            let accepted = PatchType::ACCEPTED.iter().filter(|known| **known != PatchType::Strategic);
            Status::unsupported_media_type(&accepted.map(|known| known.media_type()).collect::<Vec<_>>())
        })
    }

    /// The type that a Content-Type names; 415 if this server does not apply it.
    pub(crate) fn from_content_type(content_type: &str) -> Result<PatchType> {
        let media_type = content_type.split(';').next().unwrap_or_default();
        let known = PatchType::ALL.iter().find(|known| known.media_type() == media_type);
        known.filter(|known| PatchType::ACCEPTED.contains(known)).copied().ok_or_else(PatchType::unsupported)
    }

    fn unsupported() -> Status {
        let accepted: Vec<_> = PatchType::ACCEPTED.iter().map(|known| known.media_type()).collect();
        Status::unsupported_media_type(&accepted)
    }
}

/// A patched object, not yet checked in any way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Patched {
    pub(crate) value: Bounded,
    /// What `fieldValidation` warns of or refuses: duplicate and unknown fields of the patch itself.
    pub(crate) strict_errors: Vec<String>,
    /// What kube-apiserver quotes of a strategic patch that makes no good object, as [`go_text`] prints it; it quotes the
    /// outcome of others.
    pub(crate) quoted: Option<Value>,
    pub(crate) nulls: Nulls,
}

impl Patched {
    /// What a patch has made of `old`, if it is not too large.
    fn new(old: &Value, value: Value, strict_errors: Vec<String>, quoted: Option<Value>) -> Result<Patched> {
        let nulls = Nulls::Dropped;
        Ok(Patched { value: Bounded::change(value, old)?, strict_errors, quoted, nulls })
    }

    /// What webhooks have made of `old`.
    pub(crate) fn changed(old: &Value, value: Value) -> Result<Patched> {
        Patched::new(old, value, Vec::new(), None)
    }

    /// What server-side apply has made of `old`. A null in it is what is left of a field of which all was removed, perhaps
    /// also what others own: it is not for a schema to drop.
    pub(crate) fn applied(old: &Value, value: Value) -> Result<Patched> {
        Ok(Patched { nulls: Nulls::Kept, ..Patched::changed(old, value)? })
    }
}

/// Applies a patch to `current`, an object of type `ty` (if it has one), which is left as it is.
pub(crate) fn apply(
    patch_type: PatchType,
    ty: Option<&'static Type>,
    current: &Value,
    patch: &[u8],
) -> Result<Patched> {
    match patch_type {
        PatchType::Json => json::apply(current, patch),
        PatchType::Merge => merge::apply(current, patch),
        PatchType::Strategic => strategic::apply(ty.ok_or_else(PatchType::unsupported)?, current, patch),
        PatchType::Apply | PatchType::ApplyCbor => Err(PatchType::unsupported()),
    }
}

/// Applies a JSON patch to `current`, which is left as it is.
pub(crate) fn apply_json(current: &Value, patch: &[u8]) -> Result<Value> {
    Ok(json::apply(current, patch)?.value.into_value())
}

/// 400: the body is not a patch.
fn malformed(why: &str) -> Status {
    Status::bad_request(format!("error decoding patch: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_names_the_patch() {
        let parse = PatchType::from_content_type;
        assert_eq!(parse("application/json-patch+json"), Ok(PatchType::Json));
        assert_eq!(parse("application/merge-patch+json; charset=utf-8"), Ok(PatchType::Merge));
        for other in ["", "application/json", "application/apply-patch+cbor"] {
            let status = parse(other).unwrap_err();
            assert_eq!((status.code.as_u16(), &*status.reason), (415, "UnsupportedMediaType"));
            assert!(
                status.message.starts_with(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json"
                ),
                "{status}"
            );
        }
    }
}
