//! Controllers against an API server on virtual time.

mod conditions;
mod ensure;
mod faults;
mod handlers;
mod helpers;
mod holding;
mod managing;
mod reconciling;
mod stopping;
mod support;
mod terms;
mod unknown;
mod writes;
