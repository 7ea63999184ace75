//! Faults of single requests.

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use kube::Error;
use kube::api::{DeleteParams, ListParams, PostParams};
use setpoint_sim::{Effect, Match, Refusal, What};
use tokio::time::Instant;

use crate::scripted::{Scripted, config_map};

/// The operating system's error below a failed request.
pub(crate) fn io_kind(error: &Error) -> ErrorKind {
    assert!(matches!(error, Error::Service(_)), "{error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind();
        }
        cause = error.source();
    }
    panic!("no io::Error below {error:?}");
}

#[tokio::test(start_paused = true)]
async fn without_rules_requests_pass_and_no_time_passes() {
    let (server, faults, api) = Scripted::start();
    let before = Instant::now();
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert_eq!(server.committed(), ["POST /api/v1/namespaces/default/configmaps"]);
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(faults.fired().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_reaches_the_server_late() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::create("configmaps")).delay_request(Duration::from_secs(2));
    let create = async { api.create(&PostParams::default(), &config_map("a")).await };
    tokio::pin!(create);
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut create).await.is_err());
    assert!(server.committed().is_empty());
    create.await.unwrap();
    assert_eq!(server.committed().len(), 1);
    assert_eq!(
        faults.fired()[0].to_string(),
        "delayed POST configmaps/default/a by 2s on its way to the server"
    );
}

#[tokio::test(start_paused = true)]
async fn a_delayed_response_comes_after_the_server_has_acted() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::create("configmaps")).delay_response(Duration::from_secs(2));
    let create = async { api.create(&PostParams::default(), &config_map("a")).await };
    tokio::pin!(create);
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut create).await.is_err());
    assert_eq!(server.committed().len(), 1);
    create.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_commits_nothing_and_looks_like_one() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::any()).refuse_connection();
    let error = api.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    assert_eq!(io_kind(&error), ErrorKind::ConnectionRefused);
    assert!(server.committed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_and_a_lost_response_look_the_same_but_only_one_is_committed() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::create("configmaps").nth(1)).drop_request();
    faults.on(Match::create("configmaps").nth(2)).lose_response();
    let dropped = api.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    assert_eq!(server.committed().len(), 0);
    let lost = api.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    assert_eq!(server.committed().len(), 1);
    assert_eq!((io_kind(&dropped), dropped.to_string()), (io_kind(&lost), lost.to_string()));
    assert_eq!(io_kind(&lost), ErrorKind::ConnectionReset);
    let prose: Vec<_> = faults.fired().iter().map(ToString::to_string).collect();
    assert_eq!(
        prose,
        [
            "dropped POST configmaps/default/a before it reached the server",
            "lost the response of POST configmaps/default/a after it was committed",
        ]
    );
    faults.assert_all_fired();
}

#[tokio::test(start_paused = true)]
async fn a_bad_gateway_hides_that_the_write_is_committed() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::writes()).bad_gateway();
    let error = api.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 502), "{error:?}");
    assert_eq!(server.committed().len(), 1);
    let told = "answered POST configmaps/default/a with 502 in a proxy's place after it was committed";
    assert_eq!(faults.fired()[0].to_string(), told);
}

#[tokio::test(start_paused = true)]
async fn a_time_out_takes_its_time_and_the_write_is_committed() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::writes()).time_out(Duration::from_secs(30));
    let before = Instant::now();
    let error = api.delete("a", &DeleteParams::default()).await.unwrap_err();
    assert_eq!(io_kind(&error), ErrorKind::TimedOut);
    assert_eq!(before.elapsed(), Duration::from_secs(30));
    assert_eq!(server.committed(), ["DELETE /api/v1/namespaces/default/configmaps/a"]);
}

#[tokio::test(start_paused = true)]
async fn silence_lasts_until_the_client_gives_up_and_the_trace_says_so() {
    let (server, faults, api) = Scripted::start();
    let rule = faults.on(Match::writes()).silence();
    let delete = async { api.delete("a", &DeleteParams::default()).await };
    assert!(tokio::time::timeout(Duration::from_secs(3600), delete).await.is_err());
    assert_eq!((rule.fired(), server.committed().len()), (1, 1));
    assert!(matches!(faults.trace().entries().last().unwrap().what, What::Abandoned));
}

