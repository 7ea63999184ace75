//! Backends that do what they should not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, header};
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use serde_json::json;
use setpoint_apiserver::pki::{self, CertificateAuthority};
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, FrontProxy, User};
use setpoint_env::{Env, Task};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::backend::{Answer, Backend, Setup, front_proxy, full};
use super::documents::{AGGREGATED, discovered, eventually};
use super::{FLUNDERS, SERVICES, api_service, becomes, with_backend};
use crate::support::Api;

/// How a backend says what it says.
#[derive(Clone, Copy)]
enum Manner {
    Once,
    /// Again and again.
    Endless,
    /// Byte by byte, again and again.
    Slow,
}

/// A backend that answers its discovery as it should, and everything else with these bytes.
async fn raw(answer: impl Into<Bytes>, manner: Manner) -> (Api, Task<()>) {
    let answer: Bytes = answer.into();
    let (_, identity) = front_proxy();
    let env = Env::system();
    let ca = CertificateAuthority::generate(&env).unwrap();
    let tls = pki::server_config(&env, &ca.issue_server(["api.wardle.svc"]).unwrap(), &[]).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = env.spawn(async move {
        let mut connections = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            connections.push(Env::system().spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = Vec::new();
                while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                    if !matches!(stream.read_buf(&mut head).await, Ok(1..)) {
                        return;
                    }
                }
                if head.starts_with(b"GET /apis/wardle.example.com/v1 ") {
                    let list = json!({"resources": []}).to_string();
                    let good = format!(
                        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{list}",
                        list.len()
                    );
                    let _ = stream.write_all(good.as_bytes()).await;
                    let _ = stream.shutdown().await;
                    return;
                }
                loop {
                    let written = match manner {
                        Manner::Once | Manner::Endless => stream.write_all(&answer).await,
                        Manner::Slow => drip(&mut stream, &answer).await,
                    };
                    if written.is_err() {
                        return;
                    }
                    if matches!(manner, Manner::Once) {
                        break;
                    }
                }
                // It neither says more nor hangs up.
                let _ = stream.read(&mut [0; 1]).await;
                std::future::pending::<()>().await;
            }));
        }
    });
    let server = ApiServer::builder()
        .env(Env::seeded(1))
        .proxy_client(identity)
        .service_address("wardle", "api", None, address)
        .build();
    let api = Api::with(server);
    api.post(SERVICES, &api_service(ca.certificate_pem())).await.ok();
    becomes(&api, "Passed").await;
    (api, serving)
}

async fn drip(stream: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test]
async fn garbage_is_no_answer() {
    for garbage in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"HTTP/1.1 two OK\r\n\r\n", b"\0\0\0\0\0\0\0\0\r\n\r\n"]
    {
        let (api, _serving) = raw(garbage, Manner::Once).await;
        let answer = api.get(FLUNDERS).await;
        assert_eq!(answer.code, 503);
        assert!(
            answer.body.as_str().unwrap().starts_with("error trying to reach service: "),
            "{}",
            answer.body
        );
        assert_eq!(api.get("/api/v1/namespaces/default").await.code, 200);
    }
}

