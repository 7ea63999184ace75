//! Requests for certificates: who asks, what for, and what became of it.

mod pkcs10;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::at::{At, items, same};
use super::difference;
use super::fill::part_or_new;
use crate::strategy::Part;
use crate::user::User;
pub(crate) use pkcs10::organizations;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
/// A signer that only an older version of the API knows.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const SHORTEST: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Who asks is never the client's to say.
pub(super) fn prepare_create(request: &mut Value) {
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
        for field in ["username", "uid", "groups", "extra"] {
            spec.remove(field);
        }
    }
}

/// Notes who asks.
pub(super) fn identify(request: &mut Value, user: &User) {
    prepare_create(request);
    let Some(fields) = request.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    let mut note = |field: &str, value: Value, is_empty: bool| {
        if !is_empty {
            spec.insert(field.to_owned(), value);
        }
    };
    note("username", user.name.as_str().into(), user.name.is_empty());
    note("uid", user.uid.as_str().into(), user.uid.is_empty());
    note("groups", user.groups.clone().into(), user.groups.is_empty());
    let extra: Map<String, Value> =
        user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
    note("extra", extra.into(), user.extra.is_empty());
}

/// Sets the times of conditions that come without. The path of the status leaves decisions as they are.
pub(super) fn prepare_update(request: &mut Value, old: &Value, part: Part, now: &Value) {
    let before = items(&old["status"]["conditions"]);
    let conditions = request.get_mut("status").and_then(|status| status.get_mut("conditions"));
    let Some(conditions) = conditions.and_then(Value::as_array_mut) else { return };
    match part {
        Part::Status => {
            keep_decisions(conditions, before, APPROVED);
            keep_decisions(conditions, before, DENIED);
        }
        Part::Approval => {}
        _ => return,
    }
    let is_unset = |value: Option<&Value>| value.is_none_or(Value::is_null);
    let state = |condition: &Map<String, Value>| {
        let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("type"), text("status"))
    };
    let mut since = BTreeMap::new();
    for old in before.iter().filter_map(Value::as_object) {
        if let Some(time) = old.get("lastTransitionTime").filter(|time| !time.is_null()) {
            since.entry(state(old)).or_insert(time);
        }
    }
    for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
        if is_unset(condition.get("lastUpdateTime")) {
            condition.insert("lastUpdateTime".to_owned(), now.clone());
        }
        if is_unset(condition.get("lastTransitionTime")) {
            let time = since.get(&state(condition)).copied().unwrap_or(now);
            condition.insert("lastTransitionTime".to_owned(), time.clone());
        }
    }
}

/// As long as none comes or goes, the decisions of a type are the old ones.
fn keep_decisions(conditions: &mut [Value], before: &[Value], name: &str) {
    let old: Vec<&Value> = of_type(before, name).collect();
    if of_type(conditions, name).count() != old.len() {
        return;
    }
    let new = conditions.iter_mut().filter(|condition| condition["type"] == name);
    new.zip(old).for_each(|(new, old)| *new = old.clone());
}

fn of_type<'a>(conditions: &'a [Value], name: &str) -> impl Iterator<Item = &'a Value> {
    conditions.iter().filter(move |condition| condition["type"] == name)
}

pub(super) fn validate(request: &At, old: Option<&Value>, part: Part) {
    let null = Value::Null;
    let before = old.unwrap_or(&null);
    validate_spec(&request.field("spec"), &before["spec"]);
    let status = request.field("status");
    let conditions = status.field("conditions");
    validate_conditions(&conditions, items(&before["status"]["conditions"]));
    let certificate = status.field("certificate");
    let old_certificate = before["status"]["certificate"].as_str().unwrap_or_default();
    let is_tolerated = old.is_some() && certificate.text() == old_certificate
        || pkcs10::check_certificates(old_certificate).is_err();
    if !is_tolerated && let Err(why) = pkcs10::check_certificates(certificate.text()) {
        certificate.invalid_as("<certificate data>", why);
    }
    if let Some(old) = old {
        validate_decisions(&conditions, items(&old["status"]["conditions"]), part);
        if certificate.text() != old_certificate {
            if part != Part::Status {
                certificate.forbidden("updates may not set certificate content");
            } else if !old_certificate.is_empty() {
                certificate.forbidden("updates may not modify existing certificate content");
            }
        }
    }
}

