//! The stream: what happened, live, resumed and bounded.

use serde_json::{Value, json};

use crate::Page;
use crate::browser::Browser;

fn is_added(key: &str) -> impl Fn(&Value) -> bool {
    move |event| event["type"] == "added" && event["key"] == key
}

fn added(facts: &[Value]) -> Vec<String> {
    let keys = facts.iter().filter(|fact| fact["event"]["type"] == "added");
    keys.map(|fact| fact["event"]["key"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_page_sees_what_happened_before_it_was_opened_and_what_happens_then() {
    let page = Page::open().await;
    let queue = page.queue("web");
    queue.add("default/before".into());
    let mut events = page.browser.events("/api/stream", "").await;
    events.until(is_added("default/before")).await;
    queue.add("default/after".into());
    events.until(is_added("default/after")).await;
    let state = events.of("state").await.data;
    assert_eq!(state["queues"][0]["queue"], "web");
    assert_eq!(state["queues"][0]["ready"], 2);
}

#[tokio::test]
async fn a_page_that_comes_back_gets_what_it_missed_and_nothing_twice() {
    let page = Page::open().await;
    let queue = page.queue("web");
    queue.add("default/a".into());
    let mut events = page.browser.events("/api/stream", "").await;
    let (_, id) = events.until(is_added("default/a")).await;
    drop(events);
    queue.add("default/b".into());
    let resume = |id: &str| format!("Last-Event-ID: {id}\r\n");
    let mut events = page.browser.events("/api/stream", &resume(&id)).await;
    let (facts, _) = events.until(is_added("default/b")).await;
    assert_eq!(added(&facts), ["default/b"]);
    // A page that was put aside begins a stream of its own, and says where it was.
    let mut events = page.browser.events(&format!("/api/stream?after={id}"), "").await;
    let (facts, _) = events.until(is_added("default/b")).await;
    assert_eq!(added(&facts), ["default/b"]);
    let mut events = page.browser.events("/api/stream", &resume("0badc0de-1")).await;
    let (facts, _) = events.until(is_added("default/b")).await;
    assert_eq!(added(&facts), ["default/a", "default/b"], "an id of another process is none");
}

#[tokio::test]
async fn a_filter_shows_all_of_one_key_however_much_else_happens() {
    let page = Page::open().await;
    let queue = page.queue("web");
    let mut events = page.browser.events("/api/stream?key=wanted&controller=web", "").await;
    for n in 0..5000 {
        queue.add(format!("default/other-{n}"));
    }
    queue.add("default/wanted".into());
    let (facts, _) = events.until(is_added("default/wanted")).await;
    assert_eq!(added(&facts), ["default/wanted"]);
}

#[tokio::test]
async fn who_narrows_it_down_sees_what_happened_long_before() {
    let page = Page::open().await;
    let queue = page.queue("web");
    queue.add("default/wanted".into());
    // Two facts each: more than a page gets of everything, less than is kept.
    for n in 0..5000 {
        queue.add(format!("default/other-{n}"));
    }
    let mut all = page.browser.events("/api/stream", "").await;
    all.until(is_added("default/other-4999")).await;
    let mut events = page.browser.events("/api/stream?key=wanted", "").await;
    assert_eq!(added(events.of("facts").await.data["facts"].as_array().unwrap()), ["default/wanted"]);
}

#[tokio::test]
async fn thousands_of_facts_are_sampled_by_whole_keys_and_counted() {
    let page = Page::open().await;
    let queue = page.queue("web");
    let mut events = page.browser.events("/api/stream", "").await;
    events.of("facts").await;
    for n in 0..5000 {
        queue.add(format!("default/{n}"));
    }
    let (mut seen, mut left_out) = (0, 0);
    while seen + left_out < 10_000 {
        let data = events.of("facts").await.data;
        let count = data["facts"].as_array().unwrap().len() as u64;
        assert!(count <= 250, "{count} facts at once");
        seen += count;
        left_out += data["leftOut"].as_u64().unwrap();
    }
    assert!(seen > 0 && left_out > 5000, "{seen} shown, {left_out} left out");
    let totals = events.of("state").await.data["totals"].clone();
    assert_eq!(totals["controllers"][0]["added"], 5000, "the numbers are of all");
}

#[tokio::test]
async fn a_name_can_break_neither_the_stream_nor_the_json() {
    let page = Page::open().await;
    let queue = page.queue("<script>alert(1)</script>");
    let hostile = "default/a\n\nevent: state\ndata: {\"queues\": []}\n\n<img src=x onerror=alert(1)>";
    queue.add(hostile.into());
    let mut events = page.browser.events("/api/stream", "").await;
    let (facts, _) = events.until(is_added(hostile)).await;
    assert_eq!(facts[0]["event"]["queue"], "<script>alert(1)</script>");
    let answer = page.browser.get("/api/queue?name=%3Cscript%3Ealert(1)%3C%2Fscript%3E").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.json()["keys"][0]["key"], hostile);
}

#[tokio::test]
async fn streams_end_with_the_server() {
    let page = Page::open().await;
    let mut events = page.browser.events("/api/stream", "").await;
    events.of("state").await;
    page.shutdown.cancel();
    while events.next().await.is_some() {}
}

#[tokio::test]
async fn so_many_pages_can_be_open_and_no_more() {
    let page = Page::open().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(page.browser.events("/api/stream", "").await);
    }
    let refused = page.browser.get("/api/stream").await;
    assert_eq!((refused.code, refused.json()), (503, json!({"error": "too many pages are open; close one"})));
    open.pop();
    let browser: Browser = page.browser.clone();
    for _ in 0..100 {
        if browser.get("/api/state").await.code == 200 && try_open(&browser).await {
            return;
        }
    }
    panic!("a place that was given up is not free");
}

async fn try_open(browser: &Browser) -> bool {
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let answer =
        tokio::time::timeout(std::time::Duration::from_millis(200), browser.get("/api/stream")).await;
    // One that is let in goes on for ever.
    answer.is_err()
}
