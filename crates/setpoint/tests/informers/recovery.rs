//! How a reflector finds its way back: the paths through its table of recoveries that matter most, against a server.

use std::time::Duration;

use serde_json::json;
use setpoint::{Env, ReflectorConfig, SharedInformer};
use tokio::time::Instant;

use super::script::{
    Asked, Server, builder, cached, list, object, plain, server, settle, start, start_plain,
};

type Informer = SharedInformer<k8s_openapi::api::core::v1::ConfigMap>;

/// An informer whose cache is at version 10 with the object `a`, and its first watch request.
async fn at_watch() -> (Informer, Server, Asked) {
    let (client, mut server) = server();
    let informer = start_plain(client);
    server.next().await.list("10", &[object("a", 3)]);
    let asked = server.next().await;
    assert!(asked.is_watch());
    (informer, server, asked)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_after_every_list_backs_off() {
    for in_stream in [false, true] {
        let (_informer, mut server, mut asked) = at_watch().await;
        let mut pauses = Vec::new();
        for version in 11..18 {
            let failed = Instant::now();
            match in_stream {
                true => asked.watch().error(410, "Expired", "too old"),
                false => asked.fail(410, "Expired", "too old"),
            }
            let list = server.next().await;
            assert!(!list.is_watch());
            pauses.push((list.at - failed).as_millis());
            list.list(&version.to_string(), &[]);
            asked = server.next().await;
        }
        assert_eq!(pauses[0], 0);
        for (pause, least) in pauses[1..].iter().zip([800, 1600, 3200, 6400, 12_800, 25_600]) {
            assert!((least..=2 * least).contains(pause), "{pauses:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_two_healthy_minutes_a_watch_that_is_too_old_leads_to_a_list_at_once_again() {
    let (_informer, mut server, asked) = at_watch().await;
    asked.fail(410, "Expired", "too old");
    server.next().await.list("20", &[]);
    let watch = server.next().await.watch();
    tokio::time::sleep(Duration::from_secs(121)).await;
    let failed = Instant::now();
    watch.error(410, "Expired", "too old");
    assert_eq!(server.next().await.at, failed);
}

/// A watch that fails like this each time leads to a list that brings the cache up to date.
async fn check_watch_that_never_works(fail: impl Fn(Asked)) {
    let (informer, mut server, mut asked) = at_watch().await;
    let start = Instant::now();
    let mut tries = 0;
    let list = loop {
        tries += 1;
        fail(asked);
        asked = server.next().await;
        if !asked.is_watch() {
            break asked;
        }
        assert!(tries < 10, "only watches");
    };
    assert!(tries > 1, "what was seen holds: a watch comes first");
    assert!(start.elapsed() < Duration::from_secs(60));
    list.list("20", &[object("b", 15)]);
    server.next().await;
    assert_eq!(cached(&informer), ["b@15"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_answers_5xx_leads_to_a_list_after_some_tries() {
    for code in [500, 502, 503, 504] {
        check_watch_that_never_works(|asked| asked.fail(code, "InternalError", "not today")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_sends_a_5xx_in_the_stream_leads_to_a_list_after_some_tries() {
    check_watch_that_never_works(|asked| asked.watch().error(500, "InternalError", "not today")).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_ends_at_once_leads_to_a_list_after_some_tries() {
    check_watch_that_never_works(|asked| asked.watch().close()).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_breaks_before_an_event_leads_to_a_list_after_some_tries() {
    check_watch_that_never_works(|asked| asked.watch().reset()).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_says_nonsense_leads_to_a_list_after_some_tries() {
    check_watch_that_never_works(|asked| asked.answer(200, &[], "<html>please log in</html>\n")).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_repeats_its_bookmark_and_ends_is_not_asked_for_without_a_pause() {
    let (_informer, mut server, mut asked) = at_watch().await;
    for _ in 0..3 {
        let watch = asked.watch();
        watch.bookmark("10");
        let ended = Instant::now();
        watch.close();
        asked = server.next().await;
        assert!(asked.at - ended >= Duration::from_millis(800));
    }
}

#[tokio::test(start_paused = true)]
async fn events_between_failures_keep_the_watch_without_a_list() {
    let (_informer, mut server, mut asked) = at_watch().await;
    for version in 11..31 {
        let watch = asked.watch();
        watch.event("ADDED", &object("b", version));
        settle().await;
        watch.reset();
        asked = server.next().await;
        assert!(asked.is_watch());
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_always_fails_is_given_up_for_a_list() {
    let never: [fn(Asked); 2] = [|asked| asked.fail(502, "", "bad gateway"), |asked| asked.watch().reset()];
    for fail in never {
        let (client, mut server) = server();
        let (informer, _) = start(client);
        let mut asked = server.next().await;
        for _ in 0..10 {
            if !asked.is_watch() {
                break;
            }
            fail(asked);
            asked = server.next().await;
        }
        asked.list("10", &[object("a", 3)]);
        informer.wait_for_sync().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_list_but_not_watch_is_listed_for() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    server.next().await.fail(403, "Forbidden", "cannot watch");
    let asked = server.next().await;
    assert!(!asked.is_watch());
    asked.list("10", &[object("a", 3)]);
    informer.wait_for_sync().await;
    // There are no watches; so there are lists, with pauses.
    let start = Instant::now();
    server.next().await.fail(403, "Forbidden", "cannot watch");
    let asked = server.next().await;
    assert!(asked.at - start >= Duration::from_millis(800));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_server_cannot_read_is_not_asked_for_twice() {
    let (informer, mut server, asked) = at_watch().await;
    asked.fail(400, "BadRequest", "invalid resource version");
    let asked = server.next().await;
    assert_eq!(asked.param("resourceVersion"), Some("10"));
    asked.fail(400, "BadRequest", "invalid resource version");
    let asked = server.next().await;
    assert_eq!((asked.is_watch(), asked.param("resourceVersion")), (false, None));
    asked.list("other-1", &[object("b", 4)]);
    assert_eq!(server.next().await.param("resourceVersion"), Some("other-1"));
    assert_eq!(cached(&informer), ["b@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_a_kind_that_is_not_there_yet_is_repeated_until_it_is() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    for _ in 0..20 {
        let asked = server.next().await;
        let failed = Instant::now();
        asked.fail(404, "NotFound", "the server could not find the requested resource");
        let wait = tokio::time::timeout(Duration::from_millis(799), server.next()).await;
        assert!(wait.is_err(), "no pause after {:?}", failed.elapsed());
    }
    let _watch = server.next().await.stream_list("10", &[]);
    informer.wait_for_sync().await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again() {
    let (client, mut server) = server();
    let informer = start_plain(client);
    let mut page = list("10", &[object("a", 3)]);
    page["metadata"]["continue"] = json!("next page");
    server.next().await.object(&page);
    server.next().await.fail(503, "ServiceUnavailable", "not now");
    let asked = server.next().await;
    assert_eq!(asked.param("continue"), Some("next page"));
    asked.list("10", &[object("b", 4)]);
    informer.wait_for_sync().await;
    assert_eq!(cached(&informer), ["a@3", "b@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_cannot_ask_for_a_pause_without_end() {
    let (_informer, mut server, asked) = at_watch().await;
    let failed = Instant::now();
    asked.answer(429, &[("retry-after", "18446744073709551615")], "never");
    assert!(server.next().await.at - failed <= Duration::from_secs(600));
}

/// Whatever a server does, it is not asked without end: at most some requests a minute once it fails.
#[tokio::test(start_paused = true)]
async fn a_server_that_fails_in_every_way_is_asked_rarely() {
    for seed in 0..100 {
        let env = Env::seeded(seed);
        // Few ways at a time: they come in circles.
        let more = (0..env.random_range(0..=2)).map(|_| env.random_range(0..=12));
        let ways: Vec<u64> = [seed % 13].into_iter().chain(more).collect();
        let (client, mut server) = server();
        let config = if seed % 2 == 0 { plain() } else { ReflectorConfig::default() };
        let informer = builder(client).env(Env::seeded(seed + 1)).config(config).build();
        informer.start();
        let start = Instant::now();
        let (mut asked, mut version) = (0, 10);
        let mut open = Vec::new();
        while start.elapsed() < Duration::from_secs(3600) {
            let Ok(request) = tokio::time::timeout(Duration::from_secs(60), server.next()).await else {
                open.clear();
                continue;
            };
            asked += 1;
            assert!(asked < 10_000, "seed {seed}, {ways:?}");
            version += 1;
            match ways[env.random_range(0..=ways.len() as u64 - 1) as usize] {
                0 => request.refuse(),
                1 => request.answer(429, &[("retry-after", "1")], "slow down"),
                2 => request.fail(410, "Expired", "too old"),
                3 => request.fail([400, 401, 403, 404, 405, 422][version % 6], "Other", "no"),
                4 => request.fail([500, 501, 502, 503, 504][version % 5], "Other", "no"),
                5 => request.answer(200, &[], "nonsense\n"),
                6 if request.is_watch() => request.watch().error(410, "Expired", "too old"),
                7 if request.is_watch() => request.watch().reset(),
                8 if request.is_watch() => request.watch().close(),
                9 if request.is_streaming_list() => open.push(request.stream_list(&version.to_string(), &[])),
                10 if request.is_watch() => {
                    let watch = request.watch();
                    watch.bookmark(&version.to_string());
                    watch.error(410, "Expired", "too old");
                }
                _ if request.is_watch() => open.push(request.watch()),
                _ => request.list(&version.to_string(), &[]),
            }
        }
        assert!(asked < 2000, "seed {seed}, {ways:?}: {asked} requests in an hour");
        assert!(asked > 5, "seed {seed}, {ways:?}: {asked} requests in an hour");
    }
}
