//! Controllers against an API server on virtual time.

mod faults;
mod helpers;
mod reconciling;
mod stopping;
mod support;
mod writes;
