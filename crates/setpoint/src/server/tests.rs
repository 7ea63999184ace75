//! Clients that take a place and do nothing with it.

use bytes::Bytes;
use futures::channel::mpsc;
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

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
    let serving =
        HttpServer::new(&env).limits(1, 8).serve(listener, CancellationToken::new(), answering(size));
    (address, env.spawn(serving))
}

fn answering(
    size: usize,
) -> impl Fn(Request<Incoming>) -> std::future::Ready<Response<Full<Bytes>>> + Clone + Send + Sync {
    move |_| std::future::ready(Response::new(Full::new(Bytes::from(vec![b'x'; size]))))
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
    let limit = LIMITS.head + Duration::from_secs(1);
    assert!(others_wait(1, &[]).await <= limit, "nothing was said");
    assert!(others_wait(1, &[b"GET / HT"]).await <= limit, "half a head");
    assert!(others_wait(1, &[&PREFACE[..10]]).await <= limit, "half a preface");
    assert!(others_wait(1, &[PREFACE, SETTINGS]).await <= limit, "HTTP/2 without a request");
}

#[tokio::test]
async fn a_connection_that_falls_silent_after_a_request_ends() {
    let first = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert!(others_wait(1, &[first]).await <= 2 * LIMITS.head);
    let limit = LIMITS.ping_interval + LIMITS.ping_answer + Duration::from_secs(1);
    assert!(others_wait(1, &[PREFACE, SETTINGS, GET]).await <= limit, "HTTP/2: no answer to a ping");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_dropped() {
    let first = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert!(others_wait(32 << 20, &[first]).await <= LIMITS.stall + Duration::from_secs(1));
}

/// SETTINGS with an initial window of 0: the client never has room.
const NO_WINDOW: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
/// Limits for tests that wait.
const SHORT: Limits = Limits {
    head: Duration::from_millis(300),
    ping_interval: Duration::from_millis(50),
    ping_answer: Duration::from_secs(20),
    stall: Duration::from_millis(400),
    idle: Duration::from_millis(400),
};
/// Longer than all of them, on a machine that has much to do.
const PATIENT: Duration = Duration::from_secs(15);

const DATA: u8 = 0;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// A client of HTTP/2 that says this, and from then on answers pings. Returns the types of the frames that it got.
async fn answers_pings(address: std::net::SocketAddr, said: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&said.concat()).await.unwrap();
    let (mut kinds, mut head) = (Vec::new(), [0; 9]);
    while stream.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        kinds.push(head[3]);
        if head[3] == PING && head[4] == 0 {
            head[4] = 1;
            // It may be closed by now.
            let _closed = stream.write_all(&[&head[..], &payload].concat()).await;
        }
    }
    kinds
}

/// A server with short limits and one place.
async fn hasty<B>(
    answer: impl Fn(Request<Incoming>) -> std::future::Ready<Response<B>> + Clone + Send + Sync + 'static,
) -> (std::net::SocketAddr, Task<()>)
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let env = Env::system();
    let server = HttpServer { limits: SHORT, ..HttpServer::new(&env).limits(1, 8) };
    (address, env.spawn(server.serve(listener, CancellationToken::new(), answer)))
}

#[tokio::test]
async fn a_connection_that_only_answers_pings_is_told_to_go_and_ends() {
    let (address, _serving) = hasty(answering(1)).await;
    let frames = timeout(PATIENT, answers_pings(address, &[PREFACE, SETTINGS, GET])).await;
    let frames = frames.expect("it keeps its place for ever");
    let at = |kind| frames.iter().position(|&other| other == kind);
    assert!(at(DATA).is_some() && at(DATA) < at(PING) && at(PING) < at(GOAWAY), "{frames:?}");
}

#[tokio::test]
async fn an_answer_for_which_the_client_gives_no_room_ends() {
    for (size, settings) in [(1, NO_WINDOW), (1 << 20, SETTINGS)] {
        let (address, _serving) = hasty(answering(size)).await;
        let frames = timeout(PATIENT, answers_pings(address, &[PREFACE, settings, GET])).await;
        let frames = frames.expect("it keeps its place for ever");
        assert!(frames.contains(&PING) && frames.contains(&GOAWAY), "{frames:?}");
    }
}

#[tokio::test]
async fn an_answer_that_has_nothing_to_say_for_some_time_goes_on() {
    let (say, heard) = mpsc::unbounded::<Result<Frame<Bytes>, Infallible>>();
    let heard = Arc::new(parking_lot::Mutex::new(Some(heard)));
    let (address, _serving) = hasty(move |_| {
        let said = heard.lock().take().map(|said| Either::Left(StreamBody::new(said)));
        std::future::ready(Response::new(said.unwrap_or_else(|| Either::Right(Full::default()))))
    })
    .await;
    let talk = async {
        for _ in 0..3 {
            sleep(2 * (SHORT.idle + SHORT.stall + SHORT.head)).await;
            say.unbounded_send(Ok(Frame::data(Bytes::from_static(b"x")))).expect("somebody listens");
        }
        drop(say);
    };
    let told = timeout(2 * PATIENT, answers_pings(address, &[PREFACE, SETTINGS, GET]));
    let ((), frames) = tokio::join!(talk, told);
    let frames = frames.expect("it ends after the answer");
    assert!(frames.iter().filter(|&&kind| kind == DATA).count() >= 3, "{frames:?}");
}
