//! Controllers against an API server on virtual time.

mod faults;
mod handlers;
mod helpers;
mod managing;
mod reconciling;
mod stopping;
mod support;
mod writes;
