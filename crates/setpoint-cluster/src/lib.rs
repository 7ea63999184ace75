//! The built-in controllers of Kubernetes, a scheduler and simulated nodes: Deployments roll out and pods become ready, without a
//! kubelet or a container.
//!
//! [`Cluster`] runs them on one set of informer caches, against any API server or with one in the same process. Every controller
//! is written with `setpoint`'s public API, in a file of its own. [`Controllers`] selects controllers, and [`NodeConfig`] sets
//! the capacity and the timing of nodes.
//!
//! ```
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
//! # rt.block_on(async {
//! use setpoint_cluster::Cluster;
//!
//! // With tokio's paused time, hours pass in milliseconds.
//! let cluster = Cluster::in_process().await?;
//! let client = cluster.client(); // a kube::Client
//! # drop(client);
//! cluster.stop().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod caches;
mod certificates;
mod cluster;
mod controllers;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoint_slice;
mod endpoint_slice_mirroring;
mod endpoints;
mod ephemeral_volume;
mod failure;
mod garbage_collector;
mod hash;
mod history;
mod horizontal_pod_autoscaler;
mod job;
mod namespace;
pub mod node;
mod node_lifecycle;
mod number;
mod owned;
mod pace;
mod persistent_volume_binder;
mod pod;
mod pod_control;
mod pod_gc;
mod replica_set;
mod replication_controller;
mod resource_quota;
mod root_ca;
mod scale_target;
mod scheduler;
mod selected;
mod service_account;
mod service_account_token;
mod stateful_set;
mod taint_eviction;
mod time;
mod ttl_after_finished;
mod typed;
mod unread;
mod volume_protection;

pub use cluster::{Builder, Cluster, ClusterError};
pub use controllers::{Controllers, UnknownController};
pub use node::{Delays, NodeConfig, Nodes};
