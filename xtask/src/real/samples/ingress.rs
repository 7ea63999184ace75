//! The ingress manager with kubectl.

use anyhow::{Context, Result, ensure};

use super::Programs;
use super::stage::{LIMIT, Stage};

pub(crate) const NAME: &str = "ingress manager: an Ingress comes and goes with annotation and Service";

pub(crate) fn run(stage: &Stage, programs: &Programs) -> Result<()> {
    let mut command = programs.command("example-ingress-manager");
    command.args(["--ingress-class", "nginx", "--kubeconfig"]).arg(stage.kubeconfig());
    let _controller = stage.start(command, "ingress.log")?;
    scenario(stage).with_context(|| format!("the controller says:\n{}", stage.log("ingress.log")))
}

fn scenario(stage: &Stage) -> Result<()> {
    let exists = || Ok(stage.get("ingress web")?.is_some());
    stage.kubectl("create service clusterip web --tcp=80:8080")?;
    stage.kubectl("annotate service web ingress/http=true")?;
    stage.until("the ingress is there", LIMIT, exists)?;
    let ingress = stage.get("ingress web")?.context("it is gone")?;
    let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    ensure!(backend["name"] == "web" && backend["port"]["number"] == 80, "{backend}");
    ensure!(ingress["metadata"]["ownerReferences"][0]["kind"] == "Service");
    stage.kubectl("delete ingress web")?;
    stage.until("the ingress is back", LIMIT, exists)?;
    stage.kubectl("annotate service web ingress/http-")?;
    stage.until("the ingress went with the annotation", LIMIT, || exists().map(|exists| !exists))?;
    stage.kubectl("annotate service web ingress/http=true")?;
    stage.until("the ingress is there again", LIMIT, exists)?;
    stage.kubectl("delete service web")?;
    stage.until("the ingress went with the service", LIMIT, || exists().map(|exists| !exists))
}
