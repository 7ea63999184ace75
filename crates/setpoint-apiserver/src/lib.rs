//! A Kubernetes API server in one small process, or inside a test.

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
