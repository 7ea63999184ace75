//! Events of a watch.

use super::wire::Writer;
use super::{DecodeError, Field, Fields};

/// Appends one event of a watch as it is streamed: its length in four bytes, then a `WatchEvent` message around `object`,
/// a body of its own.
///
/// ```
/// let mut stream = Vec::new();
/// setpoint_kinds::protobuf::append_event("ADDED", b"k8s\0", &mut stream);
/// assert_eq!(stream, b"\0\0\0\x0f\x0a\x05ADDED\x12\x06\x0a\x04k8s\0");
/// ```
pub fn append_event(kind: &str, object: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut writer = Writer::from(std::mem::take(out));
    writer.raw(&[0; 4]);
    writer.bytes(1, kind.as_bytes());
    writer.message(2, |extension| extension.bytes(1, object));
    *out = writer.finish();
    // An object has a few MiB at most.
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// An event of a watch, without the length before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchEvent<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: &'a [u8],
    /// The object, a body of its own.
    pub object: &'a [u8],
}

impl<'a> WatchEvent<'a> {
    /// Reads the message, but not the object in it.
    ///
    /// ```
    /// use setpoint_kinds::protobuf::{WatchEvent, append_event};
    ///
    /// let mut stream = Vec::new();
    /// append_event("ADDED", b"k8s\0", &mut stream);
    /// let event = WatchEvent::parse(&stream[4..]).unwrap();
    /// assert_eq!((event.kind, event.object), (&b"ADDED"[..], &b"k8s\0"[..]));
    /// ```
    pub fn parse(message: &'a [u8]) -> Result<WatchEvent<'a>, DecodeError> {
        let mut event = WatchEvent::default();
        for field in Fields::of(message) {
            match field? {
                Field { number: 1, bytes: Some(kind), .. } => event.kind = kind,
                Field { number: 2, bytes: Some(extension), .. } => {
                    for field in Fields::of(extension) {
                        if let Field { number: 1, bytes: Some(object), .. } = field? {
                            event.object = object;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }
}
