//! What is known about one request.

use std::sync::Arc;

use http::header;
use http::request::Parts;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use setpoint_env::Env;

use super::policy::Level;
use super::{Audit, PeerAddress, without_managed_fields};
use crate::authorize::Attributes;
use crate::handlers::review::user_info;
use crate::server::Core;
use crate::user::User;

/// A request on its way, as the log will tell it.
#[derive(Debug)]
pub(crate) struct Pending {
    level: Level,
    omitted: Vec<&'static str>,
    omit_managed_fields: bool,
    received: Timestamp,
    /// The event so far.
    fields: Map<String, Value>,
}

impl Pending {
    pub(super) fn new(env: &Env, parts: &Parts) -> Pending {
        let mut fields = Map::new();
        let id = parts.headers.get("audit-id").and_then(|value| value.to_str().ok());
        // A client may name its request, but not at any length.
        let id = id.filter(|id| !id.is_empty() && id.len() <= 64).map_or_else(|| env.uuid(), str::to_owned);
        fields.insert("auditID".into(), id.into());
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
        fields.insert("requestURI".into(), uri.into());
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        if let Some(agent) = agent {
            fields.insert("userAgent".into(), agent.chars().take(1024).collect::<String>().into());
        }
        if let Some(PeerAddress(address)) = parts.extensions.get() {
            fields.insert("sourceIPs".into(), json!([address.ip().to_string()]));
        }
        Pending {
            level: Level::None,
            omitted: Vec::new(),
            omit_managed_fields: false,
            received: env.now(),
            fields,
        }
    }

    pub(super) fn identify(
        &mut self,
        user: &User,
        attributes: &Attributes,
        version: &str,
        level: Level,
        omitted: Vec<&'static str>,
        omit_managed_fields: bool,
    ) {
        (self.level, self.omitted, self.omit_managed_fields) = (level, omitted, omit_managed_fields);
        if level == Level::None {
            return;
        }
        self.fields.insert("verb".into(), attributes.verb.as_str().into());
        self.fields.insert("user".into(), user_info(user));
        if attributes.path.is_none() {
            let parts = [
                ("resource", attributes.resource.as_str()),
                ("namespace", &attributes.namespace),
                ("name", &attributes.name),
                ("apiGroup", &attributes.group),
                ("apiVersion", version),
                ("subresource", &attributes.subresource),
            ];
            let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
            let reference: Map<String, Value> =
                parts.map(|(field, value)| (field.to_owned(), value.into())).collect();
            self.fields.insert("objectRef".into(), reference.into());
        }
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Who is acted as.
    pub(crate) fn impersonates(&mut self, user: &User) {
        self.fields.insert("impersonatedUser".into(), user_info(user));
    }

    /// Whether it was allowed, and why.
    pub(crate) fn decided(&mut self, allowed: bool, reason: &str) {
        let decision = if allowed { "allow" } else { "forbid" };
        self.fields.insert(
            "annotations".into(),
            json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason}),
        );
    }

    pub(crate) fn answered(&mut self, code: u16, message: Option<&str>) {
        let mut status = json!({"metadata": {}, "code": code});
        if let Some(message) = message {
            status["status"] = "Failure".into();
            status["message"] = message.into();
        }
        self.fields.insert("responseStatus".into(), status);
    }

    pub(crate) fn requested(&mut self, object: Value) {
        let object = if self.omit_managed_fields { without_managed_fields(object) } else { object };
        self.fields.insert("requestObject".into(), object);
    }

    pub(crate) fn responded(&mut self, object: Value) {
        let object = if self.omit_managed_fields { without_managed_fields(object) } else { object };
        self.fields.insert("responseObject".into(), object);
    }

    /// The event of a stage as a line, unless the policy leaves it out.
    pub(super) fn line(&self, env: &Env, stage: &'static str) -> Option<Vec<u8>> {
        if self.level == Level::None || self.omitted.contains(&stage) {
            return None;
        }
        let time = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let mut event = Map::new();
        event.insert("kind".into(), "Event".into());
        event.insert("apiVersion".into(), "audit.k8s.io/v1".into());
        event.insert("level".into(), self.level.as_str().into());
        event.insert("stage".into(), stage.into());
        event.extend(self.fields.clone());
        event.insert("requestReceivedTimestamp".into(), time(self.received).into());
        event.insert("stageTimestamp".into(), time(env.now()).into());
        let mut line = serde_json::to_vec(&event).ok()?;
        line.push(b'\n');
        Some(line)
    }
}

/// Tells the end of a response that goes on after it has begun.
#[derive(Debug)]
pub(crate) struct Ending {
    pub core: Arc<Core>,
    pub pending: Pending,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(audit) = &self.core.audit {
            Audit::stage_now(audit, &self.pending, "ResponseComplete");
        }
    }
}
