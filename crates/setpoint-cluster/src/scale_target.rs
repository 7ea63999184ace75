//! What can be scaled: any kind that has a scale subresource.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::core::{ApiResource, DynamicObject, Expression, Selector};
use kube::{Api, Client, discovery};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::failure;

/// How long the server may take to tell its kinds.
const LIMIT: Duration = Duration::from_secs(30);

/// The kinds that were asked for before.
#[derive(Default)]
pub(crate) struct Targets(Mutex<BTreeMap<(String, String), ApiResource>>);

fn kind_of(reference: &CrossVersionObjectReference) -> (String, String) {
    let version = reference.api_version.as_deref().unwrap_or_default();
    let (group, _) = version.split_once('/').unwrap_or(("", version));
    (group.to_owned(), reference.kind.clone())
}

impl Targets {
    /// The resource of a kind, in the version that is the most stable.
    pub(crate) async fn find(
        &self,
        client: &Client,
        reference: &CrossVersionObjectReference,
    ) -> Result<ApiResource, String> {
        let key = kind_of(reference);
        if let Some(found) = self.0.lock().get(&key) {
            return Ok(found.clone());
        }
        let (group, kind) = &key;
        let unknown = || format!("no matches for kind {kind:?} in group {group:?}");
        let found = match timeout(LIMIT, discovery::group(client, group)).await {
            Ok(Ok(found)) => found.recommended_kind(kind).map(|(resource, _)| resource),
            Ok(Err(kube::Error::Discovery(_))) => None,
            Ok(Err(error)) => return Err(failure::message(&error)),
            Err(_) => return Err("the server does not tell its kinds".to_owned()),
        };
        let found = found.ok_or_else(unknown)?;
        self.0.lock().insert(key, found.clone());
        Ok(found)
    }

    /// Asks again next time: the kind may have another version, or be gone.
    pub(crate) fn forget(&self, reference: &CrossVersionObjectReference) {
        self.0.lock().remove(&kind_of(reference));
    }

    /// The objects of a kind.
    pub(crate) async fn api(
        &self,
        client: &Client,
        namespace: &str,
        reference: &CrossVersionObjectReference,
    ) -> Result<Api<DynamicObject>, String> {
        let resource = self.find(client, reference).await?;
        Ok(Api::namespaced_with(client.clone(), namespace, &resource))
    }

    /// The annotations of an object.
    pub(crate) async fn annotations(
        &self,
        client: &Client,
        namespace: &str,
        reference: &CrossVersionObjectReference,
    ) -> Result<BTreeMap<String, String>, String> {
        let resource = self.find(client, reference).await?;
        let api: Api<DynamicObject> = if reference.kind == "Namespace" {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), namespace, &resource)
        };
        let name = if reference.kind == "Namespace" { namespace } else { &reference.name };
        let found = api.get_metadata(name).await.map_err(|error| failure::message(&error))?;
        Ok(found.metadata.annotations.unwrap_or_default())
    }
}

/// Reads a selector as a scale has it: `app=web,tier in (a, b),!old`.
pub(crate) fn selector(text: &str) -> Result<Selector, String> {
    let wrong = || format!("unable to parse requirement: {text}");
    let mut expressions = Vec::new();
    for part in parts(text) {
        let part = part.trim();
        let set = |rest: &str| -> Option<std::collections::BTreeSet<String>> {
            let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
            Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
        };
        let expression = if let Some(key) = part.strip_prefix('!') {
            Expression::DoesNotExist(key.trim().to_owned())
        } else if let Some((key, value)) = part.split_once("!=") {
            Expression::NotEqual(key.trim().to_owned(), value.trim().to_owned())
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            Expression::Equal(key.trim().to_owned(), value.trim().to_owned())
        } else if let Some((key, rest)) = part.split_once(" notin ") {
            Expression::NotIn(key.trim().to_owned(), set(rest).ok_or_else(wrong)?)
        } else if let Some((key, rest)) = part.split_once(" in ") {
            Expression::In(key.trim().to_owned(), set(rest).ok_or_else(wrong)?)
        } else if part.is_empty() || part.contains([' ', '(', ')']) {
            return Err(wrong());
        } else {
            Expression::Exists(part.to_owned())
        };
        expressions.push(expression);
    }
    Ok(expressions.into_iter().collect())
}

/// The requirements of a selector: commas within parentheses belong to a value.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt;

    use super::*;

    #[test]
    fn a_selector_is_read_as_the_server_writes_it() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let web = labels(&[("app", "web"), ("tier", "a")]);
        for (text, matches) in [
            ("app=web", true),
            ("app==web,tier in (a, b)", true),
            ("app=web,tier notin (a,b)", false),
            ("app,!old", true),
            ("!app", false),
            ("app!=web", false),
            ("tier!=b", true),
        ] {
            assert_eq!(selector(text).unwrap().matches(&web), matches, "{text}");
        }
        for wrong in ["a in b", "a b", ","] {
            assert!(selector(wrong).is_err(), "{wrong}");
        }
    }
}
