//! Audit logs.

use serde::Deserialize;

use super::{Rules, Target};
use crate::error::Error;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    verb: String,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<ObjectRef>,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
}

pub(super) fn read(log: &str, user: Option<&str>) -> Result<Rules, Error> {
    let mut rules = Rules::default();
    for (index, line) in log.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("line {}", index + 1);
        let event: Event =
            serde_json::from_str(line).map_err(|error| Error::new(&place, format!("not JSON: {error}")))?;
        if event.kind != "Event" || event.verb.is_empty() {
            return Err(Error::new(place, "not an Event of audit.k8s.io/v1"));
        }
        let name = &event.impersonated_user.as_ref().unwrap_or(&event.user).username;
        if user.is_none_or(|user| user == name) {
            add(&mut rules, event);
        }
    }
    Ok(rules)
}

fn add(rules: &mut Rules, event: Event) {
    match event.object_ref.filter(|object| !object.resource.is_empty()) {
        Some(ObjectRef { api_group, resource, subresource }) => {
            let resource =
                if subresource.is_empty() { resource } else { format!("{resource}/{subresource}") };
            rules.add(&api_group, &resource, &event.verb);
        }
        None => {
            let url = event.request_uri.split('?').next().unwrap_or_default();
            // Everybody may discover: system:discovery is bound to all who are authenticated.
            let is_open = ["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"]
                .iter()
                .any(|open| url == *open || url.starts_with(&format!("{open}/")));
            if !is_open {
                rules.verbs.entry(Target::Url(url.to_owned())).or_default().insert(event.verb);
            }
        }
    }
}
