//! Objects that are made when somebody asks.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::StatusCode;
use kube::Resource as KubeResource;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::status::{GroupResource, Status};
use crate::user::User;

/// What somebody asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Asked {
    /// Who asks. It is known already that they may.
    pub user: Arc<User>,
    /// In which namespace; none for all of them.
    pub namespace: Option<String>,
}

impl Asked {
    /// A question of this program's own, about all namespaces.
    pub fn by(user: User) -> Asked {
        Asked { user: Arc::new(user), namespace: None }
    }
}

/// Where objects come from that nobody keeps here.
///
/// Only [`list`](Resource::list) has to be written. Selectors, pages, tables and metadata alone are made of what it returns.
pub trait Resource: Send + Sync + 'static {
    /// The kind.
    type Object: KubeResource<DynamicType = ()> + Serialize + JsonSchema + Send + Sync + 'static;

    /// All objects in the namespace that is asked for.
    fn list(&self, asked: &Asked) -> impl Future<Output = Result<Vec<Self::Object>, Failure>> + Send;

    /// One object, if there is one. It is looked for in the list unless you know better.
    fn get(
        &self,
        asked: &Asked,
        name: &str,
    ) -> impl Future<Output = Result<Option<Self::Object>, Failure>> + Send {
        async move {
            let all = self.list(asked).await?;
            Ok(all.into_iter().find(|object| object.meta().name.as_deref() == Some(name)))
        }
    }
}

/// Why there are no objects: a code of HTTP and a sentence, which kubectl shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: StatusCode,
    message: String,
}

impl Failure {
    /// A failure that is this program's own (500).
    pub fn internal(message: impl std::fmt::Display) -> Failure {
        Failure { code: StatusCode::INTERNAL_SERVER_ERROR, message: message.to_string() }
    }

    /// What is asked for cannot be had at the moment (503).
    pub fn unavailable(message: impl std::fmt::Display) -> Failure {
        Failure { code: StatusCode::SERVICE_UNAVAILABLE, message: message.to_string() }
    }

    /// The question makes no sense (400).
    pub fn bad_request(message: impl std::fmt::Display) -> Failure {
        Failure { code: StatusCode::BAD_REQUEST, message: message.to_string() }
    }

    /// It is not for this user (403).
    pub fn forbidden(message: impl std::fmt::Display) -> Failure {
        Failure { code: StatusCode::FORBIDDEN, message: message.to_string() }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        let Failure { code, message } = failure;
        match code {
            StatusCode::SERVICE_UNAVAILABLE => Status::unavailable(message),
            StatusCode::BAD_REQUEST => Status::bad_request(message),
            StatusCode::FORBIDDEN => {
                Status::forbidden(GroupResource { group: "", resource: "" }, "", &message)
            }
            _ => Status::internal(message),
        }
    }
}

/// A [`Resource`] of any type: objects as JSON.
pub(crate) trait Source: Send + Sync {
    fn list<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, Result<Vec<Value>, Failure>>;
    fn get<'a>(&'a self, asked: &'a Asked, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Failure>>;
}

pub(super) struct Made<R>(pub(super) R);

impl<R: Resource> Source for Made<R> {
    fn list<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, Result<Vec<Value>, Failure>> {
        Box::pin(async move { self.0.list(asked).await?.iter().map(value).collect() })
    }

    fn get<'a>(&'a self, asked: &'a Asked, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(async move { self.0.get(asked, name).await?.as_ref().map(value).transpose() })
    }
}

/// An object with its kind.
pub(super) fn value<K: KubeResource<DynamicType = ()> + Serialize>(object: &K) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(object).map_err(Failure::internal)?;
    if !value["metadata"]["name"].is_string() {
        return Err(Failure::internal("an object that was made has no name"));
    }
    value["apiVersion"] = K::api_version(&()).into_owned().into();
    value["kind"] = K::kind(&()).into_owned().into();
    Ok(value)
}
