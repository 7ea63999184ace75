//! Whom a port lets in, while strangers show it what they like and the API server is slow.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use setpoint::Env;
use setpoint::server::Reviewer;
use tokio::time::{Instant, sleep, timeout};

use crate::support::Counter;

/// An API server that knows one token, and may have no time for others.
#[derive(Clone, Default)]
struct Api {
    is_slow: Arc<AtomicBool>,
    asked: Counter,
}

impl Api {
    fn reviewer(&self) -> Arc<Reviewer> {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| api.clone().answer(request));
        let client = Client::new(service, "default");
        Arc::new(Reviewer::new(client, Env::system(), "/metrics"))
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        let mut review: Value = serde_json::from_slice(&body).expect("JSON");
        let is_good = review["spec"]["token"] == "good" || review["spec"]["user"] == "ann";
        if self.is_slow.load(Ordering::Relaxed) && !is_good {
            std::future::pending::<()>().await;
        }
        if is_good {
            self.asked.inc();
        }
        review["status"] = json!({"authenticated": is_good, "allowed": is_good, "user": is_good.then(|| json!({"username": "ann"}))});
        Ok(Response::new(Body::from(review.to_string().into_bytes())))
    }
}

/// Shows many tokens at once that nobody knows. Gives the codes of the answers.
async fn junk(reviewer: &Reviewer, count: usize) -> Vec<StatusCode> {
    let reviews =
        (0..count).map(|n| async move { reviewer.review(&format!("junk-{n}")).await.unwrap_err().0 });
    join_all(reviews).await
}

#[tokio::test(start_paused = true)]
async fn everybody_is_answered_in_time_however_slow_the_api_server_is() {
    let api = Api::default();
    api.is_slow.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    let codes = junk(&api.reviewer(), 100).await;
    assert_eq!(codes, [StatusCode::SERVICE_UNAVAILABLE; 100]);
    assert!(begun.elapsed() <= Duration::from_secs(11), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_good_token_is_remembered_whatever_others_show() {
    let api = Api::default();
    let reviewer = api.reviewer();
    reviewer.review("good").await.unwrap();
    assert_eq!(api.asked.get(), 2, "who it is, and what they may do");
    assert_eq!(junk(&reviewer, 2000).await, [StatusCode::UNAUTHORIZED; 2000]);
    reviewer.review("good").await.unwrap();
    assert_eq!(api.asked.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_good_is_asked_about_again_while_strangers_wait() {
    let api = Api::default();
    let reviewer = api.reviewer();
    reviewer.review("good").await.unwrap();
    sleep(Duration::from_secs(40)).await;
    api.is_slow.store(true, Ordering::Relaxed);
    let strangers = junk(&reviewer, 100);
    let good = async {
        sleep(Duration::from_secs(1)).await;
        timeout(Duration::from_secs(1), reviewer.review("good")).await.expect("its own place").unwrap();
        api.asked.get()
    };
    let (_, asked) = tokio::join!(strangers, good);
    assert_eq!(asked, 4);
}
