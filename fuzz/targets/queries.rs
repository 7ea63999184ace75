//! Paths and queries: selectors, versions, pages and continue tokens, options. Pages of a list are the list. The events of a
//! watch are the differences of lists.
//!
//! The first byte says what follows: `t` the text within a continue token, `l` a label selector, `f` a field selector, `d`
//! the query of a delete, `w` of a watch, `c` of a create; `s` the choices that make changes and watches with selectors
//! beside them; anything else a path.

#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::{join, join_all};
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
            b's' => {
                if let Ok(story) = Story::any(&mut Unstructured::new(rest)) {
                    story.run(&api).await;
                }
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

/// Where the pods of a story are: nobody else writes there.
const STORY: &str = "/api/v1/namespaces/story/pods";
const VALUES: [&str; 3] = ["", "x", "y"];
/// Between two changes. Time stands still unless everybody waits, so it costs none.
const STEP: Duration = Duration::from_millis(10);

/// Changes of a few pods, and who watches meanwhile.
#[derive(Debug)]
struct Story {
    changes: Vec<Change>,
    watches: Vec<Watch>,
}

#[derive(Debug)]
enum Change {
    /// A pod with a node and a label, or without.
    Create {
        pod: u8,
        node: &'static str,
        label: &'static str,
    },
    Label {
        pod: u8,
        label: &'static str,
    },
    Phase {
        pod: u8,
        phase: &'static str,
    },
    Delete {
        pod: u8,
    },
}

#[derive(Debug)]
struct Watch {
    select: Select,
    /// After so many changes it begins,
    starts: usize,
    /// with what comes after so many of them.
    after: usize,
}

/// One condition, as a query and as a naive check has it.
#[derive(Clone, Copy, Debug)]
enum Select {
    All,
    Node(&'static str),
    NotNode(&'static str),
    Phase(&'static str),
    Label(&'static str),
    NotLabel(&'static str),
    Labelled,
    NodeAndLabel(&'static str, &'static str),
}

/// Pods by their names.
type Pods = BTreeMap<String, Value>;

impl Story {
    fn any(u: &mut Unstructured<'_>) -> Result<Story> {
        let count = u.int_in_range(1..=12)?;
        let changes = (0..count).map(|_| Change::any(u)).collect::<Result<Vec<_>>>()?;
        let watches = u.int_in_range(1..=4)?;
        let watch = |_| {
            let starts = u.int_in_range(0..=count)?;
            Ok(Watch { select: Select::any(u)?, starts, after: u.int_in_range(0..=starts)? })
        };
        Ok(Story { changes, watches: (0..watches).map(watch).collect::<Result<_>>()? })
    }

    async fn run(&self, api: &Api) {
        let list = api.get(STORY).await.ok();
        let mut states = vec![(version(&list), Pods::new())];
        assert_eq!(names(&list), Vec::<String>::new(), "the story before this one has cleaned up");
        // Which versions there are is known before a watch asks for one: it begins later than they were made.
        let known = parking_lot::Mutex::new(vec![version(&list)]);
        let changes = async {
            for change in &self.changes {
                let pods = states.last().expect("there is one").1.clone();
                states.extend(change.make(api, pods).await);
                known.lock().push(states.last().expect("there is one").0);
                tokio::time::sleep(STEP).await;
            }
        };
        let watches = self.watches.iter().map(async |watch| {
            tokio::time::sleep(STEP * u32::try_from(watch.starts).expect("few") + STEP / 2).await;
            let after = known.lock()[watch.after];
            let query = watch.select.query();
            let path = format!("{STORY}?watch=true&timeoutSeconds=1&resourceVersion={after}{query}");
            (watch, after, api.get(&path).await)
        });
        let ((), answers) = join(changes, join_all(watches)).await;
        for (watch, after, answer) in answers {
            assert_eq!(answer.code, 200, "{watch:?}");
            let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let told: Vec<_> = lines.map(told).collect();
            assert_eq!(told, watch.select.differences(&states, after), "{watch:?} of {self:?}");
        }
        for name in states.pop().expect("there is one").1.into_keys() {
            api.call("DELETE", &format!("{STORY}/{name}?gracePeriodSeconds=0"), JSON, "").await.ok();
        }
    }
}

impl Change {
    fn any(u: &mut Unstructured<'_>) -> Result<Change> {
        let pod = u.int_in_range(0..=3)?;
        Ok(match u.int_in_range(0..=5)? {
            0 | 1 => Change::Create { pod, node: u.choose(&VALUES)?, label: u.choose(&VALUES)? },
            2 | 3 => Change::Label { pod, label: u.choose(&VALUES)? },
            4 => Change::Phase { pod, phase: u.choose(&["Pending", "Running"])? },
            _ => Change::Delete { pod },
        })
    }

    /// The versions that it makes: none if it does nothing.
    async fn make(&self, api: &Api, mut pods: Pods) -> Vec<(u64, Pods)> {
        let (Change::Create { pod, .. }
        | Change::Label { pod, .. }
        | Change::Phase { pod, .. }
        | Change::Delete { pod }) = self;
        let name = format!("p{pod}");
        let (one, merge) = (format!("{STORY}/{name}"), "application/merge-patch+json");
        let answer = match self {
            Change::Create { node, label, .. } => {
                let pod = pod_of(&name, labels(label), node);
                api.call("POST", STORY, JSON, pod.to_string()).await
            }
            Change::Label { label, .. } => {
                let label = if label.is_empty() { Value::Null } else { json!(label) };
                let patch = json!({"metadata": {"labels": {"l": label}}});
                api.call("PATCH", &one, merge, patch.to_string()).await
            }
            Change::Phase { phase, .. } => {
                let patch = json!({"status": {"phase": phase}});
                api.call("PATCH", &format!("{one}/status"), merge, patch.to_string()).await
            }
            Change::Delete { .. } => {
                api.call("DELETE", &format!("{one}?gracePeriodSeconds=0"), JSON, "").await
            }
        };
        let is_there = pods.contains_key(&name);
        assert_eq!(answer.is_ok(), is_there != matches!(self, Change::Create { .. }), "{}", answer.json());
        if !answer.is_ok() {
            return Vec::new();
        }
        let pod = answer.json();
        if matches!(self, Change::Delete { .. }) {
            // The answer to a delete does not say at which version it was; a list does. The version before it is that of the
            // mark: pods end gracefully, even those that end at once.
            let gone = version(&api.get(STORY).await.ok());
            let mut marked = pods.clone();
            marked.get_mut(&name).expect("it is there")["metadata"]["deletionTimestamp"] = json!("now");
            pods.remove(&name);
            return vec![(gone - 1, marked), (gone, pods)];
        }
        let version = version(&pod);
        let before = pods.insert(name, pod);
        // What changes nothing is not written.
        if before.is_some_and(|before| self::version(&before) == version) {
            return Vec::new();
        }
        vec![(version, pods)]
    }
}

impl Select {
    fn any(u: &mut Unstructured<'_>) -> Result<Select> {
        let (node, label) = (*u.choose(&VALUES)?, *u.choose(&["x", "y"])?);
        Ok(match u.int_in_range(0..=9)? {
            0 => Select::All,
            1..=3 => Select::Node(node),
            4 => Select::NotNode(node),
            5 => Select::Phase(u.choose(&["Pending", "Running"])?),
            6 => Select::Label(label),
            7 => Select::NotLabel(label),
            8 => Select::Labelled,
            _ => Select::NodeAndLabel(node, label),
        })
    }

    fn query(self) -> String {
        let field = |selector: String| format!("&fieldSelector={}", encoded(&selector));
        let label = |selector: String| format!("&labelSelector={}", encoded(&selector));
        match self {
            Select::All => String::new(),
            Select::Node(node) => field(format!("spec.nodeName={node}")),
            Select::NotNode(node) => field(format!("spec.nodeName!={node}")),
            Select::Phase(phase) => field(format!("status.phase={phase}")),
            Select::Label(value) => label(format!("l={value}")),
            Select::NotLabel(value) => label(format!("l!={value}")),
            Select::Labelled => label("l".to_owned()),
            Select::NodeAndLabel(node, value) => {
                field(format!("spec.nodeName={node}")) + &label(format!("l={value}"))
            }
        }
    }

    fn takes(self, pod: &Value) -> bool {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (node, phase) = (text(&pod["spec"]["nodeName"]), text(&pod["status"]["phase"]));
        let label = pod["metadata"]["labels"]["l"].as_str();
        match self {
            Select::All => true,
            Select::Node(wanted) => node == wanted,
            Select::NotNode(unwanted) => node != unwanted,
            Select::Phase(wanted) => phase == wanted,
            Select::Label(wanted) => label == Some(wanted),
            Select::NotLabel(unwanted) => label != Some(unwanted),
            Select::Labelled => label.is_some(),
            Select::NodeAndLabel(wanted, value) => node == wanted && label == Some(value),
        }
    }

    /// What a watch after a version owes: for each pod that differs between two lists, one event.
    fn differences(self, states: &[(u64, Pods)], after: u64) -> Vec<(String, String, u64)> {
        let mut events = Vec::new();
        for pair in states.windows(2) {
            let [(_, before), (version, now)] = pair else { continue };
            if *version <= after {
                continue;
            }
            let names = before.keys().chain(now.keys().filter(|name| !before.contains_key(*name)));
            for name in names {
                let taken = |pods: &Pods| pods.get(name).filter(|pod| self.takes(pod)).cloned();
                let what = match (taken(before), taken(now)) {
                    (None, Some(_)) => "ADDED",
                    (Some(_), None) => "DELETED",
                    (Some(before), Some(now)) if before != now => "MODIFIED",
                    _ => continue,
                };
                events.push((what.to_owned(), name.clone(), *version));
            }
        }
        events
    }
}

/// The type, the name and the version of an event.
fn told(line: &[u8]) -> (String, String, u64) {
    let event: Value = serde_json::from_slice(line).expect("an event is JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]), version(&event["object"]))
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    version.unwrap_or_else(|| panic!("no version: {object}"))
}

fn labels(value: &str) -> Value {
    if value.is_empty() { json!({}) } else { json!({"l": value}) }
}

fn pod_of(name: &str, labels: Value, node: &str) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    if !node.is_empty() {
        spec["nodeName"] = node.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("a list has items");
    items.iter().map(|item| item["metadata"]["name"].to_string()).collect()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

async fn prepare(api: &Api) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "story"}});
    api.call("POST", "/api/v1/namespaces", JSON, namespace.to_string()).await.ok();
    for n in 0..7 {
        let mut labels = json!({"n": n.to_string(), "example.com/app": "web"});
        if n % 2 == 0 {
            labels["even"] = json!("");
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}"), "labels": labels}});
        api.call("POST", MAPS, JSON, map.to_string()).await.ok();
        let pod = pod_of(&format!("p{n}"), labels, &format!("node-{}", n % 2));
        api.call("POST", "/api/v1/namespaces/default/pods", JSON, pod.to_string()).await.ok();
    }
}
