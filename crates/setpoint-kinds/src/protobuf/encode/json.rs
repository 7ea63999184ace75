//! Where objects come from.

use std::borrow::Cow;

use serde_json::Value;

use super::EncodeError;

/// An object in JSON that is to be encoded: a [`Value`], or text.
///
/// Text is encoded as it is read. Where an object may have any JSON, such as the field sets of its managers, that goes
/// into the message as it is.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a> {
    source: Source<'a>,
    resource_version: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Value(&'a Value),
    Text(&'a [u8]),
}

impl<'a> From<&'a Value> for Json<'a> {
    fn from(value: &'a Value) -> Json<'a> {
        Json { source: Source::Value(value), resource_version: None }
    }
}

impl<'a> Json<'a> {
    /// An object as JSON text.
    pub fn text(text: &'a [u8]) -> Json<'a> {
        Json { source: Source::Text(text), resource_version: None }
    }

    /// Encodes this resourceVersion in the object's metadata, whatever the JSON says.
    #[must_use]
    pub fn with_resource_version(self, resource_version: u64) -> Json<'a> {
        Json { resource_version: Some(resource_version), ..self }
    }

    pub(super) fn resource_version(&self) -> Option<u64> {
        self.resource_version
    }

    /// How long the message may be. Protobuf is shorter than JSON, but for objects in which nothing is set.
    pub(in crate::protobuf) fn size_hint(&self) -> usize {
        match self.source {
            Source::Value(_) => 1024,
            Source::Text(text) => text.len(),
        }
    }

    /// The text. A value is written down: reading it back is cheap beside a second encoder.
    pub(super) fn as_text(&self) -> Result<Cow<'a, str>, EncodeError> {
        match self.source {
            Source::Value(value) => serde_json::to_string(value)
                .map(Cow::Owned)
                .map_err(|error| EncodeError::Json(error.to_string())),
            Source::Text(text) => {
                let text = std::str::from_utf8(text).map_err(|error| EncodeError::Json(error.to_string()))?;
                Ok(Cow::Borrowed(text))
            }
        }
    }
}
