//! Faults of watches.

use std::io::ErrorKind;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Error, ResourceExt};
use setpoint_sim::{Effect, Match, Refusal, What};
use tokio::time::Instant;

use crate::requests::io_kind;
use crate::scripted::{Scripted, line};

/// Names of the objects in the events, and how the watch ended.
async fn read(api: &Api<ConfigMap>) -> (Vec<String>, Result<(), Error>) {
    let mut names = Vec::new();
    let mut events = match api.watch(&WatchParams::default(), "1").await {
        Ok(events) => events.boxed(),
        Err(error) => return (names, Err(error)),
    };
    loop {
        match events.try_next().await {
            Ok(Some(WatchEvent::Modified(object))) => names.push(object.name_any()),
            Ok(Some(WatchEvent::Error(status))) => names.push(format!("{} {}", status.code, status.reason)),
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => return (names, Ok(())),
            Err(error) => return (names, Err(error)),
        }
    }
}

/// The bytes of a watch until it ends or breaks.
async fn read_bytes(api: &Api<ConfigMap>) -> (String, bool) {
    let uri = "/api/v1/configmaps?watch=true&resourceVersion=1";
    let request = http::Request::get(uri).body(kube::client::Body::empty()).unwrap();
    let mut body = api.clone().into_client().send(request).await.unwrap().into_body();
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
            Err(_) => return (text, false),
        }
    }
    (text, true)
}

/// Sends a, b, c at one, two and three seconds, and ends at four.
async fn abc(server: &Scripted) {
    for name in ["a", "b", "c"] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.event(name);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.end();
}

fn broke(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::ReadEvents(_)))
}

#[tokio::test(start_paused = true)]
async fn without_rules_a_watch_passes_as_it_comes() {
    let (server, faults, api) = Scripted::start();
    let before = Instant::now();
    let ((names, end), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!(names, ["a", "b", "c"]);
    end.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(4));
    let trace = faults.trace();
    let events = trace.entries().iter().filter(|entry| matches!(entry.what, What::Event { .. }));
    let times: Vec<_> = events.map(|entry| entry.at.as_secs()).collect();
    assert_eq!(times, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_comes_right_after_its_event() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).cut_after_events(2);
    let ((names, end), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!(names, ["a", "b"]);
    assert!(broke(end));
    let fired = faults.fired();
    assert_eq!(fired[0].at, Duration::from_secs(2), "the third event was not waited for");
    assert_eq!(fired[0].to_string(), "cut WATCH configmaps/default after 2 events");
}

#[tokio::test(start_paused = true)]
async fn a_cut_inside_an_event_leaves_half_a_line() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).cut_inside_event(1);
    let ((text, clean), ()) = tokio::join!(read_bytes(&api), abc(&server));
    let (whole, half) = (line("a"), line("b"));
    assert_eq!(text, format!("{whole}{}", &half[..half.len() / 2]));
    assert!(!clean);
}

/// The seconds at which the client was given events.
fn seconds(faults: &setpoint_sim::Faults) -> Vec<u64> {
    let trace = faults.trace();
    let events = trace.entries().iter().filter(|entry| matches!(entry.what, What::Event { .. }));
    events.map(|entry| entry.at.as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_gives_an_event_when_so_many_others_have_come_and_loses_none() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).inject(Effect::LagAfterEvents(1, 1));
    let ((names, end), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!(names, ["a", "b", "c"]);
    end.unwrap();
    assert_eq!(seconds(&faults), [1, 3, 4], "b comes with c, and c with the end");
    assert_eq!(faults.fired()[0].to_string(), "held WATCH configmaps/default back by 1 event after 1 event");
}

#[tokio::test(start_paused = true)]
async fn what_lags_comes_at_once_when_all_faults_end() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).inject(Effect::LagAfterEvents(0, 5));
    let heal = async {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        faults.heal();
    };
    let ((names, end), (), ()) = tokio::join!(read(&api), abc(&server), heal);
    assert_eq!(names, ["a", "b", "c"]);
    end.unwrap();
    assert_eq!(seconds(&faults), [2, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_end_in_good_order() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).end_after_events(1);
    let ((names, end), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!(names, ["a"]);
    end.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_event_is_the_last_one() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).error_after_events(1, Refusal::Expired);
    let ((names, end), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!(names, ["a", "410 Expired"]);
    end.unwrap();
    let prose = "sent an ERROR event 410 Expired into WATCH configmaps/default after 1 event";
    assert_eq!(faults.fired()[0].to_string(), prose);
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_be_answered_410_at_its_start() {
    let (_server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).refuse(Refusal::Expired);
    let (names, end) = read(&api).await;
    assert!(names.is_empty());
    let Err(Error::Api(status)) = end else { panic!("{end:?}") };
    assert_eq!((status.code, status.message.as_str()), (410, "too old resource version: 1"));
}

#[tokio::test(start_paused = true)]
async fn inserted_bytes_appear_between_events_and_the_watch_goes_on() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).insert_after_events(1, "<html>\n").always();
    let ((text, clean), ()) = tokio::join!(read_bytes(&api), abc(&server));
    assert_eq!(text, format!("{}<html>\n{}{}", line("a"), line("b"), line("c")));
    assert!(clean);
}

