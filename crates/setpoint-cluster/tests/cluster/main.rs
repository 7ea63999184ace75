//! The cluster in one process, on virtual time.

mod nodes;
mod scheduling;
mod support;
