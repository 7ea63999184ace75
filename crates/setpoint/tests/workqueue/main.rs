//! The work queue alone: no server, no Kubernetes types.

mod behaviour;
mod concurrent;
