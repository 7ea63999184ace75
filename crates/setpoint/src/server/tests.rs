//! Clients that take a place and do nothing with it.

use bytes::Bytes;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::*;

/// Longer than any limit of the server.
const LONG: Duration = Duration::from_secs(300);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A frame SETTINGS with nothing in it.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// HEADERS of stream 1, which end it: `GET http /`, by the static table of HPACK.
const GET: &[u8] = &[0, 0, 3, 1, 0x05, 0, 0, 0, 1, 0x82, 0x86, 0x84];

/// A server with one place, which answers everything with `size` bytes.
async fn server(size: usize) -> (std::net::SocketAddr, Task<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let env = Env::system();
    let serving = HttpServer::new(&env).limits(1, 8).serve(listener, CancellationToken::new(), move |_| {
        std::future::ready(Response::new(Full::new(Bytes::from(vec![b'x'; size]))))
    });
    (address, env.spawn(serving))
}

/// Whether somebody else is answered while a client has said just this; and how much time that took.
async fn others_wait(size: usize, said: &[&[u8]]) -> Duration {
    let (address, _serving) = server(size).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    for said in said {
        silent.write_all(said).await.unwrap();
    }
    let mut other = TcpStream::connect(address).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    // From here on, waiting takes no time.
    tokio::time::pause();
    let begun = Instant::now();
    let mut status = [0; 12];
    let answered = timeout(LONG, other.read_exact(&mut status)).await;
    assert!(answered.is_ok(), "{said:?} keeps its place for ever");
    assert_eq!(&status, b"HTTP/1.1 200");
    drop(silent);
    let time = begun.elapsed();
    tokio::time::resume();
    time
}

#[tokio::test]
async fn a_connection_without_a_request_ends_soon() {
    let limit = HEAD_TIME + Duration::from_secs(1);
    assert!(others_wait(1, &[]).await <= limit, "nothing was said");
    assert!(others_wait(1, &[b"GET / HT"]).await <= limit, "half a head");
    assert!(others_wait(1, &[&PREFACE[..10]]).await <= limit, "half a preface");
    assert!(others_wait(1, &[PREFACE, SETTINGS]).await <= limit, "HTTP/2 without a request");
}

#[tokio::test]
async fn a_connection_that_falls_silent_after_a_request_ends() {
    let first = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert!(others_wait(1, &[first]).await <= 2 * HEAD_TIME);
    let limit = PING_INTERVAL + PING_ANSWER + Duration::from_secs(1);
    assert!(others_wait(1, &[PREFACE, SETTINGS, GET]).await <= limit, "HTTP/2: no answer to a ping");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_dropped() {
    let first = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert!(others_wait(32 << 20, &[first]).await <= STALL + Duration::from_secs(1));
}
