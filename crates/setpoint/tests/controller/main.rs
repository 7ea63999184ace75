//! Controllers against an API server on virtual time.

mod conditions;
mod ensure;
mod facts;
mod faults;
mod handlers;
mod helpers;
mod holding;
mod inventory;
mod managing;
mod reasons;
mod reconciling;
mod reviewing;
mod stopping;
mod support;
mod terms;
mod testing;
mod unknown;
mod watching;
mod why;
mod writes;
