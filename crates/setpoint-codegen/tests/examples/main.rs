//! The roles of the examples are enough, and least: a scenario of each passes as the service account that they are bound
//! to, and fails when any one verb on any one resource is taken away.

mod first_controller;
mod foo;
mod ingress_manager;
mod labs;
mod network;
#[path = "../../../../examples/network/tests/network/scripted.rs"]
#[expect(dead_code, reason = "the example's own tests use the rest")]
mod neutron;
mod scene;
mod webhooks;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use futures::future::BoxFuture;
use setpoint::Permissions;
use setpoint_codegen::rbac;

use crate::scene::Scene;

/// An example, and what it needs.
struct Example {
    folder: &'static str,
    account: &'static str,
    permissions: fn() -> Permissions,
    /// Uses everything that it is allowed.
    scenario: fn(Scene) -> BoxFuture<'static, Result<()>>,
}

const EXAMPLES: &[Example] = &[
    Example {
        folder: "first-controller",
        account: "greeting",
        permissions: first_controller::permissions,
        scenario: |scene| Box::pin(first_controller::scenario(scene)),
    },
    Example {
        folder: "foo",
        account: "foo-controller",
        permissions: foo::permissions,
        scenario: |scene| Box::pin(foo::scenario(scene)),
    },
    Example {
        folder: "ingress-manager",
        account: "ingress-manager",
        permissions: ingress_manager::permissions,
        scenario: |scene| Box::pin(ingress_manager::scenario(scene)),
    },
    Example {
        folder: "network",
        account: "network-controller",
        permissions: network::permissions,
        scenario: |scene| Box::pin(network::scenario(scene)),
    },
    Example {
        folder: "webhooks",
        account: "example-webhooks",
        permissions: webhooks::permissions,
        scenario: |scene| Box::pin(webhooks::scenario(scene)),
    },
    Example {
        folder: "labs",
        account: "labs",
        permissions: labs::permissions,
        scenario: |scene| Box::pin(labs::scenario(scene)),
    },
];

const NAMESPACE: &str = "default";

impl Example {
    fn manifests(&self, permissions: &Permissions) -> Result<String> {
        Ok(rbac::manifests(self.account, NAMESPACE, permissions)?)
    }

    /// Both on servers that stream lists and on those that do not.
    fn passes(&self, permissions: &Permissions) -> Result<()> {
        let roles = self.manifests(permissions)?;
        for streams in [true, false] {
            Scene::run(&roles, self.account, streams, self.scenario)
                .with_context(|| format!("the server streams lists: {streams}"))?;
        }
        Ok(())
    }
}

/// The same without one verb on one resource.
fn without(permissions: &Permissions, left_out: (&str, &str, setpoint::Verb)) -> Permissions {
    let mut rest = Permissions::default();
    rest.certificates = permissions.certificates.clone();
    for (group, resource, verbs) in permissions.iter() {
        let kept: Vec<_> =
            verbs.iter().copied().filter(|&verb| (group, resource, verb) != left_out).collect();
        if !kept.is_empty() {
            rest.add(group, resource, &kept);
        }
    }
    rest
}

#[test]
fn the_committed_roles_are_those_that_are_declared() -> Result<()> {
    for example in EXAMPLES {
        let path = format!("examples/{}/manifests/rbac.yaml", example.folder);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&path);
        let how = "SETPOINT_BLESS=1 cargo test -p setpoint-codegen --test examples";
        let text = format!(
            "# Made from what the code declares: {how}\n{}",
            example.manifests(&(example.permissions)())?
        );
        if std::env::var_os("SETPOINT_BLESS").is_some() {
            std::fs::create_dir_all(file.parent().context("a folder")?)?;
            std::fs::write(&file, &text)?;
        }
        let committed = std::fs::read_to_string(&file).with_context(|| path.clone())?;
        ensure!(committed == text, "{path} is stale: run `{how}`");
    }
    Ok(())
}

#[test]
fn the_roles_are_enough() -> Result<()> {
    for example in EXAMPLES {
        example.passes(&(example.permissions)()).with_context(|| example.folder)?;
    }
    Ok(())
}

#[test]
fn no_verb_can_be_taken_away() -> Result<()> {
    let mut needless = Vec::new();
    for example in EXAMPLES {
        let permissions = (example.permissions)();
        for (group, resource, verbs) in permissions.iter() {
            for &verb in verbs {
                if example.passes(&without(&permissions, (group, resource, verb))).is_ok() {
                    needless.push(format!("{}: {} {resource} {group}", example.folder, verb.as_str()));
                }
            }
        }
    }
    ensure!(needless.is_empty(), "not needed:\n{}", needless.join("\n"));
    Ok(())
}
