//! The workload controllers on virtual time, against the server in the same process.

mod batch_faults;
mod cron_jobs;
mod faults;
mod jobs;
mod kubelet;
mod rollouts;
mod stateful_sets;
mod support;