/// What is wrong with a stored request is tolerated, since it cannot be changed any more.
fn validate_spec(spec: &At, old: &Value) {
    let request = spec.field("request");
    if let Err(why) = pkcs10::check_request(request.text()) {
        request.invalid_text(why);
    }
    let usages = spec.field("usages");
    if usages.is_empty() {
        usages.required("");
    }
    let is_known = |usage: &Value| usage.as_str().is_some_and(|usage| USAGES.contains(&usage));
    if items(&old["usages"]).iter().all(is_known) {
        usages
            .items()
            .filter(|usage| !is_known(usage.value()))
            .for_each(|usage| usage.not_supported(&USAGES));
    }
    if !has_duplicates(items(&old["usages"]).iter()) {
        let mut seen = BTreeSet::new();
        usages.items().filter(|usage| !seen.insert(usage.text())).for_each(|usage| usage.duplicate());
    }
    let signer = spec.field("signerName");
    if signer.text() == LEGACY_SIGNER && old["signerName"] != LEGACY_SIGNER {
        signer.invalid("the legacy signerName is not allowed via this API version");
    } else {
        signer.signer_name();
    }
    let expiration = spec.field("expirationSeconds");
    if expiration.number().is_some_and(|seconds| seconds < SHORTEST) {
        expiration.invalid("may not specify a duration less than 600 seconds (10 minutes)");
    }
}

fn has_duplicates<'a>(values: impl Iterator<Item = &'a Value>) -> bool {
    let mut seen = BTreeSet::new();
    values.into_iter().any(|value| !seen.insert(value.as_str().unwrap_or_default()))
}

fn validate_conditions(conditions: &At, old: &[Value]) {
    let is_tolerated = |name: &str| of_type(old, name).next().is_some();
    let tolerates_both = is_tolerated(APPROVED) && is_tolerated(DENIED);
    let tolerates_empty = old.iter().any(|condition| condition["type"].as_str().is_none_or(str::is_empty));
    let tolerates_duplicates = has_duplicates(old.iter().map(|condition| &condition["type"]));
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let name = condition.field("type");
        if name.is_empty() && !tolerates_empty {
            name.required("");
        }
        let is_final = [APPROVED, DENIED, FAILED].contains(&name.text());
        let status = condition.field("status");
        let allowed: &[&str] = if is_final { &["True"] } else { &["False", "True", "Unknown"] };
        if status.has_text() && !allowed.contains(&status.text()) {
            status.not_supported(allowed);
        }
        let other = match name.text() {
            APPROVED => DENIED,
            DENIED => APPROVED,
            _ => "",
        };
        if !tolerates_both && !other.is_empty() && seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            conditions.invalid_as(name.text(), detail);
        }
        if !seen.insert(name.text()) && !tolerates_duplicates {
            name.duplicate_as(name.text());
        }
    }
}

/// A decision stays, and only `/approval` makes one.
fn validate_decisions(conditions: &At, old: &[Value], part: Part) {
    let of = |name: &str| -> (Vec<&Value>, Vec<&Value>) {
        (of_type(items(conditions.value()), name).collect(), of_type(old, name).collect())
    };
    for name in [APPROVED, DENIED, FAILED] {
        let (new, old) = of(name);
        if new.len() < old.len() {
            conditions.forbidden(format!("updates may not remove a condition of type {name:?}"));
        }
    }
    if part == Part::Approval {
        return;
    }
    for name in [APPROVED, DENIED] {
        let (new, old) = of(name);
        if new.len() > old.len() {
            conditions.forbidden(format!("updates may not add a condition of type {name:?}"));
        } else if new.len() == old.len()
            && let Some((new, old)) = new.iter().zip(&old).find(|(new, old)| !same(new, old))
        {
            let difference = difference::of(old, new);
            conditions
                .forbidden(format!("updates may not modify a condition of type {name:?}\n{difference}"));
        }
    }
}
