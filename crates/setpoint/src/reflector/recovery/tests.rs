use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use setpoint_env::Env;

use super::super::Backoff;
use super::*;

const STATES: [State; 7] = [
    State::StreamingList(AsOf::Seen),
    State::StreamingList(AsOf::Newest),
    State::List(AsOf::Seen),
    State::List(AsOf::Newest),
    State::Page,
    State::WholeList,
    State::Watch,
];

fn recovery() -> Recovery {
    Recovery::new(BackoffState::new(Backoff::default(), Env::seeded(1)), true)
}

fn refused(code: u16, reason: &str) -> ReflectorFailure {
    ReflectorFailure::Refused { code, reason: reason.to_owned(), message: String::new(), retry_after: None }
}

fn short(state: State) -> &'static str {
    match state {
        State::StreamingList(AsOf::Seen) => "stream",
        State::StreamingList(AsOf::Newest) => "stream!",
        State::List(AsOf::Seen) => "list",
        State::List(AsOf::Newest) => "list!",
        State::Page => "page",
        State::WholeList => "whole",
        State::Watch => "watch",
    }
}

/// Failures of each row, by its name.
fn rows() -> BTreeMap<&'static str, Vec<ReflectorFailure>> {
    let too_large: Status = serde_json::from_str(
        r#"{"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}}"#,
    )
    .unwrap();
    let malformed = |expected| ReflectorFailure::Malformed { expected, words: "<html>".to_owned() };
    [
        (
            "unreachable",
            vec![
                ReflectorFailure::Connection("connection refused".to_owned()),
                ReflectorFailure::Connection("invalid peer certificate: Expired".to_owned()),
            ],
        ),
        ("429", vec![refused(429, "TooManyRequests")]),
        ("401", vec![refused(401, "Unauthorized")]),
        ("403", vec![refused(403, "Forbidden")]),
        ("404", vec![refused(404, "NotFound")]),
        ("4xx", [400, 405, 406, 415, 422, 501, 302, 0].into_iter().map(|code| refused(code, "")).collect()),
        ("410", vec![refused(410, ""), refused(0, "Expired"), refused(0, "Gone")]),
        ("too large", vec![ReflectorFailure::from_status(too_large, None)]),
        ("went back", vec![ReflectorFailure::WentBack { from: "9".into(), to: "5".into() }]),
        ("5xx", [500, 502, 503, 504, 599].into_iter().map(|code| refused(code, "")).collect()),
        (
            "broken",
            vec![
                ReflectorFailure::Broken("reset by peer".to_owned()),
                ReflectorFailure::CutOff("a line"),
                ReflectorFailure::CutOff("a list"),
            ],
        ),
        ("silent", vec![ReflectorFailure::Silent(Duration::from_secs(65))]),
        ("nonsense", vec![malformed("a list"), malformed("a watch event")]),
        ("ends early", vec![ReflectorFailure::ShortWatch]),
        ("endless", vec![ReflectorFailure::EndlessList(Duration::from_secs(30))]),
        (
            "bad list",
            vec![
                ReflectorFailure::NoResourceVersion,
                ReflectorFailure::WrongKind {
                    expected: "v1 PodList".to_owned(),
                    found: "v1 NodeList".to_owned(),
                },
            ],
        ),
    ]
    .into()
}

/// What a state is followed by in a row, as often as it fails: `watch~ watch~ stream~` is two watches more and then a
/// streaming list, each after a pause; `*` is a pause only if there was a failure lately.
fn path(state: State, failure: &ReflectorFailure) -> String {
    let mut recovery = recovery();
    let mut words = Vec::new();
    for failed in 1..=5 {
        let Step { next, pause } = recovery.after(state, failure);
        let mark = match pause.is_zero() {
            false => "~",
            true if !recovery.after(state, failure).pause.is_zero() => "*",
            true => "",
        };
        words.push(format!("{}{mark}", short(next)));
        if next != state {
            return words.join(" ");
        }
        assert_eq!(mark, "~", "{failure} at {state:?} is repeated without a pause");
        if failed == 5 {
            return format!("{}…", words[0]);
        }
    }
    unreachable!("the fifth has returned")
}

/// `~`: after a pause. `*`: at once, but after a pause the next time. `!`: of the newest state. `…`: for ever.
const TABLE: &str = "
            | stream                    | stream!                     | list    | list!   | page               | whole   | watch
unreachable | stream~…                  | stream!~…                   | list~…  | list!~… | page~…             | whole~… | watch~…
429         | stream~…                  | stream!~…                   | list~…  | list!~… | page~…             | whole~… | watch~…
401         | stream~…                  | stream!~…                   | list~…  | list!~… | list!~             | list!~  | watch~ watch~ stream~
403         | list                      | list!                       | list~…  | list!~… | list!~             | list!~  | stream~
404         | stream~…                  | stream!~…                   | list~…  | list!~… | list!~             | list!~  | stream~
4xx         | list                      | list!                       | list!~  | list!~… | list!~             | list!~  | stream~
410         | stream!                   | stream!~…                   | list!   | list!~… | whole              | list!~  | stream*
too large   | stream!                   | stream!~…                   | list!   | list!~… | list!~             | list!~  | stream!~
went back   | stream!                   | stream!~…                   | list!   | list!~… | list!~             | list!~  | stream!~
5xx         | stream~ stream~ list~     | stream!~ stream!~ list!~    | list~…  | list!~… | page~ page~ list!~ | list!~  | watch~ watch~ stream~
broken      | stream~ stream~ list~     | stream!~ stream!~ list!~    | list~…  | list!~… | page~ page~ list!~ | list!~  | watch~ watch~ stream~
silent      | stream~ list~             | stream!~ list!~             | list~…  | list!~… | page~ list!~       | list!~  | watch~ stream~
nonsense    | list                      | list!                       | list~…  | list!~… | page~ page~ list!~ | list!~  | watch~ watch~ stream~
ends early  | list                      | list!                       | list~…  | list!~… | list!~             | list!~  | watch~ watch~ stream~
endless     | list                      | list!                       | list~…  | list!~… | list!~             | list!~  | stream~
bad list    | stream~…                  | stream!~…                   | list~…  | list!~… | list!~             | list!~  | stream~
";

