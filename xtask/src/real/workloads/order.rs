//! In which order pods come, become ready, are deleted and go, as a watch tells it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Kubectl, LIMIT};
use crate::real::process::Lines;

/// A pod that nobody touches and that never runs: whoever has seen it has seen all before it.
const END: &str = "zz-end-of-watch";
const END_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: zz-end-of-watch}
spec:
  schedulingGates: [{name: example.com/never}]
  containers: [{name: c, image: none}]
";

const COLUMNS: &str = "{.type}|{.object.metadata.uid}|{.object.metadata.name}|\
    {.object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values[0]}|\
    {.object.metadata.deletionTimestamp}|{.object.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}";

/// What pods are called in the story.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// By their names.
    Name,
    /// By the node that they are made for; which node is the first one is chance, so they are `A`, `B`, ….
    Node,
}

/// A watch of the pods of a namespace. Pods that are there when it begins are not told of.
pub(super) struct Order {
    lines: Lines,
    called: Called,
    known: BTreeMap<String, Known>,
    letters: BTreeMap<String, char>,
    story: Vec<Step>,
}

#[derive(Default)]
struct Known {
    is_ready: bool,
    is_going: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Created(String),
    Ready(String),
    Deleted(String),
    Gone(String),
}

impl Step {
    /// Whether a controller decided it.
    fn is_decision(&self) -> bool {
        matches!(self, Step::Created(_) | Step::Deleted(_))
    }

    fn kind(&self) -> std::mem::Discriminant<Step> {
        std::mem::discriminant(self)
    }

    fn tell(&self) -> String {
        match self {
            Step::Created(name) => format!("+{name}"),
            Step::Ready(name) => format!("!{name}"),
            Step::Deleted(name) => format!("-{name}"),
            Step::Gone(name) => format!("x{name}"),
        }
    }
}

impl Order {
    /// Begins, when it is sure that nothing is missed.
    pub(super) fn watch(kubectl: &Kubectl, called: Called) -> Result<Order> {
        let lines = kubectl.start(&format!("get pods -w --output-watch-events -o jsonpath='{COLUMNS}'"))?;
        let mut order =
            Order { lines, called, known: BTreeMap::new(), letters: BTreeMap::new(), story: Vec::new() };
        order.read_to_end(kubectl)?;
        order.story.clear();
        order.letters.clear();
        Ok(order)
    }

    /// Everything that has happened, one after another: `+a` came, `!a` was ready, `-a` was deleted, `xa` was gone.
    pub(super) fn all(mut self, kubectl: &Kubectl) -> Result<String> {
        self.read_to_end(kubectl)?;
        Ok(self.story.iter().map(Step::tell).collect::<Vec<_>>().join(" "))
    }

    /// The same without when pods were gone: whether a pod's end or its replacement is seen first is chance where a pod
    /// is replaced as soon as its containers have ended.
    pub(super) fn lives(mut self, kubectl: &Kubectl) -> Result<String> {
        self.read_to_end(kubectl)?;
        self.story.retain(|step| !matches!(step, Step::Gone(_)));
        Ok(self.story.iter().map(Step::tell).collect::<Vec<_>>().join(" "))
    }

    /// What controllers decided: creations and deletions. Those in a row are told in the order of names.
    pub(super) fn decisions(mut self, kubectl: &Kubectl) -> Result<String> {
        self.read_to_end(kubectl)?;
        let mut decisions: Vec<Step> = self.story.into_iter().filter(Step::is_decision).collect();
        for row in decisions.chunk_by_mut(|a, b| a.kind() == b.kind()) {
            row.sort();
        }
        Ok(decisions.iter().map(Step::tell).collect::<Vec<_>>().join(" "))
    }

    fn read_to_end(&mut self, kubectl: &Kubectl) -> Result<()> {
        kubectl.file("end.yaml", END_POD)?;
        kubectl.ok("create -f end.yaml")?;
        let deadline = Instant::now() + LIMIT;
        let mut has_come = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let line = self.lines.next(left).context("the watch of pods fell silent")?;
            match self.note(&line)? {
                Some("DELETED") => return Ok(()),
                Some(_) if !has_come => {
                    has_come = true;
                    kubectl.ok("delete -f end.yaml --force --grace-period=0")?;
                }
                _ => {}
            }
        }
    }

    /// Takes down a line; says the type of one about the last pod.
    fn note<'a>(&mut self, line: &'a str) -> Result<Option<&'a str>> {
        let [kind, uid, name, node, deleted, ready] = line.split('|').collect::<Vec<_>>()[..] else {
            bail!("the watch of pods printed {line:?}");
        };
        if name == END {
            return Ok(Some(kind));
        }
        let called = match self.called {
            Called::Name => name.to_owned(),
            Called::Node => {
                let next = char::from(b'A'.saturating_add(u8::try_from(self.letters.len())?));
                self.letters.entry(node.to_owned()).or_insert(next).to_string()
            }
        };
        if !self.known.contains_key(uid) {
            self.story.push(Step::Created(called.clone()));
        }
        let known = self.known.entry(uid.to_owned()).or_default();
        if ready == "True" && !known.is_ready {
            self.story.push(Step::Ready(called.clone()));
        }
        known.is_ready = ready == "True";
        if !deleted.is_empty() && !known.is_going {
            known.is_going = true;
            self.story.push(Step::Deleted(called.clone()));
        }
        if kind == "DELETED" {
            self.story.push(Step::Gone(called));
        }
        Ok(None)
    }
}
