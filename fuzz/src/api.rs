//! A client of the server in this process.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use setpoint_apiserver::{ApiServer, AsUser, User};
use tower::ServiceExt;

/// The media types of bodies.
pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// No answer to one object is longer: an object of 3 MiB, and what quotes it.
const LONGEST: usize = 16 << 20;

/// An administrator's way to a server.
pub struct Api {
    service: AsUser,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub media: String,
    pub body: Bytes,
}

impl Api {
    /// For a server.
    pub fn of(server: &ApiServer) -> Api {
        Api { service: server.as_user(User::admin()) }
    }

    /// Sends a request, if it is one. Whatever it is, it is not the server's fault.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> Option<Answer> {
        self.send(method, path, accept, media, body.into()).await
    }

    async fn send(&self, method: &str, path: &str, accept: &str, media: &str, body: Bytes) -> Option<Answer> {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        let request = request.header(header::CONTENT_TYPE, media).body(Full::new(body)).ok()?;
        let response = self.service.clone().oneshot(request).await.expect("the service never fails");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("bodies never fail").to_bytes();
        let media = head.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        let answer = Answer { code: head.status.as_u16(), media: media.unwrap_or_default().to_owned(), body };
        assert!(!answer.is_our_fault() && answer.body.len() <= LONGEST, "{method} {path}: {answer:?}");
        Some(answer)
    }

    /// Sends JSON, or whatever `media` is, and takes JSON.
    pub async fn call(&self, method: &str, path: &str, media: &str, body: impl Into<Bytes>) -> Answer {
        let answer = self.ask(method, path, JSON, media, body).await;
        answer.unwrap_or_else(|| panic!("{method} {path} is no request"))
    }

    /// Reads something.
    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, JSON, "").await
    }
}

impl Answer {
    /// Whether the request worked.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// A 500 without a reason is kube-apiserver's word for some patches, and the client's fault.
    fn is_our_fault(&self) -> bool {
        self.code == 500 && self.body.windows(13).any(|word| word == b"InternalError")
    }

    /// The body, which must be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of a request that cannot fail.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!(self.is_ok(), "{}: {}", self.code, String::from_utf8_lossy(&self.body));
        self.json()
    }
}
