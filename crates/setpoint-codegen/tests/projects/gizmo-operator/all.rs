//! All tests of the project in one program.

#[path = "tests/explore.rs"]
mod explore;
#[allow(dead_code, reason = "its `main` writes the manifests")]
#[path = "examples/manifests.rs"]
mod manifests;
#[path = "tests/rbac.rs"]
mod rbac;
#[path = "tests/reconcile.rs"]
mod reconcile;
#[path = "tests/webhook.rs"]
mod webhook;
