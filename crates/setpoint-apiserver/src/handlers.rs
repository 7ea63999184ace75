//! One file a verb. Each handler reads from top to bottom as the request flow of ARCHITECTURE.md.

pub(crate) mod binding;
pub(crate) mod component_status;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod eviction;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod patch;
pub(crate) mod review;
pub(crate) mod scale;
pub(crate) mod token_request;
pub(crate) mod update;
pub(crate) mod watch;
