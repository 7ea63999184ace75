//! The suite `differential`: the same requests to our server and to kube-apiserver, the answers compared.
//!
//! What to send is data, one file a family of kinds in `differential/kinds`: objects that are fine, edits of
//! them that are not, updates and patches. A generator with a fixed seed adds mutations of single fields. What
//! may differ from one server to the next (uids, times, addresses) is masked; what differs for a reason is
//! listed in `docs/differences.allow`, and explained in `docs/differences.md`.

mod allowed;
mod compare;
mod kinds;
mod mask;
mod mutate;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::allowed::Allowed;
use self::compare::Difference;
use self::kinds::Kind;
use super::http::Client;
use super::process::poll;
use super::report::Report;

pub(crate) const SUITE: &str = "differential";

/// The namespace of everything; both servers have it.
const NAMESPACE: &str = "diff";

/// The names of the checks, for `--list`.
pub(crate) fn names() -> Vec<String> {
    kinds::all().into_iter().map(|kind| kind.name).collect()
}

/// Sends everything to both servers.
pub(crate) fn run(report: &mut Report, ours: &Client, theirs: &Client) {
    let mut run =
        Run { servers: [ours, theirs], allowed: Allowed::read(), requests: 0, equal: 0, excused: 0 };
    if let Err(error) = run.prepare() {
        let took = std::time::Duration::ZERO;
        return report.record(SUITE, "both servers have a namespace", took, Err(error));
    }
    for kind in kinds::all() {
        report.check(SUITE, &kind.name.clone(), || run.kind(&kind));
    }
    let Run { requests, equal, excused, .. } = run;
    let text = format!(
        "{requests} requests, {equal} answered equally, {excused} with differences that docs/differences.md explains, {} \
         with others",
        requests - equal - excused
    );
    report.note(SUITE, &text);
    for entry in run.allowed.unused() {
        report.note(SUITE, &format!("never seen: {entry}"));
    }
}

struct Run<'a> {
    /// Ours, and theirs.
    servers: [&'a Client; 2],
    allowed: Allowed,
    requests: usize,
    equal: usize,
    excused: usize,
}

/// An answer: its code and its body.
#[derive(Clone)]
struct Answer {
    code: u16,
    body: Value,
}

impl Run<'_> {
    fn prepare(&self) -> Result<()> {
        let namespace = serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}
        });
        for server in self.servers {
            let answer = send(server, "POST", "/api/v1/namespaces", JSON, Some(&namespace))?;
            if answer.code != 201 {
                bail!("no namespace: {}", answer.body);
            }
            for definition in kinds::definitions() {
                define(server, &definition)?;
            }
        }
        Ok(())
    }

    fn kind(&mut self, kind: &Kind) -> Result<()> {
        let mut found = Vec::new();
        self.creates(kind, &mut found)?;
        self.changes(kind, &mut found)?;
        let total = found.len();
        if total > 0 {
            bail!("{total} answers differ\n{}", found.join("\n"));
        }
        Ok(())
    }

    /// Good and bad objects, none of which stays.
    fn creates(&mut self, kind: &Kind, found: &mut Vec<String>) -> Result<()> {
        let path = format!("{}?dryRun=All", kind.path);
        for (name, object) in kind.good() {
            self.compare(kind, &format!("create {name}"), found, |server| {
                send(server, "POST", &path, JSON, Some(object))
            })?;
        }
        for (name, object) in kind.edited().into_iter().chain(mutate::all(kind)) {
            self.compare(kind, &format!("create with {name}"), found, |server| {
                send(server, "POST", &path, JSON, Some(&object))
            })?;
        }
        Ok(())
    }

    /// The life of one object: created, changed in many ways, deleted.
    fn changes(&mut self, kind: &Kind, found: &mut Vec<String>) -> Result<()> {
        let object = kind.living();
        let name = object["metadata"]["name"].as_str().context("objects have names")?.to_owned();
        let path = format!("{}/{name}", kind.path);
        self.compare(kind, "create", found, |server| send(server, "POST", &kind.path, JSON, Some(&object)))?;
        self.compare(kind, "create again", found, |server| {
            send(server, "POST", &kind.path, JSON, Some(&object))
        })?;
        for (edit, change) in kind.updates() {
            self.compare(kind, &format!("update with {edit}"), found, |server| {
                let mut object = send(server, "GET", &path, JSON, None)?.body;
                change.apply(&mut object);
                send(server, "PUT", &path, JSON, Some(&object))
            })?;
        }
        for (part, edit, change) in kind.part_updates() {
            self.compare(kind, &format!("update {part} with {edit}"), found, |server| {
                let mut object = send(server, "GET", &path, JSON, None)?.body;
                change.apply(&mut object);
                send(server, "PUT", &format!("{path}/{part}"), JSON, Some(&object))
            })?;
        }
        for (media, patch) in kind.patches() {
            let media = format!("application/{media}-patch+json");
            self.compare(kind, &format!("patch with {patch}"), found, |server| {
                send(server, "PATCH", &path, &media, Some(patch))
            })?;
        }
        self.compare(kind, "get", found, |server| send(server, "GET", &path, JSON, None))?;
        self.compare(kind, "delete", found, |server| send(server, "DELETE", &path, JSON, None))?;
        self.compare(kind, "delete again", found, |server| send(server, "DELETE", &path, JSON, None))
    }

    /// Lets both servers answer, and notes how the answers differ.
    fn compare(
        &mut self,
        kind: &Kind,
        what: &str,
        found: &mut Vec<String>,
        mut request: impl FnMut(&Client) -> Result<Answer>,
    ) -> Result<()> {
        let mut ask = |server| request(server).with_context(|| format!("{} {what}", kind.name));
        let [ours, theirs] = [ask(self.servers[0])?, ask(self.servers[1])?];
        self.requests += 1;
        let all = compare::answers(&ours, &theirs);
        let count = all.len();
        let subject = format!("{}: {what}", kind.name);
        let unexcused: Vec<Difference> =
            all.into_iter().filter(|difference| !self.allowed.excuses(&subject, difference)).collect();
        match (count, unexcused.len()) {
            (0, _) => self.equal += 1,
            (_, 0) => self.excused += 1,
            _ => {
                let lines: Vec<String> =
                    unexcused.iter().map(|difference| format!("    {difference}")).collect();
                found.push(format!("  {what}\n{}", lines.join("\n")));
            }
        }
        Ok(())
    }
}

/// Makes a custom resource known, and waits until it is served.
fn define(server: &Client, definition: &Value) -> Result<()> {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = send(server, "POST", DEFINITIONS, JSON, Some(definition))?;
    if answer.code != 201 {
        bail!("no definition: {}", answer.body);
    }
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version) = (text(&spec["group"]), text(&spec["versions"][0]["name"]));
    let path = format!("/apis/{group}/{version}/namespaces/{NAMESPACE}/{}", text(&spec["names"]["plural"]));
    let served = poll(Duration::from_secs(20), || {
        Ok((send(server, "GET", &path, JSON, None)?.code == 200).then_some(()))
    })?;
    served.with_context(|| format!("{path} is never served"))
}

const JSON: &str = "application/json";

fn send(server: &Client, method: &str, path: &str, media: &str, body: Option<&Value>) -> Result<Answer> {
    let response = server.exchange(method, path, media, body)?;
    let code = response.status;
    let text = response.text()?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(Answer { code, body })
}
