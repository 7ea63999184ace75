//! How the replayed Pods are written: JSON, or the protobuf of Kubernetes.

use setpoint_kinds::protobuf::MAGIC;

use super::LIST_VERSION;
use crate::pods::PodText;

/// What the server speaks.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Protobuf,
}

impl Format {
    pub(crate) fn content_type(self, watch: bool) -> &'static str {
        match (self, watch) {
            (Format::Json, _) => "application/json",
            (Format::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Format::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    pub(crate) fn pod(self, n: usize) -> PodText {
        match self {
            Format::Json => PodText::new(n),
            Format::Protobuf => PodText::protobuf(n),
        }
    }

    /// A list: the Pods with the version of each, and where the next page begins.
    pub(crate) fn list<'a>(
        self,
        pods: impl Iterator<Item = (u64, &'a PodText)> + Clone,
        next: &str,
    ) -> Vec<u8> {
        match self {
            Format::Json => json_list(pods, next),
            Format::Protobuf => protobuf_list(pods, next),
        }
    }

    /// Appends an event.
    pub(crate) fn event(self, out: &mut Vec<u8>, kind: &str, version: u64, pod: &PodText) {
        match self {
            Format::Json => json_event(out, kind, |out| pod.write(version, out)),
            Format::Protobuf => protobuf_event(out, kind, pod.len(), |out| pod.write(version, out)),
        }
    }

    /// Appends the bookmark after the first list.
    pub(super) fn bookmark(self, out: &mut Vec<u8>) {
        match self {
            Format::Json => {
                let text = format!(
                    r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{LIST_VERSION}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
                );
                json_event(out, "BOOKMARK", |out| out.extend_from_slice(text.as_bytes()));
            }
            Format::Protobuf => {
                let (mut annotation, mut metadata, mut pod) = (Vec::new(), Vec::new(), Vec::new());
                field(&mut annotation, 1, b"k8s.io/initial-events-end");
                field(&mut annotation, 2, b"true");
                field(&mut metadata, 6, LIST_VERSION.to_string().as_bytes());
                field(&mut metadata, 12, &annotation);
                field(&mut pod, 1, &metadata);
                protobuf_event(out, "BOOKMARK", pod.len(), |out| out.extend_from_slice(&pod));
            }
        }
    }
}

fn json_list<'a>(pods: impl Iterator<Item = (u64, &'a PodText)>, next: &str) -> Vec<u8> {
    let metadata = format!(r#"{{"resourceVersion":"{LIST_VERSION}","continue":"{next}"}}"#);
    let mut body =
        format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":["#).into_bytes();
    for (n, (version, pod)) in pods.enumerate() {
        if n > 0 {
            body.push(b',');
        }
        pod.write(version, &mut body);
    }
    body.extend_from_slice(b"]}");
    body
}

fn json_event(out: &mut Vec<u8>, kind: &str, object: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(out);
    out.extend_from_slice(b"}\n");
}

fn protobuf_list<'a>(pods: impl Iterator<Item = (u64, &'a PodText)> + Clone, next: &str) -> Vec<u8> {
    let mut metadata = Vec::new();
    field(&mut metadata, 2, LIST_VERSION.to_string().as_bytes());
    field(&mut metadata, 3, next.as_bytes());
    let items: usize = pods.clone().map(|(_, pod)| field_len(pod.len())).sum();
    let mut body = Vec::with_capacity(items + metadata.len() + 64);
    envelope(&mut body, "PodList", field_len(metadata.len()) + items);
    field(&mut body, 1, &metadata);
    for (version, pod) in pods {
        head(&mut body, 2, pod.len());
        pod.write(version, &mut body);
    }
    body
}

/// A frame: its length, and a `WatchEvent` whose object is wrapped like a body.
fn protobuf_event(out: &mut Vec<u8>, kind: &str, object_len: usize, object: impl FnOnce(&mut Vec<u8>)) {
    let mut wrap = Vec::with_capacity(32);
    envelope(&mut wrap, "Pod", object_len);
    let wrapped = wrap.len() + object_len;
    let raw = field_len(wrapped);
    let length = field_len(kind.len()) + field_len(raw);
    out.extend_from_slice(&(length as u32).to_be_bytes());
    field(out, 1, kind.as_bytes());
    head(out, 2, raw);
    head(out, 1, wrapped);
    out.extend_from_slice(&wrap);
    object(out);
}

/// The magic bytes, and `runtime.Unknown` up to the object.
fn envelope(out: &mut Vec<u8>, kind: &str, object_len: usize) {
    let mut meta = Vec::new();
    field(&mut meta, 1, b"v1");
    field(&mut meta, 2, kind.as_bytes());
    out.extend_from_slice(MAGIC);
    field(out, 1, &meta);
    head(out, 2, object_len);
}

/// A field of bytes.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    head(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// The tag and length of a field of bytes.
fn head(out: &mut Vec<u8>, number: u8, mut length: usize) {
    out.push(number << 3 | 2);
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// How long a field of so many bytes is, tag and length included.
fn field_len(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + length
}

#[cfg(test)]
mod tests {
    use setpoint_kinds::protobuf;

    use super::*;

    #[test]
    fn a_protobuf_list_is_what_kubernetes_writes() {
        let pods = [PodText::protobuf(0), PodText::protobuf(1)];
        let body = Format::Protobuf.list((100_000_001..).zip(&pods), "7");
        let list = protobuf::decode(&body).unwrap().value;
        assert_eq!(list["metadata"]["continue"], "7");
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
        assert_eq!(list["items"][1]["metadata"]["resourceVersion"], "100000002");
        assert_eq!(list["items"][1]["spec"]["containers"][0]["resources"]["limits"]["memory"], "256Mi");
    }

    #[test]
    fn a_frame_has_the_length_that_it_says_and_a_body_in_it() {
        let (mut out, pod) = (Vec::new(), PodText::protobuf(3));
        Format::Protobuf.event(&mut out, "MODIFIED", 100_000_001, &pod);
        let length = u32::from_be_bytes(out[..4].try_into().unwrap());
        assert_eq!(length as usize, out.len() - 4);
        let at = out.windows(4).position(|window| window == MAGIC).unwrap();
        assert_eq!(protobuf::decode(&out[at..]).unwrap().kind, "Pod");
    }
}
