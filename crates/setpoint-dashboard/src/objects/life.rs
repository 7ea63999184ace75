//! One object, as it changes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::HeaderMap;
use kube::Client;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint::{Deleted, HandlerFns, Held, ObjectKey, Registration, SharedInformer};
use setpoint_env::Env;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::app::App;
use crate::feed::event;

/// How many states wait for a slow page; of more, the newest are left out until it has read.
const MOST: usize = 64;
/// How often something is sent though nothing happens, so that a connection that is gone is noticed.
const QUIET: Duration = Duration::from_secs(10);
/// What takes the place of what a Secret contains.
const HIDDEN: &str = "(hidden)";

/// The states of one object, from now on, as long as this lives.
pub(crate) struct Life {
    _informer: SharedInformer<DynamicObject>,
    _handler: Registration,
    states: mpsc::Receiver<Value>,
}

impl Life {
    /// Watches this one object.
    pub(super) fn begin(client: Client, env: Env, resource: &ApiResource, key: &ObjectKey) -> Life {
        let mut builder = SharedInformer::dynamic(client, resource)
            .env(env.clone())
            .field_selector(format!("metadata.name={}", key.name()))
            .keep_managed_fields();
        if let Some(namespace) = key.namespace() {
            builder = builder.namespace(namespace);
        }
        let informer = builder.build();
        let (sender, states) = mpsc::channel(MOST);
        let is_secret = resource.plural == "secrets" && resource.group.is_empty();
        let tell = move |what: &str, object: &Held<DynamicObject>| {
            let mut value = json!(**object.object());
            if is_secret {
                hide(&mut value);
            }
            let at = env.now().as_millisecond();
            // A page that is too slow sees the next state; this one is in the diff to it.
            let _full = sender.try_send(json!({"what": what, "at": at, "object": value}));
        };
        let tell = Arc::new(tell);
        let (added, updated, deleted) = (tell.clone(), tell.clone(), tell);
        let handler = HandlerFns::new()
            .on_add(move |object, _| added("added", object))
            .on_update(move |_, new| updated("updated", new))
            .on_delete(move |gone: &Deleted<DynamicObject>| deleted("deleted", &gone.object));
        let handler = informer.add_handler(handler);
        informer.start();
        Life { _informer: informer, _handler: handler, states }
    }

    /// The states as events.
    pub(crate) fn stream(
        self,
        app: Arc<App>,
        headers: HeaderMap,
        place: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Bytes> + Send {
        futures::stream::unfold((self, app, headers, place), async |(mut life, app, headers, place)| {
            let shutdown = app.shutdown.clone();
            let next = tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                next = timeout(QUIET, life.states.recv()) => next,
            };
            let mut text = String::new();
            match next {
                Ok(Some(state)) => event(&mut text, "object", None, &state.to_string()),
                Ok(None) => return None,
                Err(_) if app.guard.admit(&headers).await.is_err() => return None,
                Err(_) => text.push_str(": still here\n\n"),
            }
            Some((text.into(), (life, app, headers, place)))
        })
    }
}

/// Takes away what a Secret contains, and leaves the names of it.
fn hide(secret: &mut Value) {
    for part in ["data", "stringData"] {
        if let Some(Value::Object(entries)) = secret.get_mut(part) {
            entries.values_mut().for_each(|value| *value = HIDDEN.into());
        }
    }
    if let Some(Value::Object(annotations)) = secret.pointer_mut("/metadata/annotations") {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_secret_contains_is_hidden_also_where_kubectl_has_copied_it() {
        let mut secret = json!({
            "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"}},
            "data": {"password": "aHVudGVyMg=="}, "stringData": {"password": "hunter2"}, "type": "Opaque",
        });
        hide(&mut secret);
        let text = secret.to_string();
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
        assert!(text.contains("password") && text.contains("\"a\":\"b\""), "{text}");
    }
}
