//! kubectl explain: the OpenAPI documents as people read them.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "explain: kinds and fields", run: fields },
    Scenario { name: "explain: --recursive", run: recursive },
    Scenario { name: "explain: every kind", run: every_kind },
    Scenario { name: "explain: unknown fields and kinds", run: unknown },
];

fn fields(k: &Kubectl) -> Result<()> {
    k.mentions(
        "explain pod",
        &[
            "KIND:       Pod\nVERSION:    v1\n",
            "DESCRIPTION:\n    Pod is a collection of containers",
            "FIELDS:\n  apiVersion\t<string>",
        ],
    )?;
    k.mentions(
        "explain pod.spec.containers.image",
        &[
            "KIND:       Pod\nVERSION:    v1\n",
            "FIELD: image <string>\n",
            "DESCRIPTION:\n    Container image name.",
        ],
    )?;
    k.mentions(
        "explain deployment.spec.template.spec",
        &[
            "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n",
            "FIELD: spec <PodSpec>\n",
            "containers\t<[]Container> -required-\n",
        ],
    )?;
    k.mentions("explain hpa --api-version=autoscaling/v1", &["VERSION:    v1\n", "DESCRIPTION:"])?;
    k.mentions("explain svc.spec.ports.targetPort", &["FIELD: targetPort <IntOrString>"])?;
    k.mentions("explain pod.spec.containers.resources.limits", &["FIELD: limits <map[string]Quantity>"])
}

fn recursive(k: &Kubectl) -> Result<()> {
    k.mentions(
        "explain deployment --recursive",
        &[
            "FIELDS:\n  apiVersion\t<string>\n",
            "    annotations\t<map[string]string>\n",
            "  spec\t<DeploymentSpec> -required-\n",
            "    replicas\t<integer>\n",
            "      spec\t<PodSpec>\n",
            "        containers\t<[]Container> -required-\n",
            "          args\t<[]string>\n",
            "  status\t<DeploymentStatus>\n",
        ],
    )?;
    k.mentions(
        "explain crd.spec.versions --recursive",
        &["FIELD: versions <[]CustomResourceDefinitionVersion>", "openAPIV3Schema"],
    )
}

/// No kind is left without words.
fn every_kind(k: &Kubectl) -> Result<()> {
    let kinds = k.ok("api-resources --no-headers --verbs=list")?;
    for line in kinds.lines() {
        // NAME, perhaps SHORTNAMES, APIVERSION, NAMESPACED, KIND.
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (name, version) = (cells[0], cells[cells.len() - 3]);
        let printed = k.ok(&format!("explain {name} --api-version={version}"))?;
        ensure!(printed.contains("DESCRIPTION:\n") && !printed.contains("<empty>"), "{name}: {printed}");
    }
    Ok(())
}

fn unknown(k: &Kubectl) -> Result<()> {
    k.fails("explain pod.spec.nothing", "error: field \"nothing\" does not exist")?;
    k.fails("explain nothing", "the server doesn't have a resource type \"nothing\"")
}
