//! What the body of an answer is written in.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use setpoint_kinds::protobuf::MEDIA_TYPE;

use super::protobuf;

/// The two forms of a body. A server chooses: what it cannot write in protobuf it writes in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Protobuf,
}

impl Format {
    /// What an answer says that it is.
    pub(super) fn of(headers: &HeaderMap) -> Format {
        let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match media_type.split(';').next().map(str::trim) {
            Some(name) if name.eq_ignore_ascii_case(MEDIA_TYPE) => Format::Protobuf,
            _ => Format::Json,
        }
    }

    /// The Status in the body of a failed request, if there is one.
    pub(super) fn status(self, body: &[u8]) -> Option<Status> {
        match self {
            Format::Json => serde_json::from_slice(body).ok(),
            Format::Protobuf => protobuf::status(body),
        }
    }

    /// The beginning of what a server said, short enough for a log line.
    pub(super) fn excerpt(self, body: &[u8]) -> String {
        match self {
            Format::Json => super::error::excerpt(body),
            Format::Protobuf => super::error::excerpt(&protobuf::printable(body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_its_content_type_says() {
        for (content_type, format) in [
            ("application/vnd.kubernetes.protobuf", Format::Protobuf),
            ("application/vnd.kubernetes.protobuf;stream=watch", Format::Protobuf),
            ("Application/Vnd.Kubernetes.Protobuf ; as=PartialObjectMetadata", Format::Protobuf),
            ("application/json", Format::Json),
            ("application/json;stream=watch", Format::Json),
            ("application/vnd.kubernetes.protobufs", Format::Json),
            ("", Format::Json),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().unwrap())]);
            assert_eq!(Format::of(&headers), format, "{content_type}");
        }
        assert_eq!(Format::of(&HeaderMap::new()), Format::Json);
    }
}
