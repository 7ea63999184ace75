//! What is refused, and what every answer says.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint_dashboard::{Act, Scene, Stage};

use crate::Page;

#[tokio::test]
async fn every_answer_says_what_a_page_may_do() {
    let page = Page::open().await;
    for path in [
        "/",
        "/app.js",
        "/style.css",
        "/icon.svg",
        "/api/state",
        "/api/findings",
        "/nowhere",
        "/api/queue?name=x",
    ] {
        let answer = page.browser.get(path).await;
        let policy =
            answer.header("content-security-policy").unwrap_or_else(|| panic!("{path} has no policy"));
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
    assert_eq!(page.browser.get("/nowhere").await.code, 404);
    assert_eq!(
        page.browser.get("/app.js").await.header("content-type"),
        Some("text/javascript; charset=utf-8")
    );
}

#[tokio::test]
async fn another_name_or_another_site_is_refused() {
    let page = Page::open().await;
    let own = format!("http://{}", page.browser.host());
    let check = async |headers: &str, code: u16| {
        for path in ["/", "/api/state", "/api/stream", "/style.css"] {
            if code != 200 || path != "/api/stream" {
                assert_eq!(
                    page.browser.ask("GET", path, headers, "").await.code,
                    code,
                    "{path} with {headers:?}"
                );
            }
        }
    };
    check("Host: evil.example\r\n", 421).await;
    check("Host: localhost.evil.example:6480\r\n", 421).await;
    check("Host: localhost:9999\r\n", 200).await;
    check("Host: [::1]:9999\r\n", 200).await;
    check("Origin: http://evil.example\r\n", 403).await;
    check("Origin: null\r\n", 403).await;
    check(&format!("Origin: {}\r\n", own.replace("http:", "https:")), 403).await;
    check(&format!("Origin: {own}\r\n"), 200).await;
    check("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n", 403).await;
    check("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n", 200).await;
    let opened = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    assert_eq!(
        page.browser.ask("GET", "/", opened, "").await.code,
        200,
        "a link on another site may lead here"
    );
}

#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<String>>>);

impl Stage for Recorded {
    fn scene(&self) -> Scene {
        Scene { title: "a test".into(), ..Scene::default() }
    }

    fn rate(&self) -> f64 {
        self.0.lock().len() as f64
    }

    fn act(&self, act: Act) -> BoxFuture<'_, Result<String, String>> {
        self.0.lock().push(act.act.clone());
        Box::pin(async move { if act.act == "fail" { Err("it failed".into()) } else { Ok("done".into()) } })
    }
}

#[tokio::test]
async fn only_the_page_itself_can_play() {
    let stage = Recorded::default();
    let page = Page::with(|config| config.stage(stage.clone())).await;
    let own = format!("Origin: http://{}\r\n", page.browser.host());
    let json = "Content-Type: application/json\r\n";
    let play =
        async |headers: &str, body: &str| page.browser.ask("POST", "/api/play", headers, body).await.code;
    let act = r#"{"act": "crash"}"#;
    assert_eq!(play(json, act).await, 403, "a request that names no site");
    assert_eq!(play(&format!("{json}Origin: http://evil.example\r\n"), act).await, 403);
    assert_eq!(
        play(&format!("{own}Content-Type: text/plain\r\n"), act).await,
        415,
        "what a form of another site can send"
    );
    assert_eq!(play(&format!("{own}{json}Host: evil.example\r\n"), act).await, 421);
    assert_eq!(play(&format!("{own}{json}"), "no json").await, 400);
    assert_eq!(play(&format!("{own}{json}"), &" ".repeat(100_000)).await, 413);
    assert!(stage.0.lock().is_empty());
    assert_eq!(play(&format!("{own}{json}"), act).await, 200);
    assert_eq!(play(&format!("{own}{json}"), r#"{"act": "fail"}"#).await, 409);
    assert_eq!(*stage.0.lock(), ["crash", "fail"]);
    assert_eq!(page.browser.get("/api/play").await.json()["title"], "a test");
}

#[tokio::test]
async fn who_has_played_sees_at_once_what_it_did() {
    let page = Page::with(|config| config.stage(Recorded::default())).await;
    let headers = format!("Origin: http://{}\r\nContent-Type: application/json\r\n", page.browser.host());
    for acts in 0..20 {
        assert_eq!(page.browser.get("/api/state").await.json()["rate"], f64::from(acts));
        let body = if acts % 2 == 0 { r#"{"act": "x"}"# } else { r#"{"act": "fail"}"# };
        page.browser.ask("POST", "/api/play", &headers, body).await;
    }
}

#[tokio::test]
async fn a_page_without_a_stage_writes_nothing() {
    let page = Page::open().await;
    let headers = format!("Origin: http://{}\r\nContent-Type: application/json\r\n", page.browser.host());
    assert_eq!(page.browser.ask("POST", "/api/play", &headers, r#"{"act": "x"}"#).await.code, 404);
    for method in ["PUT", "DELETE", "PATCH"] {
        assert_eq!(page.browser.ask(method, "/api/state", &headers, "").await.code, 405, "{method}");
    }
}
