//! Server-side apply: this manager wants exactly these fields.

mod conflict;

use std::fmt::Debug;
use std::future::IntoFuture;

use futures::future::BoxFuture;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::conflict::{ApplyConflict, ApplyError};
use crate::ensure::to_json;

/// Server-side apply: the manager wants exactly the fields of `wanted`. What it applied before and does not mention any
/// more is removed, and what others own is left alone. Await it to send it.
///
/// A field that another manager owns with another value is a [conflict](ApplyError::Conflict), and nothing is written.
/// [`Apply::force`] takes such fields over; a controller does that for fields that are its own by design.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint::k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::kube::Api;
/// use setpoint::{ApplyError, apply};
///
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// let maps: Api<ConfigMap> = Api::default_namespaced(client);
/// let map = |color: &str| serde_json::from_value::<ConfigMap>(serde_json::json!({
///     "metadata": {"name": "settings"}, "data": {"color": color},
/// }));
/// apply(&maps, "painter", &map("red")?).await?;
///
/// let Err(ApplyError::Conflict(conflicts)) = apply(&maps, "decorator", &map("blue")?).await else { panic!() };
/// assert_eq!((conflicts[0].manager.as_str(), conflicts[0].field.as_str()), ("painter", ".data.color"));
///
/// let map = apply(&maps, "decorator", &map("blue")?).force().await?;
/// assert_eq!(map.data.unwrap()["color"], "blue");
/// # Ok(())
/// # }
/// ```
pub fn apply<'a, K>(api: &'a Api<K>, manager: &'a str, wanted: &'a K) -> Apply<'a, K>
where
    K: Resource + Serialize,
{
    Apply { api, manager, wanted, is_status: false, is_forced: false }
}

/// The same for the status of an object that is there: of `wanted`, its name and its status count. A controller whose
/// status others write as well applies its own fields and conditions, and leaves theirs alone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint::k8s_openapi::api::core::v1::Pod;
/// use setpoint::kube::Api;
/// use setpoint::{apply, apply_status};
///
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// let pods: Api<Pod> = Api::default_namespaced(client);
/// let mut pod: Pod = serde_json::from_value(serde_json::json!({
///     "metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "nginx"}]},
/// }))?;
/// apply(&pods, "example", &pod).await?;
/// pod.status = Some(serde_json::from_value(serde_json::json!({"message": "seen"}))?);
/// let pod = apply_status(&pods, "example", &pod).await?;
/// assert_eq!(pod.status.unwrap().message.as_deref(), Some("seen"));
/// # Ok(())
/// # }
/// ```
pub fn apply_status<'a, K>(api: &'a Api<K>, manager: &'a str, wanted: &'a K) -> Apply<'a, K>
where
    K: Resource + Serialize,
{
    Apply { api, manager, wanted, is_status: true, is_forced: false }
}

/// An apply that is not sent yet: made by [`apply`] and [`apply_status`], sent by `.await`.
#[derive(Debug)]
#[must_use = "nothing is applied before it is awaited"]
pub struct Apply<'a, K> {
    api: &'a Api<K>,
    manager: &'a str,
    wanted: &'a K,
    is_status: bool,
    is_forced: bool,
}

impl<K> Apply<'_, K> {
    /// Takes over what others own.
    pub fn force(mut self) -> Self {
        self.is_forced = true;
        self
    }
}

impl<'a, K> IntoFuture for Apply<'a, K>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    type Output = Result<K, ApplyError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Apply { api, manager, wanted, is_status, is_forced } = self;
        let (name, body) = (wanted.name_any(), body(wanted, is_status));
        let mut parameters = PatchParams::apply(manager);
        parameters.force = is_forced;
        Box::pin(async move {
            let body = Patch::Apply(body?);
            let answer = match is_status {
                true => api.patch_status(&name, &parameters, &body).await,
                false => api.patch(&name, &parameters, &body).await,
            };
            answer.map_err(ApplyError::from)
        })
    }
}

/// What is sent: no managedFields, which a server refuses here, and for a status nothing but the status.
fn body(wanted: &impl Serialize, is_status: bool) -> Result<Value, kube::Error> {
    let mut body = to_json(wanted)?;
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if is_status {
            metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace" | "uid"));
        }
    }
    if let Some(fields) = body.as_object_mut().filter(|_| is_status) {
        fields.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::Client;
    use serde_json::json;

    use super::*;

    fn client() -> Client {
        setpoint_apiserver::ApiServer::builder().build().client()
    }

    fn deployment(replicas: i32, image: &str) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": image}]}
                }
            }
        }))
        .unwrap()
    }

    fn with_condition(type_: &str) -> Deployment {
        let condition = json!({"type": type_, "status": "True", "reason": "R", "message": "m"});
        let mut wanted = deployment(9, "ignored");
        wanted.status = Some(serde_json::from_value(json!({"conditions": [condition]})).unwrap());
        wanted
    }

    #[tokio::test]
    async fn a_conflict_names_every_manager_and_field_and_nothing_is_written() {
        let api: Api<Deployment> = Api::default_namespaced(client());
        apply(&api, "one \"quoted\"", &deployment(1, "a")).await.unwrap();
        let refused = apply(&api, "two", &deployment(2, "b")).await.unwrap_err();
        let ApplyError::Conflict(conflicts) = &refused else { panic!("{refused:?}") };
        let named: Vec<_> = conflicts.iter().map(|found| (&*found.manager, &*found.field)).collect();
        let image = ".spec.template.spec.containers[name=\"web\"].image";
        assert_eq!(named, [("one \"quoted\"", ".spec.replicas"), ("one \"quoted\"", image)]);
        assert!(refused.to_string().contains("one \"quoted\" has .spec.replicas"), "{refused}");
        let live = api.get("web").await.unwrap();
        assert_eq!(live.spec.replicas, Some(1));
        let live = apply(&api, "two", &deployment(2, "b")).force().await.unwrap();
        assert_eq!(live.spec.replicas, Some(2));
    }

    #[tokio::test]
    async fn what_was_read_can_be_applied_and_a_conflict_of_versions_is_no_conflict_of_managers() {
        let api: Api<Deployment> = Api::default_namespaced(client());
        let mut live = apply(&api, "one", &deployment(1, "a")).await.unwrap();
        assert!(live.metadata.managed_fields.is_some());
        live = apply(&api, "one", &live).await.unwrap();
        live.metadata.resource_version = Some("1".to_owned());
        let refused = apply(&api, "one", &live).force().await.unwrap_err();
        assert!(
            matches!(&refused, ApplyError::Request(kube::Error::Api(status)) if status.code == 409),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn a_status_is_applied_alone_and_each_manager_keeps_its_conditions() {
        let api: Api<Deployment> = Api::default_namespaced(client());
        apply(&api, "one", &deployment(1, "a")).await.unwrap();
        apply_status(&api, "one", &with_condition("One")).await.unwrap();
        let live = apply_status(&api, "two", &with_condition("Two")).await.unwrap();
        assert_eq!(live.spec.replicas, Some(1), "the spec is not the status's");
        let conditions = live.status.unwrap().conditions.unwrap();
        let types: Vec<_> = conditions.iter().map(|condition| condition.type_.clone().unwrap()).collect();
        assert_eq!(types, ["One", "Two"]);
        let mut other = with_condition("One");
        other.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = Some("False".to_owned());
        let refused = apply_status(&api, "two", &other).await.unwrap_err();
        let ApplyError::Conflict(conflicts) = refused else { panic!("{refused:?}") };
        assert_eq!(conflicts[0].field, ".status.conditions[type=\"One\"].status");
    }
}
