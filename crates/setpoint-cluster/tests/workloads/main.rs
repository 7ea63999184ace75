//! The workload controllers on virtual time, against the server in the same process.

mod kubelet;
mod rollouts;
mod support;
