//! The cluster in one process, on virtual time.

mod certificates;
mod collecting;
mod custom;
mod daemon_sets;
mod evictions;
mod faults;
mod loudness;
mod namespaces;
mod nodes;
mod quiet;
mod rollout;
mod scheduling;
mod services;
mod support;
mod volumes;