#[tokio::test(start_paused = true)]
async fn refusals_reach_the_client_as_the_status_that_a_server_would_send() {
    let (server, faults, api) = Scripted::start();
    let busy = Refusal::TooManyRequests { retry_after: Duration::from_millis(1500) };
    let cases = [
        (Refusal::Conflict, 409, "Conflict"),
        (Refusal::Expired, 410, "Expired"),
        (busy, 429, "TooManyRequests"),
        (Refusal::InternalError, 500, "InternalError"),
        (Refusal::ServiceUnavailable, 503, "ServiceUnavailable"),
    ];
    for (refusal, code, reason) in cases {
        faults.on(Match::update("configmaps")).refuse(refusal);
        let error = api.replace("a", &PostParams::default(), &config_map("a")).await.unwrap_err();
        let Error::Api(status) = error else { panic!("{error:?}") };
        assert_eq!((status.code, status.reason.as_str()), (code, reason));
        let details = status.details.unwrap();
        assert_eq!((details.kind.as_str(), details.name.as_str()), ("configmaps", "a"));
        assert_eq!(details.retry_after_seconds, if code == 429 { 2 } else { 0 });
    }
    assert!(server.committed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_carries_a_retry_after_header() {
    let (_server, faults, api) = Scripted::start();
    faults.on(Match::any()).refuse(Refusal::TooManyRequests { retry_after: Duration::from_secs(3) });
    let request = http::Request::get("/api/v1/pods").body(kube::client::Body::empty()).unwrap();
    let response = api.into_client().send(request).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "3");
}

#[tokio::test(start_paused = true)]
async fn any_answer_can_stand_in_for_the_servers() {
    let (_server, faults, api) = Scripted::start();
    faults.on(Match::list("configmaps")).answer(200, "text/html", "<html>log in here</html>");
    let error = api.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, Error::SerdeError(_)), "{error:?}");
    api.list(&ListParams::default()).await.expect("the rule fires once");
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_break_off_in_its_middle() {
    let (_server, faults, api) = Scripted::start();
    faults.on(Match::list("configmaps")).cut_after_bytes(20);
    let error = api.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(io_kind(&error), ErrorKind::ConnectionReset);
    assert_eq!(faults.fired()[0].to_string(), "cut the response of GET configmaps/default after 20 bytes");
}

#[tokio::test(start_paused = true)]
async fn a_rule_hits_only_the_client_the_number_and_the_times_that_it_names() {
    let (server, faults, api) = Scripted::start();
    let other = server.client(&faults, "other");
    let rule = faults.on(Match::get("configmaps").client("other")).drop_request().times(2);
    api.get("a").await.unwrap();
    other.list(&ListParams::default()).await.unwrap();
    other.get("a").await.unwrap_err();
    other.get("a").await.unwrap_err();
    other.get("a").await.unwrap();
    assert_eq!(rule.fired(), 2);
    faults.on(Match::get("configmaps").nth(2)).drop_request();
    api.get("a").await.unwrap();
    api.get("a").await.unwrap_err();
    api.get("a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_rules_add_up_until_one_ends_the_request() {
    let (_server, faults, api) = Scripted::start();
    faults.on(Match::any()).delay_request(Duration::from_secs(1));
    faults.on(Match::any()).delay_request(Duration::from_secs(2));
    faults.on(Match::any()).refuse(Refusal::InternalError);
    let unreached = faults.on(Match::any()).drop_request();
    let before = Instant::now();
    assert!(matches!(api.get("a").await.unwrap_err(), Error::Api(_)));
    assert_eq!((before.elapsed(), unreached.fired()), (Duration::from_secs(3), 0));
    assert_eq!(io_kind(&api.get("a").await.unwrap_err()), ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_test_can_wait_for_a_fault() {
    let (_server, faults, api) = Scripted::start();
    let rule = faults.on(Match::any()).delay_request(Duration::from_secs(5)).times(2);
    let (_, waited) = tokio::join!(
        async {
            api.get("a").await.unwrap();
            api.get("a").await.unwrap();
        },
        async {
            rule.wait_fired(2).await;
            faults.fired()[1].at
        }
    );
    assert_eq!(waited, Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "on delete configmaps: DropRequest: fired 0 of 1 times, met 0 requests")]
async fn a_rule_that_never_fired_is_reported() {
    let (_server, faults, api) = Scripted::start();
    faults.on(Match::get("configmaps")).drop_request();
    faults.on(Match::delete("configmaps")).drop_request();
    let _dropped = api.get("a").await;
    faults.assert_all_fired();
}

#[tokio::test(start_paused = true)]
async fn healing_ends_all_rules() {
    let (_server, faults, api) = Scripted::start();
    faults.on(Match::any()).inject(Effect::DropRequest).always();
    for _ in 0..3 {
        api.get("a").await.unwrap_err();
    }
    faults.heal();
    api.get("a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_refuses_and_resets_what_is_under_way() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::get("configmaps")).delay_response(Duration::from_secs(60));
    let (under_way, ()) = tokio::join!(api.get("a"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        faults.stop_server();
    });
    assert_eq!(io_kind(&under_way.unwrap_err()), ErrorKind::ConnectionReset);
    assert_eq!(io_kind(&api.get("a").await.unwrap_err()), ErrorKind::ConnectionRefused);
    faults.start_server();
    api.get("a").await.unwrap();
    assert!(server.committed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_trace_tells_requests_and_answers_with_their_versions() {
    let (_server, faults, api) = Scripted::start();
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let trace = faults.trace();
    let [sent, answered] = trace.entries() else { panic!("{trace}") };
    assert!(matches!(sent.what, What::Sent { .. }));
    assert_eq!(
        (&*sent.client, sent.number, sent.request.path.as_str()),
        ("client", 1, "/api/v1/namespaces/default/configmaps?")
    );
    let What::Answered { status: 200, resource_version: Some(version), .. } = &answered.what else {
        panic!("{trace}")
    };
    assert_eq!(version, "7");
}
