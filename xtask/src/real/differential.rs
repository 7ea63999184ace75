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
mod script;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::allowed::Allowed;
use self::compare::Difference;
use self::kinds::Kind;
use self::script::Script;
use super::http::Client;
use super::process::poll;
use super::report::Report;

pub(crate) const SUITE: &str = "differential";

/// The namespace of everything; both servers have it.
pub(super) const NAMESPACE: &str = "diff";

/// The names of the checks, for `--list`.
pub(crate) fn names() -> Vec<String> {
    let scripts = script::all().into_iter().map(|script| script.name);
    kinds::all().into_iter().map(|kind| kind.name).chain(scripts).collect()
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
        report.check(SUITE, &kind.name, || run.kind(&kind));
    }
    for script in script::all() {
        report.check(SUITE, &script.name, || run.script(&script));
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

/// Creates every good object of the test data on one server; how many there are.
pub(super) fn furnish(server: &Client) -> Result<usize> {
    let namespace =
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let answer = send(server, "POST", "/api/v1/namespaces", JSON, Some(&namespace))?;
    if answer.code != 201 {
        bail!("no namespace: {}", answer.body);
    }
    for definition in kinds::definitions() {
        define(server, &definition)?;
    }
    let mut created = 0;
    for kind in kinds::all() {
        if let Some(definition) = kind.definition() {
            define(server, definition)?;
        }
        for (_, object) in kind.good() {
            created += usize::from(send(server, "POST", &kind.path, JSON, Some(object))?.code == 201);
        }
    }
    Ok(created)
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
        self.define(kind.definition())?;
        self.creates(kind, &mut found)?;
        self.changes(kind, &mut found)?;
        none(&found)
    }

    /// Steps in their order, on objects that stay until a step deletes them.
    fn script(&mut self, script: &Script) -> Result<()> {
        let mut found = Vec::new();
        self.define(script.definition())?;
        for step in script.steps() {
            self.compare(&script.name, &step.title, &mut found, |server| step.send(server, &script.path))?;
            if step.redefines() {
                std::thread::sleep(REDEFINE_TIME);
            }
        }
        none(&found)
    }

    /// Both servers get a CustomResourceDefinition, if there is one.
    fn define(&self, definition: Option<&Value>) -> Result<()> {
        let Some(definition) = definition else { return Ok(()) };
        self.servers.iter().try_for_each(|server| define(server, definition))
    }

    /// Good and bad objects, none of which stays.
    fn creates(&mut self, kind: &Kind, found: &mut Vec<String>) -> Result<()> {
        let path = format!("{}?dryRun=All", kind.path);
        for (name, object) in kind.good() {
            self.compare(&kind.name, &format!("create {name}"), found, |server| {
                send(server, "POST", &path, JSON, Some(object))
            })?;
        }
        for (name, object) in kind.edited().into_iter().chain(mutate::all(kind)) {
            self.compare(&kind.name, &format!("create with {name}"), found, |server| {
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
        self.compare(&kind.name, "create", found, |server| {
            send(server, "POST", &kind.path, JSON, Some(&object))
        })?;
        if kind.path == DEFINITIONS {
            self.servers.iter().try_for_each(|server| served(server, &object))?;
        }
        self.compare(&kind.name, "create again", found, |server| {
            send(server, "POST", &kind.path, JSON, Some(&object))
        })?;
        for (edit, change) in kind.updates() {
            self.compare(&kind.name, &format!("update with {edit}"), found, |server| {
                let mut object = send(server, "GET", &path, JSON, None)?.body;
                change.apply(&mut object);
                send(server, "PUT", &path, JSON, Some(&object))
            })?;
        }
        for (part, edit, change) in kind.part_updates() {
            self.compare(&kind.name, &format!("update {part} with {edit}"), found, |server| {
                let mut object = send(server, "GET", &path, JSON, None)?.body;
                change.apply(&mut object);
                send(server, "PUT", &format!("{path}/{part}"), JSON, Some(&object))
            })?;
        }
        for (media, patch) in kind.patches() {
            let media = format!("application/{media}-patch+json");
            self.compare(&kind.name, &format!("patch with {patch}"), found, |server| {
                send(server, "PATCH", &path, &media, Some(patch))
            })?;
        }
        self.compare(&kind.name, "get", found, |server| send(server, "GET", &path, JSON, None))?;
        self.compare(&kind.name, "delete", found, |server| send(server, "DELETE", &path, JSON, None))?;
        self.compare(&kind.name, "delete again", found, |server| send(server, "DELETE", &path, JSON, None))
    }

    /// Lets both servers answer, and notes how the answers differ.
    fn compare(
        &mut self,
        subject: &str,
        what: &str,
        found: &mut Vec<String>,
        mut request: impl FnMut(&Client) -> Result<Answer>,
    ) -> Result<()> {
        let mut ask = |server| request(server).with_context(|| format!("{subject}: {what}"));
        let [ours, theirs] = [ask(self.servers[0])?, ask(self.servers[1])?];
        self.requests += 1;
        let all = compare::answers(&ours, &theirs);
        let count = all.len();
        let subject = format!("{subject}: {what}");
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

/// A server gets a CustomResourceDefinition, and serves it.
fn define(server: &Client, definition: &Value) -> Result<()> {
    let answer = send(server, "POST", DEFINITIONS, JSON, Some(definition))?;
    if answer.code != 201 {
        bail!("no definition: {}", answer.body);
    }
    served(server, definition)
}

const JSON: &str = "application/json";

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How long a server may take until it serves what was defined.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(20);

/// After this, kube-apiserver has heard of a changed definition; nothing that it answers says so.
const REDEFINE_TIME: Duration = Duration::from_secs(2);

/// Waits until the objects of a definition can be listed: kube-apiserver's controllers need some moments.
fn served(server: &Client, definition: &Value) -> Result<()> {
    let text = |at: &str| definition.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = (text("/spec/group"), text("/spec/versions/0/name"));
    let objects = format!("/apis/{group}/{version}/{}", text("/spec/names/plural"));
    let own = format!("{DEFINITIONS}/{}", text("/metadata/name"));
    let found = poll(ESTABLISH_LIMIT, || {
        let state = send(server, "GET", &own, JSON, None)?.body;
        let conditions = state["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let established =
            conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True");
        Ok((established && send(server, "GET", &objects, JSON, None)?.code == 200).then_some(()))
    })?;
    found.with_context(|| format!("{objects} is never served"))
}

/// Nothing must be found.
fn none(found: &[String]) -> Result<()> {
    match found.len() {
        0 => Ok(()),
        total => bail!("{total} answers differ\n{}", found.join("\n")),
    }
}

fn send(server: &Client, method: &str, path: &str, media: &str, body: Option<&Value>) -> Result<Answer> {
    let response = server.exchange(method, path, media, body)?;
    let code = response.status;
    let text = response.text()?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(Answer { code, body })
}
