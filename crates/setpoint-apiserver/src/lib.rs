//! A Kubernetes API server as a library. It runs in-process in a test, or serves HTTPS.
//!
//! It is an implementation of its own, compatible with kube-apiserver 1.37: the built-in kinds, CustomResourceDefinitions,
//! watches, server-side apply, admission webhooks and policies, RBAC, and API aggregation. It is for development and tests, not
//! for production clusters. The command `setpoint up` runs this library together with the built-in controllers.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, PostParams};
//! use setpoint_apiserver::ApiServer;
//!
//! let server = ApiServer::builder().build();
//! let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
//!
//! let mut map = ConfigMap::default();
//! map.metadata.name = Some("greeting".into());
//! maps.create(&PostParams::default(), &map).await?;
//! assert_eq!(maps.get("greeting").await?.metadata.namespace.as_deref(), Some("default"));
//! # Ok::<(), kube::Error>(())
//! # }).unwrap();
//! ```
//!
//! | you want | see |
//! | --- | --- |
//! | a server in memory | [`Builder::build`] |
//! | a server that keeps its objects on disk | [`Builder::open`]; backups are in [`store`] |
//! | a client in the same process, as administrator or as another user | [`ApiServer::client`], [`ApiServer::client_as`] |
//! | to serve HTTPS, with certificates and a kubeconfig | [`ApiServer::serve`], [`pki`], [`kubeconfig`] |
//! | tokens, RBAC, audit logs | [`TokenFile`], [`ServiceAccountTokens`], [`Authorization`], [`audit`] |
//! | an extension API server for your own kinds | [`extension`] |
//!
//! The server runs no controllers and no nodes: Deployments get no pods, and nothing is garbage collected. The crate
//! `setpoint-cluster` has controllers and simulated nodes. The crate `setpoint-sim` runs this server on virtual time, with
//! faults.

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod admission;
mod aggregation;
mod answer;
pub mod audit;
mod authenticate;
mod authorize;
mod background;
mod body;
mod bootstrap;
mod bounds;
mod cel;
mod contention;
mod convert;
mod definitions;
mod discovery;
mod dispatch;
pub mod extension;
mod field_error;
mod filters;
mod folder;
mod handlers;
mod health;
mod indent;
mod kinds;
pub mod kubeconfig;
mod kubernetes_service;
mod label_query;
mod lane;
mod limits;
mod logs;
mod managed_fields;
mod metadata;
mod metrics;
mod negotiate;
mod object;
mod openapi;
mod openid;
mod options;
mod patch;
pub mod pki;
pub mod quota;
mod rbac;
mod request;
mod resource;
mod response;
mod routes;
#[allow(dead_code, unused_imports, reason = "what checks definitions is being written")]
mod schema;
mod selection;
mod selector;
pub mod serve;
mod server;
mod status;
mod storage;
pub mod store;
mod strategy;
mod table;
mod task_set;
mod upstream;
mod user;
mod webhook;
mod writes;

pub use admission::{AdmissionPlugins, PluginError};
pub use authenticate::{
    FrontProxy, KeyError, PublicKey, ServiceAccountTokens, SigningKey, TokenFile, TokenFileError, TokenSigner,
};
pub use authorize::Authorization;
pub use kinds::network::{ServiceIpRanges, ServiceIpRangesError};
pub use logs::{LogLine, LogSource};
pub use response::Body;
pub use server::{ApiServer, AsUser, Builder};
pub use storage::{Committed, OpenError};
#[cfg(feature = "etcd")]
pub use storage::{EtcdError, EtcdOptions};
pub use user::User;