#[tokio::test(start_paused = true)]
async fn delayed_events_keep_their_order_and_distance() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).delay_events(Duration::from_secs(10));
    let ((names, end), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!(names, ["a", "b", "c"]);
    end.unwrap();
    let trace = faults.trace();
    let times: Vec<_> = trace
        .entries()
        .iter()
        .filter(|entry| matches!(entry.what, What::Event { .. } | What::Ended))
        .map(|entry| entry.at.as_secs())
        .collect();
    assert_eq!(times, [11, 12, 13, 14]);
    assert_eq!(faults.fired().len(), 1, "once for a stream, not for each event");
}

#[tokio::test(start_paused = true)]
async fn healing_stops_a_delay_and_no_event_overtakes_another() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).delay_events(Duration::from_secs(10));
    let ((names, _end), (), ()) = tokio::join!(read(&api), abc(&server), async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        faults.heal();
    });
    assert_eq!(names, ["a", "b", "c"]);
    let trace = faults.trace();
    let events = trace.entries().iter().filter(|entry| matches!(entry.what, What::Event { .. }));
    let times: Vec<_> = events.map(|entry| entry.at.as_secs()).collect();
    assert_eq!(times, [11, 11, 11]);
}

#[tokio::test(start_paused = true)]
async fn a_held_watch_is_silent_until_released_and_loses_nothing() {
    let (server, faults, api) = Scripted::start();
    let hold = faults.on(Match::watch("configmaps")).hold_after_events(1);
    let ((names, end), (), ()) = tokio::join!(read(&api), abc(&server), async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(hold.fired(), 1);
        hold.release();
    });
    assert_eq!(names, ["a", "b", "c"]);
    end.unwrap();
    let trace = faults.trace();
    let events = trace.entries().iter().filter(|entry| matches!(entry.what, What::Event { .. }));
    let times: Vec<_> = events.map(|entry| entry.at.as_secs()).collect();
    assert_eq!(times, [1, 100, 100]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_meets_every_watch_until_it_is_released() {
    let (server, faults, api) = Scripted::start();
    let hold = faults.on(Match::watch("configmaps")).hold();
    let ((first, _), (second, _), (), ()) = tokio::join!(read(&api), read(&api), abc(&server), async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(hold.fired(), 2);
        hold.release();
    });
    assert_eq!((first.len(), second.len()), (3, 3));
    let ((third, _), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!((third.len(), hold.fired()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn two_watches_share_the_shots_of_one_rule() {
    let (server, faults, api) = Scripted::start();
    let cut = faults.on(Match::watch("configmaps")).cut_after_events(1);
    let ((first, first_end), (second, second_end), ()) = tokio::join!(read(&api), read(&api), abc(&server));
    assert_eq!(first.len() + second.len(), 1 + 3);
    assert_ne!(broke(first_end), broke(second_end));
    assert_eq!(cut.fired(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rule_whose_event_never_came_has_not_fired() {
    let (server, faults, api) = Scripted::start();
    let cut = faults.on(Match::watch("configmaps")).cut_after_events(9);
    let ((names, _), ()) = tokio::join!(read(&api), abc(&server));
    assert_eq!((names.len(), cut.fired()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_breaks_every_watch_also_a_held_one() {
    let (server, faults, api) = Scripted::start();
    let behind = server.client(&faults, "behind");
    faults.on(Match::watch("configmaps").client("behind")).hold();
    let ((held, held_end), (open, open_end), (), ()) =
        tokio::join!(read(&behind), read(&api), abc(&server), async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            faults.stop_server();
        });
    assert!(held.is_empty());
    assert_eq!(open, ["a", "b"]);
    assert!(broke(held_end) && broke(open_end));
    let (_, refused) = read(&api).await;
    assert_eq!(io_kind(&refused.unwrap_err()), ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn events_are_counted_however_they_were_cut_into_frames() {
    let (server, faults, api) = Scripted::start();
    faults.on(Match::watch("configmaps")).cut_after_events(2);
    let all = format!("{}{}{}", line("a"), line("b"), line("c"));
    let ((text, _), ()) = tokio::join!(read_bytes(&api), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.send(&all[..30]);
        server.send(&all[30..]);
    });
    assert_eq!(text, format!("{}{}", line("a"), line("b")));
}

#[tokio::test(start_paused = true)]
async fn a_released_rule_leaves_alone_the_watches_that_it_has_met_already() {
    let (server, faults, api) = Scripted::start();
    let cut = faults.on(Match::watch("configmaps")).cut_after_events(2);
    let ((names, end), (), ()) = tokio::join!(read(&api), abc(&server), async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        cut.release();
    });
    assert_eq!(names, ["a", "b", "c"]);
    end.unwrap();
    assert_eq!(cut.fired(), 0);
}
