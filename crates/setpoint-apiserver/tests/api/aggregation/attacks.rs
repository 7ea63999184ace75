//! Backends that do what they should not.

use std::time::Duration;

use http::{Response, header};
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::pki::{self, CertificateAuthority};
use setpoint_env::{Env, Task};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::backend::{Backend, Setup, front_proxy, full};
use super::{FLUNDERS, SERVICES, api_service, becomes, with_backend};
use crate::support::Api;

/// A backend that answers its discovery as it should, and everything else with these bytes, again and again if so asked.
async fn raw(answer: &'static [u8], is_endless: bool) -> (Api, Task<()>) {
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
            let acceptor = acceptor.clone();
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
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                    if !is_endless {
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

#[tokio::test]
async fn garbage_is_no_answer() {
    for garbage in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"HTTP/1.1 two OK\r\n\r\n", b"\0\0\0\0\0\0\0\0\r\n\r\n"]
    {
        let (api, _serving) = raw(garbage, false).await;
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
    let (api, _serving) = raw(b"", false).await;
    let begun = tokio::time::Instant::now();
    let answer = api.get(&format!("{FLUNDERS}?timeout=1s")).await;
    assert_eq!((answer.code, answer.reason()), (504, "Timeout"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn headers_without_end_are_cut_off() {
    let (api, _serving) =
        raw(b"HTTP/1.1 200 OK\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", true).await;
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
    let (api, _serving) =
        raw(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", false).await;
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
    assert!(message.contains("api.wardle.svc"), "{message}");
    // Whatever somebody writes into the condition, nobody is talked to.
    let claimed = json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Passed",
        "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    api.merge(&format!("{SERVICES}/v1.wardle.example.com/status"), &claimed).await.ok();
    assert_eq!(api.get(FLUNDERS).await.code, 503);
    assert_eq!(backend.count(), 0);
}
