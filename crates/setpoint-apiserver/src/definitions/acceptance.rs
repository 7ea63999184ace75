//! Which names a definition may have, and the conditions that say so.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::object;
use crate::strategy;

/// A definition whose status shall change.
pub(super) struct Wanted {
    /// Which of the definitions.
    pub index: usize,
    /// Its new state.
    pub object: Value,
}

/// The names that definitions of one group have.
#[derive(Default)]
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    fn add(&mut self, names: &Value) {
        let texts = |fields: &[&str]| {
            fields.iter().filter_map(|field| names[*field].as_str()).map(str::to_owned).collect::<Vec<_>>()
        };
        self.resources.extend(texts(&["plural", "singular"]));
        let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.resources.extend(short.map(str::to_owned));
        self.kinds.extend(texts(&["kind", "listKind"]));
    }
}

/// What is to be written. Names that a definition has already stay its own; of two that want the same, the older one
/// gets it.
pub(super) fn settle<'a>(all: impl Iterator<Item = &'a Value>, now: Timestamp) -> Vec<Wanted> {
    let mut all: Vec<(usize, Value)> = all.cloned().enumerate().collect();
    all.sort_by_key(|(_, object)| created(object));
    let mut wanted = Vec::new();
    for at in 0..all.len() {
        let group = all[at].1["spec"]["group"].clone();
        let mut taken = Taken::default();
        for (other, (_, object)) in all.iter().enumerate() {
            if other != at && object["spec"]["group"] == group {
                taken.add(&object["status"]["acceptedNames"]);
            }
        }
        let (index, object) = &mut all[at];
        let before = object.clone();
        settle_one(object, &taken, now);
        if *object != before {
            wanted.push(Wanted { index: *index, object: object.clone() });
        }
    }
    wanted
}

fn created(object: &Value) -> (String, u64) {
    let time = object::text(object, &["metadata", "creationTimestamp"]).unwrap_or_default().to_owned();
    let revision = object::text(object, &["metadata", "resourceVersion"]).and_then(|text| text.parse().ok());
    (time, revision.unwrap_or(0))
}

fn settle_one(object: &mut Value, taken: &Taken, now: Timestamp) {
    let spec = object["spec"]["names"].clone();
    let accepted = &object["status"]["acceptedNames"];
    if !same_names(&spec, accepted) || condition(object, "NamesAccepted").is_none() {
        let (names, conflict) = accept(&spec, accepted, taken);
        object["status"]["acceptedNames"] = names;
        let (status, reason, message) = match conflict {
            Some((reason, message)) => ("False", reason, message),
            None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        };
        set_condition(object, "NamesAccepted", status, reason, &message, now);
        if condition(object, "Established").is_none() {
            let message = "not all names are accepted";
            set_condition(object, "Established", "False", "NotAccepted", message, now);
        }
    }
    let is_true =
        |object: &Value, kind| condition(object, kind).is_some_and(|found| found["status"] == "True");
    if is_true(object, "NamesAccepted") && !is_true(object, "Established") {
        let message = "the initial names have been accepted";
        set_condition(object, "Established", "True", "InitialNamesAccepted", message, now);
    }
    set_approval(object, now);
}

fn same_names(spec: &Value, accepted: &Value) -> bool {
    let fields = ["plural", "singular", "kind", "listKind", "shortNames", "categories"];
    fields.iter().all(|field| spec.get(field) == accepted.get(field))
}

/// The names that it gets, and the last conflict with others.
fn accept(wanted: &Value, accepted: &Value, taken: &Taken) -> (Value, Option<(&'static str, String)>) {
    let mut names = accepted.clone();
    if !names.is_object() {
        names = Value::Object(Map::new());
    }
    let mut conflict = None;
    let in_use = |name: &str| format!("{name:?} is already in use");
    let mut one = |field: &str, reason, used: &BTreeSet<String>, names: &mut Value| {
        let Some(name) = wanted[field].as_str() else { return };
        if accepted[field] != wanted[field] && used.contains(name) {
            conflict = Some((reason, in_use(name)));
        } else {
            names[field] = wanted[field].clone();
        }
    };
    one("plural", "PluralConflict", &taken.resources, &mut names);
    one("singular", "SingularConflict", &taken.resources, &mut names);
    one("kind", "KindConflict", &taken.kinds, &mut names);
    one("listKind", "ListKindConflict", &taken.kinds, &mut names);
    if wanted.get("shortNames") != accepted.get("shortNames") {
        let own: Vec<&Value> = accepted["shortNames"].as_array().into_iter().flatten().collect();
        let short = wanted["shortNames"].as_array().into_iter().flatten();
        let used: Vec<String> = short
            .filter(|name| !own.contains(name))
            .filter_map(Value::as_str)
            .filter(|name| taken.resources.contains(*name))
            .map(in_use)
            .collect();
        match used.as_slice() {
            [] => copy(wanted, &mut names, "shortNames"),
            // A conflict of kinds is told last, so it hides this one.
            _ if conflict.as_ref().is_some_and(|(reason, _)| reason.contains("Kind")) => {}
            [one] => conflict = Some(("ShortNamesConflict", one.clone())),
            many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
        }
    }
    copy(wanted, &mut names, "categories");
    (names, conflict)
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => drop(to.as_object_mut().and_then(|to| to.remove(field))),
    }
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|found| found["type"] == kind)
}

/// Sets a condition; its time changes when its status does.
pub(super) fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let time = match condition(object, kind) {
        Some(found) if found["status"] == status => found["lastTransitionTime"].clone(),
        _ => strategy::timestamp(now),
    };
    let new = json!({
        "type": kind, "status": status, "lastTransitionTime": time, "reason": reason, "message": message
    });
    let status = &mut object["status"];
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Value::Array(conditions) = &mut status["conditions"] else { return };
    match conditions.iter_mut().find(|found| found["type"] == kind) {
        Some(found) => *found = new,
        None => conditions.push(new),
    }
}

/// Kubernetes' own groups are for APIs that its community has approved.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// How a definition stands with the rule about Kubernetes' own groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Missing,
    Invalid,
    Approved,
    Bypassed,
}

/// Whether a group is one of Kubernetes' own.
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

/// The approval that the annotation of a definition speaks of, and what to say about it.
pub(crate) fn approval(definition: &Value) -> (Approval, String) {
    let text = definition["metadata"]["annotations"][APPROVAL].as_str().unwrap_or_default();
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && rest.split(['/', '?', '#']).next().is_some_and(|host| !host.is_empty())
    });
    if text.is_empty() {
        (Approval::Missing, format!("protected groups must have approval annotation {APPROVAL:?}, {see}"))
    } else if text.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {text:?}"))
    } else if is_url {
        (Approval::Approved, format!("approved in {text}"))
    } else {
        let message = format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason \
             starting with \"unapproved\", {see}"
        );
        (Approval::Invalid, message)
    }
}

fn set_approval(object: &mut Value, now: Timestamp) {
    if !object["spec"]["group"].as_str().is_some_and(is_protected) {
        return;
    }
    let (approval, message) = approval(object);
    let (status, reason) = match approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Invalid => ("Unknown", "UnknownAnnotation"),
    };
    set_condition(object, "KubernetesAPIApprovalPolicyConformant", status, reason, &message, now);
}
