//! Paths and queries: selectors, versions, pages and continue tokens, options. Pages of a list are the list.
//!
//! The first byte says what follows: `t` the text within a continue token, `l` a label selector, `f` a field selector, `d`
//! the query of a delete, `w` of a watch, `c` of a create; anything else a path.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use setpoint_fuzz::{Api, JSON, Lab, start};

fuzz_target!(|data: &[u8]| start(data, case));

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/pods";

fn case(lab: &Lab, input: &[u8]) {
    let Some((&what, rest)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    lab.block_on(async {
        let api = lab.shared();
        if api.get(&format!("{MAPS}/m0")).await.code == 404 {
            prepare(&api).await;
        }
        match what {
            b't' => {
                let token = URL_SAFE_NO_PAD.encode(rest);
                refused_or(&api, &format!("{MAPS}?limit=2&continue={token}")).await;
            }
            b'l' => selected(&api, &format!("labelSelector={}", encoded(&text))).await,
            b'f' => selected(&api, &format!("fieldSelector={}", encoded(&text))).await,
            b'd' => {
                api.ask("DELETE", &format!("{MAPS}/m1?dryRun=All&{text}"), JSON, JSON, "").await;
                api.ask("DELETE", &format!("{MAPS}?dryRun=All&{text}"), JSON, JSON, rest.to_vec()).await;
            }
            b'w' => {
                // It ends by itself: time passes as soon as everybody waits.
                api.ask("GET", &format!("{MAPS}?{text}&watch=true&timeoutSeconds=1"), JSON, JSON, "").await;
            }
            b'c' => {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
                api.ask("POST", &format!("{MAPS}?{text}&dryRun=All"), JSON, JSON, object.to_string()).await;
            }
            _ if !text.contains("watch") && !text.contains("follow") => {
                api.ask("GET", &format!("{}{text}", char::from(what)), JSON, JSON, "").await;
            }
            _ => {}
        }
    });
}

async fn refused_or(api: &Api, path: &str) -> Option<Value> {
    let answer = api.get(path).await;
    // 504 is for a version that is not there yet.
    let is_early =
        answer.code == 504 && answer.json()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge";
    assert!(is_early || matches!(answer.code, 200 | 400 | 410), "{path}: {}", answer.json());
    answer.is_ok().then(|| answer.json())
}

/// A list that is asked for at once and page by page.
async fn selected(api: &Api, selector: &str) {
    for path in [MAPS, PODS] {
        let Some(whole) = refused_or(api, &format!("{path}?{selector}")).await else { continue };
        let (mut pages, mut token) = (Vec::new(), String::new());
        for _ in 0..12 {
            let next = format!("{path}?{selector}&limit=2{token}");
            let page = refused_or(api, &next).await.expect("a selector is good or bad, whatever the limit");
            pages.extend(names(&page));
            match page["metadata"]["continue"].as_str() {
                Some(more) if !more.is_empty() => token = format!("&continue={more}"),
                _ => break,
            }
        }
        assert_eq!(names(&whole), pages, "{path}?{selector}");
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("a list has items");
    items.iter().map(|item| item["metadata"]["name"].to_string()).collect()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

async fn prepare(api: &Api) {
    for n in 0..7 {
        let mut labels = json!({"n": n.to_string(), "example.com/app": "web"});
        if n % 2 == 0 {
            labels["even"] = json!("");
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}"), "labels": labels}});
        api.call("POST", MAPS, JSON, map.to_string()).await.ok();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{n}"), "labels": labels},
            "spec": {"nodeName": format!("node-{}", n % 2), "containers": [{"name": "c", "image": "i"}]},
        });
        api.call("POST", "/api/v1/namespaces/default/pods", JSON, pod.to_string()).await.ok();
    }
}
