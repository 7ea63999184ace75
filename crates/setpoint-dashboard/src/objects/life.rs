//! One object, as it changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::HeaderMap;
use kube::Client;
use kube::core::DynamicObject;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::{Deleted, Facts, HandlerFns, Held, ObjectKey, Registration, ScopedResource, SharedInformer};
use setpoint_env::Env;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::app::App;
use crate::feed::event;
use crate::routes::may_get;

/// How many states wait for a slow page; of more, the oldest are left out.
const MOST: usize = 64;
/// How often something is sent though nothing happens, so that a connection that is gone is noticed.
const QUIET: Duration = Duration::from_secs(10);
/// How often it is asked whether somebody may still see this, however much happens.
const REVIEW: Duration = Duration::from_secs(10);
/// What takes the place of what a Secret contains.
const HIDDEN: &str = "(hidden)";

/// The states of one object, from now on, as long as this lives.
pub(crate) struct Life {
    _informer: SharedInformer<DynamicObject>,
    _handler: Registration,
    states: Arc<States>,
    resource: String,
    key: ObjectKey,
}

/// States on their way to a page. Of a page that is too slow, those go that others have followed: the last one arrives.
#[derive(Default)]
struct States {
    waiting: Mutex<VecDeque<Value>>,
    news: Notify,
}

impl States {
    fn push(&self, state: Value) {
        let mut waiting = self.waiting.lock();
        if waiting.len() == MOST {
            waiting.pop_front();
        }
        waiting.push_back(state);
        drop(waiting);
        self.news.notify_one();
    }

    async fn next(&self) -> Value {
        loop {
            if let Some(state) = self.waiting.lock().pop_front() {
                return state;
            }
            self.news.notified().await;
        }
    }
}

/// A page that looks at a life.
struct Telling {
    life: Life,
    app: Arc<App>,
    headers: HeaderMap,
    reviewed: Instant,
    _place: OwnedSemaphorePermit,
}

impl Life {
    /// Watches this one object. What happens has the time of `facts`.
    pub(super) fn begin(
        client: Client,
        env: Env,
        facts: Facts,
        resource: &ScopedResource,
        key: &ObjectKey,
    ) -> Life {
        let mut builder = SharedInformer::dynamic(client, resource)
            .env(env)
            .field_selector(format!("metadata.name={}", key.name()))
            .keep_managed_fields();
        if let Some(namespace) = key.namespace() {
            builder = builder.namespace(namespace);
        }
        let informer = builder.build();
        let states: Arc<States> = Arc::default();
        let is_secret = resource.name() == "secrets";
        let sender = states.clone();
        let tell = move |what: &str, object: &Held<DynamicObject>| {
            let mut value = json!(**object.object());
            if is_secret {
                hide(&mut value);
            }
            sender.push(json!({"what": what, "at": facts.now().as_millisecond(), "object": value}));
        };
        let tell = Arc::new(tell);
        let (added, updated, deleted) = (tell.clone(), tell.clone(), tell);
        let handler = HandlerFns::new()
            .on_add(move |object, _| added("added", object))
            .on_update(move |_, new| updated("updated", new))
            .on_delete(move |gone: &Deleted<DynamicObject>| deleted("deleted", &gone.object));
        let handler = informer.add_handler(handler);
        informer.start();
        let (resource, key) = (resource.name(), key.clone());
        Life { _informer: informer, _handler: handler, states, resource, key }
    }

    /// The states as events, as long as whoever has these headers may see the object.
    pub(crate) fn stream(
        self,
        app: Arc<App>,
        headers: HeaderMap,
        place: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Bytes> + Send {
        let reviewed = app.env.instant();
        let telling = Telling { life: self, app, headers, reviewed, _place: place };
        futures::stream::unfold(telling, async |mut telling| {
            let text = telling.next().await?;
            Some((text.into(), telling))
        })
    }
}

impl Telling {
    async fn next(&mut self) -> Option<String> {
        let shutdown = self.app.shutdown.clone();
        let next = tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            next = timeout(QUIET, self.life.states.next()) => next,
        };
        if !self.may_go_on().await {
            return None;
        }
        let mut text = String::new();
        match next {
            Ok(state) => event(&mut text, "object", None, &state.to_string()),
            Err(_) => text.push_str(": still here\n\n"),
        }
        Some(text)
    }

