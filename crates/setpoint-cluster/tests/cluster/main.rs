//! The cluster in one process, on virtual time.

mod autoscaling;
mod certificates;
mod collecting;
mod controllers;
mod custom;
mod daemon_sets;
mod determinism;
mod evictions;
mod faults;
mod loudness;
mod namespaces;
mod nodes;
mod quiet;
mod quotas;
mod rollout;
mod scheduling;
mod services;
mod support;
mod token_secrets;
mod volumes;
