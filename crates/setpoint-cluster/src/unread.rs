//! Writes whose answers nobody reads: what was stored comes with the watch anyway, so it is not decoded twice.

use serde::{Deserialize, Serialize};
use setpoint::kube::api::{Patch, PatchParams, PostParams};
use setpoint::kube::core::Request;
use setpoint::kube::{Client, Error, Resource};

/// Patches the status of an object.
pub(crate) async fn patch_status<K, P>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &P,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()>,
    P: Serialize,
{
    let request = Request::new(K::url_path(&(), Some(namespace)));
    let patch = Patch::Strategic(patch);
    let request = request.patch_subresource("status", name, &PatchParams::default(), &patch);
    client.request_text(request.map_err(Error::BuildRequest)?).await.map(drop)
}

/// Creates an object. Its name is all that is read of it.
pub(crate) async fn create<K>(client: &Client, namespace: &str, object: &K) -> Result<String, Error>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    #[derive(Deserialize)]
    struct Created {
        metadata: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), Some(namespace))).create(&PostParams::default(), body);
    let created: Created = client.request(request.map_err(Error::BuildRequest)?).await?;
    Ok(created.metadata.name)
}
