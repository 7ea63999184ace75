//! Admission reviews → typed requests → verdicts.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::core::Resource;
use kube::core::admission::{AdmissionRequest, AdmissionReview};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Handler, NotAReview};

/// What a validating webhook thinks of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a verdict counts when the handler returns it"]
pub struct Verdict {
    denial: Option<(u16, String)>,
    warnings: Vec<String>,
    audit: Map<String, Value>,
}

impl Verdict {
    /// The request may go on.
    pub fn allow() -> Verdict {
        Verdict { denial: None, warnings: Vec::new(), audit: Map::new() }
    }

    /// The request is refused (403); whoever sent it reads `why`.
    pub fn deny(why: impl Into<String>) -> Verdict {
        Verdict { denial: Some((403, why.into())), ..Verdict::allow() }
    }

    /// Refuses with another HTTP code than 403. A verdict that allows stays as it is.
    pub fn code(mut self, code: u16) -> Verdict {
        if let Some((denial, _)) = &mut self.denial {
            *denial = code;
        }
        self
    }

    /// Adds a warning that the sender reads, whether the request goes on or not.
    pub fn warn(mut self, text: impl Into<String>) -> Verdict {
        self.warnings.push(text.into());
        self
    }

    /// Adds an annotation to the audit log's entry for this request.
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Verdict {
        self.audit.insert(key.into(), Value::String(value.into()));
        self
    }

    fn response(self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": self.denial.is_none()});
        if let Some((code, message)) = self.denial {
            response["status"] = json!({"code": code, "message": message});
        }
        if !self.warnings.is_empty() {
            response["warnings"] = self.warnings.into();
        }
        if !self.audit.is_empty() {
            response["auditAnnotations"] = self.audit.into();
        }
        response
    }
}

/// What a mutating webhook makes of an object.
#[derive(Clone, Debug)]
#[must_use = "a mutation counts when the handler returns it"]
pub struct Mutation<K> {
    object: Option<K>,
    verdict: Verdict,
}

impl<K> Mutation<K> {
    /// The object as it shall be.
    pub fn to(object: K) -> Mutation<K> {
        Mutation { object: Some(object), verdict: Verdict::allow() }
    }

    /// The object stays as it is.
    pub fn none() -> Mutation<K> {
        Mutation { object: None, verdict: Verdict::allow() }
    }

    /// The request is refused.
    pub fn deny(why: impl Into<String>) -> Mutation<K> {
        Verdict::deny(why).into()
    }

    /// Adds a warning that the sender reads.
    pub fn warn(mut self, text: impl Into<String>) -> Mutation<K> {
        self.verdict = self.verdict.warn(text);
        self
    }
}

impl<K> From<Verdict> for Mutation<K> {
    fn from(verdict: Verdict) -> Mutation<K> {
        Mutation { object: None, verdict }
    }
}

/// A handler that is asked for its verdict.
pub(super) fn validating<K, Fut>(
    handler: impl Fn(AdmissionRequest<K>) -> Fut + Send + Sync + 'static,
) -> Handler
where
    K: Resource + DeserializeOwned + Send + 'static,
    Fut: Future<Output = Verdict> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |review| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let uid = uid_of(&review)?;
            let verdict = match request_of(review) {
                Ok(request) => handler(request).await,
                Err(verdict) => verdict,
            };
            Ok(answer(verdict.response(&uid)))
        })
    })
}

/// A handler that may change the object.
pub(super) fn mutating<K, Fut>(
    handler: impl Fn(AdmissionRequest<K>) -> Fut + Send + Sync + 'static,
) -> Handler
where
    K: Resource + Serialize + DeserializeOwned + Send + 'static,
    Fut: Future<Output = Mutation<K>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |review| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let uid = uid_of(&review)?;
            let raw = review["request"]["object"].clone();
            let request: AdmissionRequest<K> = match request_of(review) {
                Ok(request) => request,
                Err(verdict) => return Ok(answer(verdict.response(&uid))),
            };
            // What the type makes of the object without a change, so that only changes count.
            let before = json_of(&request.object);
            let Mutation { object, verdict } = handler(request).await;
            let mut response = verdict.response(&uid);
            if let Some(after) = object.map(|object| json_of(&object))
                && response["allowed"] == true
            {
                let patch = json_patch::diff(&raw, &carry(&raw, &before, &after));
                if !patch.0.is_empty() {
                    let patch = serde_json::to_vec(&patch).expect("a JSON patch always serialises");
                    response["patchType"] = "JSONPatch".into();
                    response["patch"] = STANDARD.encode(patch).into();
                }
            }
            Ok(answer(response))
        })
    })
}

