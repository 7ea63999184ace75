//! A dashboard that shows the control loop of a manager, live in a browser: what each stage does, the history of each key,
//! objects and their field managers, and findings such as controllers that trigger themselves.
//!
//! It subscribes to the [facts](setpoint::facts) of a [`Manager`](setpoint::Manager). It writes nothing to the cluster.
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use setpoint::{Action, ClientConfig, Context, Controller, ObjectKey, ReconcileError};
//! use setpoint::Manager;
//! use setpoint_dashboard::{DashboardConfig, ManagerExt};
//!
//! # async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> { Ok(Action::done()) }
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = ClientConfig::new().connect().await?;
//! Manager::new(client)
//!     .controller(Controller::of::<ConfigMap>(.., "maps", reconcile))
//!     .dashboard(DashboardConfig::default()) // http://127.0.0.1:6480
//!     .stop_on_signals()
//!     .run()
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! On an address that other machines can reach, it requires a certificate ([`DashboardConfig::certificates`]), and every request
//! requires a bearer token. The API server authenticates the token (TokenReview), and authorizes its user to `get` the
//! non-resource URL `/dashboard` (SubjectAccessReview).

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod answer;
mod app;
mod assets;
mod config;
mod contents;
mod dashboard;
mod feed;
mod findings;
mod guard;
mod history;
mod manager;
mod objects;
mod ping_pong;
mod play;
mod query;
mod recorder;
mod routes;
mod subject;
mod tally;

pub use config::DashboardConfig;
pub use dashboard::{Dashboard, DashboardError, Listening};
pub use manager::ManagerExt;
pub use play::{Act, Button, Scene, Stage};