#[tokio::test(start_paused = true)]
async fn every_failure_in_every_state_leads_where_the_table_says() {
    let mut rows = rows();
    for line in TABLE.trim_matches('\n').lines().skip(1) {
        let mut columns = line.split('|').map(str::trim);
        let name = columns.next().unwrap();
        let failures = rows.remove(name).unwrap_or_else(|| panic!("there is no row {name}"));
        let columns: Vec<_> = columns.collect();
        assert_eq!(columns.len(), STATES.len(), "{line}");
        for failure in failures {
            for (state, expected) in STATES.into_iter().zip(&columns) {
                assert_eq!(path(state, &failure), *expected, "{name} ({failure}) at {}", short(state));
            }
        }
    }
    assert!(rows.is_empty(), "these rows are not in the table: {:?}", rows.keys());
}

#[tokio::test(start_paused = true)]
async fn every_pause_is_as_long_as_the_back_off_says_and_as_the_server_asks() {
    for state in STATES {
        let mut recovery = recovery();
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let (base, pause) = (Duration::from_millis(base), recovery.after(state, &refused(429, "")).pause);
            assert!(base <= pause && pause <= base * 2, "{base:?} gave {pause:?}");
            tokio::time::sleep(pause).await;
        }
        let asks = |seconds| ReflectorFailure::Refused {
            code: 429,
            reason: String::new(),
            message: String::new(),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(recovery.after(state, &asks(90)).pause, Duration::from_secs(90));
        assert_eq!(recovery.after(state, &asks(u64::MAX)).pause, LONGEST_RETRY_AFTER);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_is_free_once_in_a_while() {
    let mut recovery = recovery();
    let expired = refused(410, "Expired");
    assert_eq!(recovery.after(State::Watch, &expired).pause, Duration::ZERO);
    for base in [800, 1600, 3200] {
        let (base, pause) = (Duration::from_millis(base), recovery.after(State::Watch, &expired).pause);
        assert!(base <= pause && pause <= base * 2, "{base:?} gave {pause:?}");
        tokio::time::sleep(pause + Duration::from_secs(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(recovery.after(State::Watch, &expired).pause, Duration::ZERO);
    // Another failure takes the freedom away.
    tokio::time::sleep(Duration::from_secs(121)).await;
    recovery.after(State::Watch, &refused(500, ""));
    assert!(!recovery.after(State::Watch, &expired).pause.is_zero());
}

#[tokio::test(start_paused = true)]
async fn tries_are_counted_from_the_last_success_and_from_the_last_change_of_mind() {
    let mut recovery = recovery();
    let error = refused(500, "");
    let next = |recovery: &mut Recovery| recovery.after(State::Watch, &error).next;
    assert_eq!([next(&mut recovery), next(&mut recovery)], [State::Watch; 2]);
    recovery.worked();
    assert_eq!([next(&mut recovery), next(&mut recovery)], [State::Watch; 2]);
    // A server that cannot be reached has not failed.
    for _ in 0..20 {
        assert_eq!(
            recovery.after(State::Watch, &ReflectorFailure::Connection(String::new())).next,
            State::Watch
        );
    }
    assert_eq!(next(&mut recovery), State::StreamingList(AsOf::Seen));
    assert_eq!([next(&mut recovery), next(&mut recovery)], [State::Watch; 2]);
}

#[tokio::test(start_paused = true)]
async fn without_streaming_every_list_is_a_plain_one() {
    for state in
        [State::List(AsOf::Seen), State::List(AsOf::Newest), State::Page, State::WholeList, State::Watch]
    {
        for failure in rows().into_values().flatten() {
            let mut recovery = Recovery { streaming: false, ..recovery() };
            for _ in 0..5 {
                let next = recovery.after(state, &failure).next;
                assert!(!matches!(next, State::StreamingList(_)), "{failure} at {state:?}");
            }
        }
    }
}

/// The first rule of the table: failures in a row, of whatever kind, soon come to a pause.
#[tokio::test(start_paused = true)]
async fn failures_without_a_pause_come_to_an_end() {
    for start in STATES {
        let mut reached = vec![start];
        for step in 0.. {
            assert!(step < 5, "{start:?} leads to {reached:?} without a pause");
            let mut further = Vec::new();
            for state in reached {
                for failure in rows().into_values().flatten() {
                    let mut recovery = recovery();
                    // No failure is free any more.
                    recovery.backoff.next();
                    let Step { next, pause } = recovery.after(state, &failure);
                    if pause.is_zero() && !further.contains(&next) {
                        further.push(next);
                    }
                }
            }
            if further.is_empty() {
                break;
            }
            reached = further;
        }
    }
}
