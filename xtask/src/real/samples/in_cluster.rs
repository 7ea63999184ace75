//! Foo as a pod runs it: no kubeconfig, a service account's token and CA, and no more rights than its RBAC gives.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Programs;
use super::foo::{CRD, EXAMPLE, install};
use super::stage::{LIMIT, Stage};
use crate::kubeconfig::Kubeconfig;

pub(crate) const NAME: &str = "foo: in-cluster style, with the rights of its service account alone";

const RBAC: &str = include_str!("../../../../examples/foo/manifests/rbac.yaml");
/// Where a pod finds them.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub(crate) fn run(stage: &Stage, programs: &Programs) -> Result<()> {
    install(stage, CRD, "foos.samplecontroller.k8s.io")?;
    stage.kubectl_with("apply -f -", Some(RBAC))?;
    let token = stage.kubectl("create token foo-controller --duration=1h")?;
    let kubeconfig = Kubeconfig::read(stage.kubeconfig())?;
    let (host, port) = kubeconfig.address.rsplit_once(':').context("the address has no port")?;
    let files = stage.folder().join("serviceaccount");
    fs::create_dir_all(&files)?;
    fs::write(files.join("token"), token.trim())?;
    fs::write(files.join("ca.crt"), &kubeconfig.ca)?;
    fs::write(files.join("namespace"), "default")?;

    // A mount namespace of its own has the files where a pod has them, and nobody else sees it.
    let script = format!(
        "mount -t tmpfs none /var/run && mkdir -p {MOUNT} && mount --bind \"$1\" {MOUNT} && \
         unset KUBECONFIG && HOME=/nonexistent exec \"$2\""
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(&files).arg(programs.command("example-foo").get_program());
    command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
    let _controller = stage.start(command, "in-cluster.log")?;
    let outcome = scenario(stage);
    outcome.with_context(|| format!("the controller says:\n{}", stage.log("in-cluster.log")))
}

fn scenario(stage: &Stage) -> Result<()> {
    stage.kubectl_with("apply -f -", Some(EXAMPLE))?;
    let is_available = |replicas: i64| {
        let found = stage.get("foo example-foo")?;
        Ok(found.is_some_and(|found| found["status"]["availableReplicas"] == replicas))
    };
    stage.until("its replica is available", LIMIT, || is_available(1))?;
    stage.kubectl("patch foo example-foo --type=merge -p '{\"spec\":{\"replicas\":2}}'")?;
    stage.until("two replicas are available", LIMIT, || is_available(2))?;
    stage.until("its event was written", LIMIT, || {
        Ok(stage.kubectl("describe foo example-foo")?.contains("Foo synced successfully"))
    })?;
    let log = stage.log("in-cluster.log");
    ensure!(!log.contains("forbidden"), "it may do too little:\n{log}");
    // What it may not do, it cannot.
    let can_delete = "auth can-i delete deployments --as=system:serviceaccount:default:foo-controller";
    ensure!(stage.kubectl_fails(can_delete, None).is_ok(), "it may delete Deployments");
    stage.kubectl("delete foo example-foo")?;
    stage.until("the deployment went with it", LIMIT, || Ok(stage.get("deployment example-foo")?.is_none()))
}
