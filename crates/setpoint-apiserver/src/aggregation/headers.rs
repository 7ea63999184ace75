//! Which headers go on to a backend, and which come back.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::status::{Result, Status};
use crate::user::User;

const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE_EXTRA: &str = "x-remote-extra-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A token in the place of a protocol, as browsers send it.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// What concerns one connection only.
const OF_CONNECTION: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What cannot stand in the name of a header, and what says that something cannot.
const IN_NAME: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'(')
    .add(b')')
    .add(b',')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'{')
    .add(b'}');

/// Whether a client asks for something else than HTTP on its connection.
pub(super) fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE) && connection_names(headers).any(|name| name == "upgrade")
}

/// Whether what it asks for is HTTP again, in another version.
pub(super) fn asks_for_http(headers: &HeaderMap) -> bool {
    let is_http = |protocol: &str| {
        let name = protocol.split('/').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(name.as_str(), "h2c" | "h2" | "h3" | "http" | "https" | "tls")
    };
    let values = headers.get_all(header::UPGRADE).iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|protocol| {
        // What nobody can read is not handed on either.
        std::str::from_utf8(protocol).map_or(true, is_http)
    })
}

fn connection_names(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase())
}

/// Takes out what concerns one connection only.
pub(super) fn without_connection(mut headers: HeaderMap) -> HeaderMap {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        // The pieces have been read: a length beside them is somebody's lie about where the message ends.
        headers.remove(header::CONTENT_LENGTH);
    }
    let named: Vec<String> = connection_names(&headers).collect();
    for name in named.iter().map(String::as_str).chain(OF_CONNECTION) {
        headers.remove(name);
    }
    headers
}

/// The headers of an answer as a client gets them: whom a browser may hand it to is for this server to say.
pub(super) fn for_client(backend: HeaderMap) -> HeaderMap {
    let mut headers = without_connection(backend);
    for name in [
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        header::ACCESS_CONTROL_ALLOW_METHODS,
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
    ] {
        headers.remove(name);
    }
    headers
}

/// Whether only this server may tell it to a backend: who somebody is, and what proves it. Some servers take an underscore
/// for a hyphen.
fn is_of_identity(name: &HeaderName, own: &[String]) -> bool {
    let name = name.as_str().replace('_', "-");
    name == "authorization"
        || name.starts_with("impersonate-")
        || name.starts_with("x-remote-")
        || own.iter().any(|prefix| name.starts_with(prefix.as_str()))
}

/// The headers of a request as a backend gets them: what the client says about itself, without who it says it is, and who
/// it is. `own` begins the names of further headers that name users.
pub(super) fn for_backend(
    client: &HeaderMap,
    user: &User,
    peer: Option<std::net::IpAddr>,
    own: &[String],
) -> Result<HeaderMap> {
    let mut headers = without_connection(client.clone());
    let taken: Vec<HeaderName> = headers.keys().filter(|name| is_of_identity(name, own)).cloned().collect();
    taken.iter().for_each(|name| drop(headers.remove(name)));
    headers.remove(header::HOST);
    headers.remove(header::EXPECT);
    without_bearer_protocol(&mut headers);
    if let Some(peer) = peer {
        let before = headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let all: Vec<String> = before.map(str::to_owned).chain([peer.to_string()]).collect();
        headers.insert(FORWARDED_FOR, text(&all.join(", "))?);
    }
    headers.insert(REMOTE_USER, text(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(REMOTE_UID, text(&user.uid)?);
    }
    for group in &user.groups {
        headers.append(REMOTE_GROUP, text(group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("{REMOTE_EXTRA}{}", utf8_percent_encode(key, IN_NAME));
        let name = HeaderName::try_from(name).map_err(|_| untold(key))?;
        for value in values {
            headers.append(name.clone(), text(value)?);
        }
    }
    Ok(headers)
}

fn without_bearer_protocol(headers: &mut HeaderMap) {
    let name = header::SEC_WEBSOCKET_PROTOCOL;
    let has = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains(BEARER_PROTOCOL));
    if !headers.get_all(&name).iter().any(has) {
        return;
    }
    let values: Vec<String> =
        headers.get_all(&name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
    headers.remove(&name);
    let protocols = values.iter().flat_map(|value| value.split(',')).map(str::trim);
    let kept: Vec<&str> = protocols.filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL)).collect();
    if let Ok(value) = HeaderValue::from_str(&kept.join(", "))
        && !kept.is_empty()
    {
        headers.insert(name, value);
    }
}

fn text(value: &str) -> Result<HeaderValue> {
    if value.trim_matches([' ', '\t']) != value {
        // Whoever reads it leaves out the white space.
        return Err(untold(value));
    }
    HeaderValue::from_bytes(value.as_bytes()).map_err(|_| untold(value))
}

/// A name that cannot be told must not become another one.
fn untold(name: &str) -> Status {
    Status::internal(format!("{name:?} cannot be told to another server in a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_client_cannot_say_who_it_is_and_its_credentials_stay_here() {
        let client = headers(&[
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("x_remote_user", "root"),
            ("x-proxy-name", "root"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "root"),
            ("connection", "keep-alive, x-secret-hop"),
            ("x-secret-hop", "1"),
            ("te", "trailers"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io"),
            ("host", "front"),
            ("accept", "application/json"),
            ("x-forwarded-for", "192.0.2.1"),
        ]);
        let mut user = User::new("jane", ["a", "b"]);
        user.uid = "7".to_owned();
        user.extra.insert("example.com/scope".to_owned(), vec!["one".to_owned(), "two".to_owned()]);
        let peer = Some([192, 0, 2, 9].into());
        let sent = for_backend(&client, &user, peer, &["x-proxy-name".to_owned()]).unwrap();
        let expect = headers(&[
            ("accept", "application/json"),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
            ("x-forwarded-for", "192.0.2.1, 192.0.2.9"),
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscope", "one"),
            ("x-remote-extra-example.com%2fscope", "two"),
        ]);
        assert_eq!(sent, expect);
    }

    #[test]
    fn a_name_that_no_header_can_have_is_not_told_as_another() {
        let refused = for_backend(&HeaderMap::new(), &User::new("a\nb", [""; 0]), None, &[]).unwrap_err();
        assert_eq!(refused.code, 500);
    }
}