fn json_of<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn uid_of(review: &Value) -> Result<String, NotAReview> {
    let refuse =
        |why: &str| NotAReview(format!("this is not an AdmissionReview of admission.k8s.io/v1: {why}"));
    if review["kind"] != "AdmissionReview" || review["apiVersion"] != "admission.k8s.io/v1" {
        return Err(refuse(&format!("it is {} of {}", review["kind"], review["apiVersion"])));
    }
    let uid = review["request"]["uid"].as_str().ok_or_else(|| refuse("its request has no uid"))?;
    Ok(uid.to_owned())
}

/// The typed request, or the refusal of an object that is not of the type.
fn request_of<K: Resource + DeserializeOwned>(review: Value) -> Result<AdmissionRequest<K>, Verdict> {
    let refuse = |why: String| Verdict::deny(format!("the webhook cannot read the object: {why}")).code(400);
    let review: AdmissionReview<K> =
        serde_json::from_value(review).map_err(|error| refuse(error.to_string()))?;
    review.try_into().map_err(|error| refuse(format!("{error}")))
}

fn answer(response: Value) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}

/// `raw` with the changes that lead from `before` to `after`, two states of a type that may know less than
/// what is in `raw`, or more.
fn carry(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            let mut carried = raw.clone();
            carried.retain(|name, _| !before.contains_key(name) || after.contains_key(name));
            for (name, wanted) in after {
                match (raw.get(name), before.get(name)) {
                    (None, Some(known)) if known == wanted => {}
                    (Some(found), Some(known)) => {
                        carried.insert(name.clone(), carry(found, known, wanted));
                    }
                    _ => {
                        carried.insert(name.clone(), wanted.clone());
                    }
                }
            }
            Value::Object(carried)
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() && before.len() <= after.len() =>
        {
            let kept =
                raw.iter().zip(before).zip(after).map(|((raw, before), after)| carry(raw, before, after));
            Value::Array(kept.chain(after[before.len()..].iter().cloned()).collect())
        }
        _ => after.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: Value, before: Value, after: Value, expect: Value) {
        assert_eq!(carry(&raw, &before, &after), expect);
    }

    #[test]
    fn what_the_type_does_not_know_stays() {
        check(
            json!({"a": 1, "unknown": {"x": 1}}),
            json!({"a": 1}),
            json!({"a": 2, "b": 3}),
            json!({"a": 2, "b": 3, "unknown": {"x": 1}}),
        );
    }

    #[test]
    fn what_the_type_adds_by_itself_is_no_change() {
        let default = json!({"a": 1, "replicas": 1});
        check(json!({"a": 1}), default.clone(), json!({"a": 2, "replicas": 1}), json!({"a": 2}));
        check(json!({"a": 1}), default, json!({"a": 1, "replicas": 3}), json!({"a": 1, "replicas": 3}));
    }

    #[test]
    fn a_field_that_was_taken_out_goes() {
        check(
            json!({"a": 1, "b": 2, "u": 3}),
            json!({"a": 1, "b": 2}),
            json!({"a": 1}),
            json!({"a": 1, "u": 3}),
        );
    }

    #[test]
    fn items_keep_what_the_type_does_not_know() {
        check(
            json!([{"name": "c", "u": 1}]),
            json!([{"name": "c"}]),
            json!([{"name": "c", "image": "x"}, {"name": "side"}]),
            json!([{"name": "c", "u": 1, "image": "x"}, {"name": "side"}]),
        );
    }
}