    /// Whether the page and the object may still be seen.
    async fn may_go_on(&mut self) -> bool {
        let now = self.app.env.instant();
        if now.saturating_duration_since(self.reviewed) < REVIEW {
            return true;
        }
        self.reviewed = now;
        let Life { resource, key, .. } = &self.life;
        match self.app.guard.admit(&self.headers).await {
            Ok(who) => may_get(&self.app, who.as_ref(), resource, key).await.is_ok(),
            Err(_) => false,
        }
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
    use std::pin::pin;

    use futures::StreamExt;
    use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
    use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
    use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
    use serde::de::DeserializeOwned;
    use setpoint::webhook::Certificates;
    use setpoint_apiserver::{ApiServer, Authorization};

    use super::*;
    use crate::DashboardConfig;

    fn new<T: DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).unwrap()
    }

    /// A server with an object that changes, and the page of a process that reads it.
    async fn page(server: &ApiServer, config: DashboardConfig) -> (Arc<App>, Api<ConfigMap>) {
        let (env, client) = (Env::system(), server.client());
        let app = App::new(&Facts::new(env.clone()), client.clone(), env, config.all_kinds());
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.create(&PostParams::default(), &new(json!({"metadata": {"name": "web"}}))).await.unwrap();
        (Arc::new(app), maps)
    }

    async fn change(maps: &Api<ConfigMap>, n: usize) {
        let patch = Patch::Merge(json!({"data": {"n": n.to_string()}}));
        maps.patch("web", &PatchParams::default(), &patch).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_too_slow_learns_the_end_of_what_happened() {
        let (app, maps) = page(&ApiServer::builder().build(), DashboardConfig::default()).await;
        let life = app.objects.life("configmaps", &"default/web".into()).await.unwrap();
        let place = app.streams.clone().try_acquire_owned().unwrap();
        let mut states = pin!(life.stream(app, HeaderMap::new(), place));
        assert!(String::from_utf8_lossy(&states.next().await.unwrap()).contains("\"what\":\"added\""));
        for n in 0..3 * MOST {
            change(&maps, n).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        maps.delete("web", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut seen = 0;
        let last = loop {
            let next = String::from_utf8_lossy(&states.next().await.unwrap()).into_owned();
            if next.starts_with(':') || next.contains("\"what\":\"deleted\"") {
                break next;
            }
            seen += 1;
        };
        assert!(last.contains("\"what\":\"deleted\""), "the last that was told after {seen} others: {last}");
        assert_eq!(seen, MOST - 1, "the newest of those before");
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_read_an_object_any_more_is_told_no_more_though_it_changes_all_the_time() {
        let server = ApiServer::builder().authorization(Authorization::Rbac).build();
        let client = server.client();
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        let params = PostParams::default();
        accounts.create(&params, &new(json!({"metadata": {"name": "viewer"}}))).await.unwrap();
        let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) =
            (Api::all(client.clone()), Api::all(client));
        for (name, rule) in [
            ("page", json!({"nonResourceURLs": ["/dashboard"], "verbs": ["get"]})),
            ("maps", json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})),
        ] {
            let role = json!({"metadata": {"name": name}, "rules": [rule]});
            roles.create(&params, &new(role)).await.unwrap();
            let binding = json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
            });
            bindings.create(&params, &new(binding)).await.unwrap();
        }
        let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let token = accounts.create_token_request("viewer", &params, &request).await.unwrap();
        let bearer = format!("Bearer {}", token.status.unwrap().token.unwrap());
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, bearer.parse().unwrap())]);
        let (certificates, _) = Certificates::self_signed(["127.0.0.1"]).unwrap();
        let config =
            DashboardConfig::default().listen("0.0.0.0:0".parse().unwrap()).certificates(certificates);
        let (app, maps) = page(&server, config).await;
        let may_see = app.guard.admit(&headers).await.unwrap();
        let key = ObjectKey::from("default/web");
        may_get(&app, may_see.as_ref(), "configmaps", &key).await.unwrap();
        let life = app.objects.life("configmaps", &key).await.unwrap();
        let place = app.streams.clone().try_acquire_owned().unwrap();
        let mut states = pin!(life.stream(app, headers, place));
        let mut told = 0;
        for n in 0..200 {
            change(&maps, n).await;
            if n == 60 {
                bindings.delete("maps", &DeleteParams::default()).await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            match states.next().await {
                Some(_) => told = n,
                None => break,
            }
        }
        assert!((60..120).contains(&told), "the last that was told is {told}");
    }

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