#[tokio::test]
async fn no_answer_takes_no_longer_than_the_request_may() {
    let (api, _serving) = raw(&b""[..], Manner::Once).await;
    let begun = tokio::time::Instant::now();
    let answer = api.get(&format!("{FLUNDERS}?timeout=1s")).await;
    assert_eq!((answer.code, answer.reason()), (504, "Timeout"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn headers_without_end_are_cut_off() {
    let (api, _serving) = raw(
        &b"HTTP/1.1 200 OK\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"[..],
        Manner::Endless,
    )
    .await;
    let answer = api.get(FLUNDERS).await;
    assert_eq!(answer.code, 503);
    assert!(answer.body.as_str().unwrap().starts_with("error trying to reach service: "), "{}", answer.body);
}

#[tokio::test]
async fn a_body_without_end_ends_with_the_time_of_the_request() {
    let setup = Setup::answering(|_| {
        let piece = || Ok(http_body::Frame::data(bytes::Bytes::from_static(&[b'x'; 1024])));
        let endless = futures::stream::unfold((), move |()| async move {
            tokio::task::yield_now().await;
            Some((piece(), ()))
        });
        let body = BodyExt::boxed_unsync(StreamBody::new(endless));
        Ok(Box::pin(std::future::ready(Response::new(body))))
    });
    let (api, _backend) = with_backend(setup).await;
    let request = http::Request::get(format!("{FLUNDERS}?timeout=1s")).body(Default::default()).unwrap();
    let mut body = api.send(request).await.into_body();
    let begun = tokio::time::Instant::now();
    let broken = loop {
        if let Err(error) = body.frame().await.expect("it does not end by itself") {
            break error;
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    };
    assert_eq!(broken.kind(), std::io::ErrorKind::TimedOut);
}

/// A body that never ends, which notes how much of it was taken.
struct Endless {
    taken: usize,
    all: Arc<Mutex<Vec<usize>>>,
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.all.lock().push(self.taken);
    }
}

/// A JSON document that begins like this, and goes on with the same item for ever.
fn endless(media: &'static str, begin: &'static str, item: &str, all: &Arc<Mutex<Vec<usize>>>) -> Answer {
    let piece = Bytes::from(item.repeat(16 * 1024 / item.len()));
    let body = Endless { taken: 0, all: Arc::clone(all) };
    let stream = futures::stream::unfold(body, move |mut body| {
        let piece = if body.taken == 0 { Bytes::from_static(begin.as_bytes()) } else { piece.clone() };
        async move {
            tokio::task::yield_now().await;
            body.taken += piece.len();
            Some((Ok(http_body::Frame::data(piece)), body))
        }
    });
    let body = BodyExt::boxed_unsync(StreamBody::new(stream));
    Response::builder().header(header::CONTENT_TYPE, media).body(body).unwrap()
}

#[tokio::test]
async fn documents_without_end_are_read_so_far_and_no_further() {
    const JSON: &str = "application/json";
    const SCHEMAS: &str = "/openapi/v3/apis/wardle.example.com/v1";
    // Sockets have buffers.
    const ROOM: usize = 16 << 20;
    for (path, media, begin, item, most, is_known) in [
        ("/apis", AGGREGATED, r#"{"items":[{}"#, ",{}", 3 << 20, false),
        (
            "/apis/wardle.example.com/v1",
            JSON,
            r#"{"resources":[{"name":"a"}"#,
            r#",{"name":"a"}"#,
            3 << 20,
            false,
        ),
        ("/openapi/v3", JSON, r#"{"paths":{"a":{}"#, r#","a":{}"#, 1 << 20, true),
        (SCHEMAS, JSON, r#"{"paths":{},"x":[0"#, ",0", 16 << 20, true),
    ] {
        let all: Arc<Mutex<Vec<usize>>> = Arc::default();
        let taken = Arc::clone(&all);
        let setup = Setup {
            is_new: path == "/apis",
            instead: Arc::new(move |asked: &str| {
                (asked == path).then(|| endless(media, begin, item, &taken))
            }),
            ..Setup::default()
        };
        let (api, _backend) = with_backend(setup).await;
        // Whether it answers is seen at the head of the answer alone: those bodies are let go at once.
        let read = async {
            while !all.lock().iter().any(|taken| *taken >= most) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("it is let go");
        let taken = all.lock().iter().copied().max().unwrap_or(0);
        assert!(taken < most + ROOM, "{path}: {taken} bytes were taken");
        let freshness = if is_known { "Current" } else { "Stale" };
        eventually(&api, async |api| discovered(api).await["versions"][0]["freshness"] == freshness).await;
        is_served(&api).await;
        assert_eq!(api.get(FLUNDERS).await.code, 200, "{path}");
    }
}

#[tokio::test]
async fn a_redirect_leads_nobody_away() {
    let setup = Setup::answering(|_| {
        let answer = Response::builder().status(307).header(header::LOCATION, "https://evil.example/");
        Ok(Box::pin(std::future::ready(answer.body(full("go there")).unwrap())))
    });
    let (api, _backend) = with_backend(setup).await;
    let answer = api.get(FLUNDERS).await;
    assert_eq!(answer.code, 502);
    assert_eq!(answer.body, "the backend attempted to redirect this request, which is not permitted");
    assert!(!answer.headers.contains_key(header::LOCATION));
}

#[tokio::test]
async fn a_switch_of_protocols_that_nobody_asked_for_is_no_answer() {
    let (api, _serving) = raw(
        &b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"[..],
        Manner::Once,
    )
    .await;
    assert_eq!(api.get(FLUNDERS).await.code, 503);
}

#[tokio::test]
async fn another_hosts_certificate_is_not_taken() {
    let (authority, identity) = front_proxy();
    let backend = Backend::start(&authority, Setup { host: "other.wardle.svc", ..Setup::default() }).await;
    let server = ApiServer::builder()
        .env(Env::seeded(1))
        .proxy_client(identity)
        .service_address("wardle", "api", None, backend.address)
        .build();
    let api = Api::with(server);
    api.post(SERVICES, &api_service(&backend.bundle)).await.ok();
    let message = becomes(&api, "FailedDiscoveryCheck").await;
    let why = "tls: failed to verify certificate: x509: certificate is valid for kubernetes, ";
    assert!(message.contains(why), "{message}");
    assert!(
        message.ends_with("localhost, other.wardle.svc, not api.wardle.svc"),
        "names, and no addresses: {message}"
    );
    // Whatever somebody writes into the condition, nobody is talked to.
    let claimed = json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Passed",
        "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    api.merge(&format!("{SERVICES}/v1.wardle.example.com/status"), &claimed).await.ok();
    assert_eq!(api.get(FLUNDERS).await.code, 503);
    assert_eq!(backend.count(), 0);
}

/// Whether others are served while somebody waits for a backend.
async fn is_served(api: &Api) {
    let others = tokio::time::timeout(Duration::from_secs(5), api.get("/api/v1/namespaces/default")).await;
    assert_eq!(others.expect("others do not wait").code, 200);
}

#[tokio::test]
async fn more_headers_than_anybody_needs_are_no_answer() {
    let mut head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n".to_owned();
    for number in 0..5_000 {
        head.push_str(&format!("x-{number}: y\r\n"));
    }
    let (api, _serving) = raw(head + "\r\n", Manner::Once).await;
    assert_eq!(api.get(FLUNDERS).await.code, 503);
    is_served(&api).await;
}

#[tokio::test]
async fn a_head_that_drips_takes_no_longer_than_the_request_may() {
    let (api, _serving) = raw(&b"HTTP/1.1 200 OK\r\nx: yyyyyyyyyyyyyyyyyyyy"[..], Manner::Slow).await;
    let begun = tokio::time::Instant::now();
    for path in [format!("{FLUNDERS}?timeout=1s"), format!("{FLUNDERS}?timeout=1s&watch=1")] {
        assert_eq!(api.get(&path).await.code, 504);
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn interim_answers_without_end_are_no_answer() {
    let (api, _serving) = raw(&b"HTTP/1.1 100 Continue\r\n\r\n"[..], Manner::Endless).await;
    let path = format!("{FLUNDERS}?timeout=2s");
    let (answer, ()) = tokio::join!(api.get(&path), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        is_served(&api).await;
    });
    assert!(matches!(answer.code, 503 | 504), "{}", answer.body);
}

#[tokio::test]
async fn a_path_leads_nowhere_else_however_it_is_written() {
    let (api, backend) = with_backend(Setup::default()).await;
    let asked = backend.count();
    for path in [
        "/apis/wardle.example.com/v1/namespaces/default/flunders/%2e%2e",
        "/apis/wardle.example.com/v1/namespaces/default/flunders/%2E%2E/%2e%2e/secrets",
        "/apis/wardle.example.com/v1/namespaces/default/flunders/..%2f..",
        "/apis/wardle.example.com/v1/namespaces/%2e/flunders",
        "/apis/wardle.example.com/v1/../../../api/v1/secrets",
        "/apis/wardle.example.com/v1/flunders/a%2fb",
        "/apis/wardle.example.com/v1/flunders/%ff",
    ] {
        assert_eq!(api.get(path).await.code, 404, "{path}");
    }
    assert_eq!(backend.count(), asked, "none of them got there");
    // What is encoded twice is a name, and stays one. So do other tricks.
    for (name, sent) in [
        ("%252e%252e", "%252e%252e"),
        ("a%3fwatch=1", "a%3Fwatch=1"),
        ("a%23b", "a%23b"),
        ("..%3b", "..;"),
        ("a%0d%0ax-remote-user:%20root", "a%0D%0Ax-remote-user:%20root"),
        ("a%5cb", "a%5Cb"),
    ] {
        let answer = api.get(&format!("{FLUNDERS}/{name}")).await;
        assert_eq!(
            (answer.code, &answer.body["path"]),
            (200, &json!(format!("{FLUNDERS}/{sent}"))),
            "{name}"
        );
        assert_eq!(answer.body["headers"]["x-remote-user"], json!(["kubernetes-admin"]));
    }
}

#[tokio::test]
async fn what_a_client_says_after_its_body_does_not_go_on() {
    let setup = Setup::answering(|request| {
        Ok(Box::pin(async move {
            let head = format!("{:?}", request.headers());
            let body = request.into_body().collect().await.unwrap();
            let trailers = body.trailers().cloned().unwrap_or_default();
            Response::new(full(json!({"trailers": trailers.len(), "head": head}).to_string()))
        }))
    });
    let (api, _backend) = with_backend(setup).await;
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-remote-user", "root".parse().unwrap());
    let frames = [
        Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from("{}"))),
        Ok(http_body::Frame::trailers(trailers)),
    ];
    let request = http::Request::post(FLUNDERS)
        .header("trailer", "x-remote-user")
        .header("te", "trailers")
        .body(StreamBody::new(futures::stream::iter(frames)))
        .unwrap();
    let response = tower::ServiceExt::oneshot(api.server.as_user(User::admin()), request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let seen: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(seen["trailers"], 0);
    assert!(!seen["head"].as_str().unwrap().contains("root"), "{seen}");
}

#[tokio::test]
async fn nobody_speaks_http_inside_of_an_upgraded_connection() {
    let (api, backend) = with_backend(Setup::default()).await;
    let asked = backend.count();
    for protocol in ["h2c", "websocket, H2C", "HTTP/2.0", "TLS/1.3"] {
        let request = http::Request::get(format!("{FLUNDERS}/one/exec"))
            .header("connection", "Upgrade, HTTP2-Settings")
            .header("upgrade", protocol)
            .header("http2-settings", "AAMAAABkAAQAAP__")
            .body(Default::default())
            .unwrap();
        assert_eq!(api.answer(request).await.code, 400, "{protocol}");
    }
    assert_eq!(backend.count(), asked, "none of them got there");
}

#[tokio::test]
async fn a_client_takes_no_header_away_that_says_who_it_is() {
    let (api, _backend) = with_backend(Setup::default()).await;
    let jane = Api::as_user(api.server.clone(), User::new("jane", ["system:masters"]));
    let request = http::Request::get(FLUNDERS)
        .header("connection", "X-Remote-User, X-Remote-Group, X-Forwarded-For, close")
        .header("connection", "x_remote_user")
        .header("x_remote_user", "root")
        .header("X-Remote-Extra-%53copes", "all")
        .body(Default::default())
        .unwrap();
    let headers = jane.answer(request).await.ok()["headers"].clone();
    assert_eq!(headers["x-remote-user"], json!(["jane"]));
    assert_eq!(headers["x-remote-group"], json!(["system:masters", "system:authenticated"]));
    let names: Vec<&String> = headers.as_object().unwrap().keys().collect();
    assert!(!names.iter().any(|name| name.contains("extra") || name.contains('_')), "{names:?}");
}

#[tokio::test]
async fn a_name_that_would_be_read_as_another_is_told_to_nobody() {
    let (api, backend) = with_backend(Setup::default()).await;
    let asked = backend.count();
    for user in [
        User::new("root ", ["system:masters"]),
        User::new("jane", ["system:masters", " kube-system"]),
        User::new("jane", ["system:masters", "x\r\nx-remote-group: y"]),
    ] {
        let disguised = Api::as_user(api.server.clone(), user);
        assert_eq!(disguised.get(FLUNDERS).await.code, 500);
    }
    assert_eq!(backend.count(), asked, "none of them got there");
}

#[tokio::test]
async fn what_is_allowed_here_is_not_taken_for_more_there() {
    let (api, backend) = with_backend(Setup::default()).await;
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": ["wardle.example.com"], "resources": ["flunders"], "verbs": ["list"]}]});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.ok();
    let binding = json!({"metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.ok();
    let bob = Api::as_user(api.server.clone(), User::new("bob", ["people"]));
    let asked = backend.count();
    // All of these are watches to a server that is written in Go.
    for query in ["watch=no", "watch=", "watch", "watch=off", "watch=1&watch=0", "%77atch=n"] {
        assert_eq!(bob.get(&format!("{FLUNDERS}?{query}")).await.code, 403, "{query}");
    }
    for method in ["CONNECT", "TRACE"] {
        assert_eq!(api.call(method, FLUNDERS, "text/plain", "").await.code, 405, "{method}");
    }
    assert_eq!(backend.count(), asked, "none of them got there");
    for query in ["watch=0&watch=1", "watch=False", "x=watch"] {
        assert_eq!(bob.get(&format!("{FLUNDERS}?{query}")).await.code, 200, "{query}");
    }
}

#[tokio::test]
async fn an_answer_with_two_lengths_is_as_long_as_its_pieces() {
    let (api, _serving) = raw(
        &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\
           access-control-allow-origin: *\r\n\r\n8\r\nabcdefgh\r\n0\r\n\r\n"[..],
        Manner::Once,
    )
    .await;
    let answer = api.get(FLUNDERS).await;
    assert_eq!((answer.code, &answer.body), (200, &json!("abcdefgh")));
    for gone in ["content-length", "access-control-allow-origin"] {
        assert!(!answer.headers.contains_key(gone), "{gone}");
    }
}

/// A server that hands on to itself, and believes what it says of its users.
#[tokio::test]
async fn a_way_that_leads_back_here_ends() {
    let env = Env::system();
    let (authority, identity) = front_proxy();
    let ca = CertificateAuthority::generate(&env).unwrap();
    let both = [ca.certificate_der().clone(), authority.certificate_der().clone()];
    let tls = pki::server_config(&env, &ca.issue_server(["api.wardle.svc"]).unwrap(), &both).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FrontProxy::usual(vec![authority.certificate_der().clone()]);
    let server = ApiServer::builder()
        .env(env.clone())
        .proxy_client(identity)
        .client_authorities(vec![ca.certificate_der().clone()])
        .front_proxy(proxy)
        .service_address("wardle", "api", None, listener.local_addr().unwrap())
        .build();
    let own = server.clone();
    let _serving = env.spawn(async move { own.serve(listener, tls, CancellationToken::new()).await });
    let api = Api::with(server);
    api.post(SERVICES, &api_service(ca.certificate_pem())).await.ok();
    let message = becomes(&api, "FailedDiscoveryCheck").await;
    assert!(message.ends_with(": 503"), "it got there, and nobody answers: {message}");
    // Even when somebody says that it is well.
    let claimed = json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Rumour",
        "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    for _ in 0..3 {
        api.merge(&format!("{SERVICES}/v1.wardle.example.com/status"), &claimed).await.ok();
        let begun = tokio::time::Instant::now();
        let (answer, ()) = tokio::join!(api.get(FLUNDERS), is_served(&api));
        assert_eq!(answer.code, 503, "{}", answer.body);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    becomes(&api, "FailedDiscoveryCheck").await;
}

#[tokio::test]
async fn one_backend_that_answers_nobody_does_not_keep_others_waiting() {
    let (api, _serving) = raw(&b""[..], Manner::Once).await;
    let waiting: Vec<_> = (0..400)
        .map(|_| {
            let (server, path) = (api.server.clone(), format!("{FLUNDERS}?timeout=8s"));
            Env::system().spawn(async move { Api::with(server).get(&path).await.code })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for _ in 0..300 {
        is_served(&api).await;
    }
    let codes = futures::future::join_all(waiting).await;
    let crowded = codes.iter().filter(|code| matches!(code, Ok(503))).count();
    assert!(crowded >= 200, "it takes so many, and no more: {crowded}");
}
