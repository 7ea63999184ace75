//! Clients at work on a server with a fault, until the checker notices.

use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};
use http::Request;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use setpoint_env::Env;
use setpoint_history::{History, Load, Promise, Resource, Until, Verdict, check};
use tower::{ServiceExt, service_fn};

use super::faults::{Fault, Mutant};
use crate::{ApiServer, User};

/// How many seeds are tried.
const SEEDS: u64 = 10;

/// Finds the fault, and says after how many operations it was seen.
#[expect(clippy::print_stdout, reason = "how soon a fault is caught is what these tests are read for")]
pub(super) fn hunt(fault: Fault, expected: &[Promise]) {
    let mut before = 0;
    for seed in 0..SEEDS {
        let (history, verdict) = run(fault, seed);
        if verdict.total == 0 {
            before += verdict.operations;
            continue;
        }
        let (operations, first) = first(&history);
        let operations = before + operations;
        println!("{fault:?}: caught after {operations} operations\n{}", first.violations[0]);
        assert!(first.violations.iter().any(|found| expected.contains(&found.promise)), "{first}");
        assert!(first.violations[0].evidence.len() <= 3, "an explanation is short: {first}");
        return;
    }
    panic!("{fault:?} was not caught in {before} operations");
}

/// The shortest beginning of a history that shows the fault: its length, and what was found.
fn first(history: &History) -> (usize, Verdict) {
    let ends = history.ends();
    let is_sound = |end: &u64| check(&history.until(*end)).total == 0;
    let count = ends.partition_point(is_sound);
    // A watch may tell of it after the last operation.
    match ends.get(count) {
        Some(end) => (count + 1, check(&history.until(*end))),
        None => (count, check(history)),
    }
}

/// One run of the load on a server with this fault.
fn run(fault: Fault, seed: u64) -> (History, Verdict) {
    record(fault, fault.resource(), seed)
}

/// One run of the load on these objects.
pub(super) fn record(fault: Fault, resource: Resource, seed: u64) -> (History, Verdict) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let history = runtime.block_on(async {
        let builder = ApiServer::builder().env(Env::seeded(seed));
        let server = builder.start(Box::new(Mutant::new(fault))).await.unwrap();
        let compacted = server.clone();
        let compactions = async move {
            loop {
                tokio::time::sleep(Duration::from_millis(30)).await;
                compacted.compact();
            }
        };
        let load = Load { seed, resource, until: Until::Operations(100), ..Load::default() };
        let run = load.run(|_| client(&server, fault));
        match select(Box::pin(run), Box::pin(compactions)).await {
            Either::Left((history, _)) => history.unwrap(),
            Either::Right(((), _)) => unreachable!("compactions never end"),
        }
    });
    let verdict = check(&history);
    (history, verdict)
}

/// A client, through whatever may be before the server.
fn client(server: &ApiServer, fault: Fault) -> kube::Client {
    let service = server.as_user(User::admin());
    let send = service_fn(move |request: Request<Body>| {
        let service = service.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body: Bytes = body.collect().await?.to_bytes();
            let again = || Request::from_parts(parts.clone(), Full::new(body.clone()));
            // Others get their turn between request and answer.
            tokio::task::yield_now().await;
            if fault == Fault::PatchTwice && parts.method == http::Method::PATCH {
                let _ = service.clone().oneshot(again()).await;
            }
            let answer = service.oneshot(again()).await;
            tokio::task::yield_now().await;
            answer.map_err(tower::BoxError::from)
        }
    });
    kube::Client::new(send, "default")
}
