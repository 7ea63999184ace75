//! kubectl api-resources, api-versions, version, cluster-info, health.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "api-versions", run: versions },
    Scenario { name: "api-resources", run: resources },
    Scenario { name: "version and cluster-info", run: version },
    Scenario { name: "get --raw: health, metrics, discovery", run: raw },
    Scenario { name: "auth whoami and can-i", run: auth },
];

const VERSIONS: &str = "admissionregistration.k8s.io/v1
apiextensions.k8s.io/v1
apiregistration.k8s.io/v1
apps/v1
authentication.k8s.io/v1
authorization.k8s.io/v1
autoscaling/v1
autoscaling/v2
batch/v1
certificates.k8s.io/v1
coordination.k8s.io/v1
discovery.k8s.io/v1
events.k8s.io/v1
flowcontrol.apiserver.k8s.io/v1
networking.k8s.io/v1
node.k8s.io/v1
policy/v1
rbac.authorization.k8s.io/v1
resource.k8s.io/v1
scheduling.k8s.io/v1
storage.k8s.io/v1
storagemigration.k8s.io/v1
v1";

fn versions(k: &Kubectl) -> Result<()> {
    k.says("api-versions", VERSIONS)
}

fn resources(k: &Kubectl) -> Result<()> {
    k.mentions(
        "api-resources",
        &["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "configmaps", "cm", "ConfigMap"],
    )?;
    k.says(
        "api-resources --api-group=apps -o name",
        "controllerrevisions.apps\ndaemonsets.apps\ndeployments.apps\nreplicasets.apps\nstatefulsets.apps",
    )?;
    let wide = k.ok("api-resources -o wide --no-headers --namespaced=false")?;
    let row = wide.lines().find(|row| row.starts_with("namespaces ")).context("no namespaces")?;
    let words: Vec<&str> = row.split_whitespace().collect();
    let expected =
        ["namespaces", "ns", "v1", "false", "Namespace", "create,delete,get,list,patch,update,watch"];
    ensure!(words == expected, "{row}");
    let namespaced = k.ok("api-resources --namespaced --verbs=list,create -o name")?;
    for name in
        ["configmaps", "pods", "deployments.apps", "leases.coordination.k8s.io", "events.events.k8s.io"]
    {
        ensure!(namespaced.lines().any(|line| line == name), "no {name} in\n{namespaced}");
    }
    ensure!(
        !namespaced.lines().any(|line| line == "nodes" || line == "bindings"),
        "too much in\n{namespaced}"
    );
    k.mentions(
        "api-resources --categories=all -o name",
        &["pods", "services", "deployments.apps", "jobs.batch"],
    )
}

fn version(k: &Kubectl) -> Result<()> {
    k.mentions("version", &[&format!("Client Version: {}", k.version), "Server Version: v1.37."])?;
    let all: Value = serde_json::from_str(&k.ok("version -o json")?)?;
    let server = &all["serverVersion"];
    ensure!(server["major"] == "1" && server["minor"] == "37", "{server}");
    for field in ["gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"]
    {
        ensure!(server[field].is_string(), "no {field} in {server}");
    }
    k.mentions("cluster-info", &["Kubernetes control plane", "https://127.0.0.1:"])
}

fn raw(k: &Kubectl) -> Result<()> {
    for path in ["/healthz", "/livez", "/readyz"] {
        k.says(&format!("get --raw {path}"), "ok")?;
    }
    k.mentions("get --raw '/readyz?verbose'", &["[+]ping ok\n", "readyz check passed"])?;
    k.mentions("get --raw /healthz/ping", &["ok"])?;
    let metrics = k.ok("get --raw /metrics")?;
    for part in [
        "# TYPE apiserver_request_total counter\n",
        "# TYPE apiserver_request_duration_seconds histogram\n",
        "resource=\"namespaces\"",
    ] {
        ensure!(metrics.contains(part), "no {part} in /metrics");
    }
    let api: Value = serde_json::from_str(&k.ok("get --raw /api")?)?;
    ensure!(api["kind"] == "APIVersions" && api["versions"][0] == "v1", "{api}");
    let core: Value = serde_json::from_str(&k.ok("get --raw /api/v1")?)?;
    ensure!(core["kind"] == "APIResourceList" && core["groupVersion"] == "v1", "{core}");
    k.fails(
        "get --raw /nothing",
        "Error from server (NotFound): the server could not find the requested resource",
    )?;
    k.fails(
        "get --raw /api/v1/nothing",
        "Error from server (NotFound): the server could not find the requested resource",
    )
}

fn auth(k: &Kubectl) -> Result<()> {
    k.mentions("auth whoami", &["Username", "Groups", "system:masters", "system:authenticated"])?;
    k.says("auth can-i create pods", "yes")
}
