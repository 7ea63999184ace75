//! Events of a watch.

use super::wire::Writer;

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
