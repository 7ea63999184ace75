//! What controllers and nodes do to what kubectl makes: owners and dependents, namespaces, nodes, logs.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

/// Those that hold wherever the controllers and nodes run.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "delete --cascade: in the background, in the foreground, and not at all", run: cascade },
    Scenario { name: "delete a namespace with everything in it", run: namespace },
    Scenario { name: "cordon and taint keep pods away, and pods say why they wait", run: nodes },
    Scenario { name: "a pod that asks for too much waits", run: too_much },
    Scenario { name: "an image that cannot be pulled", run: bad_image },
    Scenario { name: "a service has the addresses of its pods", run: service },
    Scenario { name: "every namespace has its account and its certificate", run: account },
];

/// Those that need a server that knows the logs.
pub(super) const LOGS: &[Scenario] = &[Scenario { name: "logs", run: logs }];

fn cascade(k: &Kubectl) -> Result<()> {
    k.ok("create deployment web --image=nginx --replicas=2")?;
    k.ok("rollout status deployment/web --timeout=50s")?;
    k.says("delete deployment web --cascade=orphan", "deployment.apps \"web\" deleted from {ns} namespace")?;
    let set = k.ok("get rs -o name")?;
    ensure!(set.lines().count() == 1, "the ReplicaSet stays: {set}");
    ensure!(k.field(set.trim(), ".metadata.ownerReferences")?.is_empty(), "and is nobody's");
    k.ok(&format!("delete {} --cascade=foreground", set.trim()))?;
    k.says("get pods,rs -o name", "")?;
    k.ok("create deployment web --image=nginx --replicas=2")?;
    k.ok("rollout status deployment/web --timeout=50s")?;
    k.ok("delete deployment web")?;
    k.ok("wait --for=delete pods --all --timeout=50s")?;
    k.says("get pods,rs,deploy -o name", "")
}

fn namespace(k: &Kubectl) -> Result<()> {
    k.ok("create deployment web --image=nginx --replicas=2")?;
    k.ok("rollout status deployment/web --timeout=50s")?;
    k.ok("create configmap settings")?;
    k.says("delete namespace {ns}", "namespace \"{ns}\" deleted")?;
    k.fails("get namespace {ns}", "Error from server (NotFound): namespaces \"{ns}\" not found")?;
    k.says("get pods,rs,deploy,cm -o name", "")
}

fn nodes(k: &Kubectl) -> Result<()> {
    k.says("cordon node-1", "node/node-1 cordoned")?;
    k.says("taint nodes node-2 gpu=yes:NoSchedule", "node/node-2 tainted")?;
    k.ok("run web --image=nginx")?;
    k.ok("wait --for=condition=PodScheduled=false pod/web --timeout=50s")?;
    let why = "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.";
    let said = k.field("pod/web", ".status.conditions[?(@.type==\"PodScheduled\")].message")?;
    ensure!(said.starts_with(why), "{said}");
    k.says("taint nodes node-2 gpu-", "node/node-2 untainted")?;
    k.ok("wait --for=condition=Ready pod/web --timeout=50s")?;
    ensure!(k.field("pod/web", ".spec.nodeName")? == "node-2", "it runs where it may");
    k.says("uncordon node-1", "node/node-1 uncordoned")
}

fn too_much(k: &Kubectl) -> Result<()> {
    let spec = r#"{"spec": {"containers": [{"name": "big", "image": "nginx", "resources": {"requests": {"cpu": "9000"}}}]}}"#;
    k.ok(&format!("run big --image=nginx --overrides='{spec}'"))?;
    k.ok("wait --for=condition=PodScheduled=false pod/big --timeout=50s")?;
    let said = k.field("pod/big", ".status.conditions[?(@.type==\"PodScheduled\")].message")?;
    ensure!(said.starts_with("0/2 nodes are available: 2 Insufficient cpu."), "{said}");
    Ok(())
}

fn bad_image(k: &Kubectl) -> Result<()> {
    k.ok("run bad --image=no/such --annotations=sim.setpoint.dev/image-pull-error=true")?;
    let reason = "{.status.containerStatuses[0].state.waiting.reason}";
    k.ok(&format!("wait --for=jsonpath='{reason}'=ImagePullBackOff pod/bad --timeout=50s"))?;
    k.mentions("get pods", &["bad", "0/1", "ImagePullBackOff"])
}

fn service(k: &Kubectl) -> Result<()> {
    k.ok("create deployment web --image=nginx --replicas=2")?;
    k.ok("rollout status deployment/web --timeout=50s")?;
    k.ok("expose deployment web --port=80")?;
    let slices = "endpointslices -l kubernetes.io/service-name=web";
    k.ok(&format!("wait --for=jsonpath='{{.endpoints[1].conditions.ready}}'=true {slices} --timeout=50s"))?;
    k.ok("delete service web")?;
    k.ok(&format!("wait --for=delete {slices} --timeout=50s")).map(drop)
}

fn account(k: &Kubectl) -> Result<()> {
    k.ok("wait --for=create serviceaccount/default --timeout=50s")?;
    k.ok("wait --for=create configmap/kube-root-ca.crt --timeout=50s")?;
    let certificate = k.field("configmap/kube-root-ca.crt", ".data.ca\\.crt")?;
    ensure!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    Ok(())
}

fn logs(k: &Kubectl) -> Result<()> {
    k.ok("run web --image=nginx")?;
    k.ok("wait --for=condition=Ready pod/web --timeout=50s")?;
    k.mentions("logs web", &["container web (nginx) started on node-", ", restart 0"])?;
    k.mentions("logs web --tail=1 --timestamps", &["Z container web"])?;
    k.fails(
        "logs web --previous",
        "Error from server (BadRequest): previous terminated container \"web\" in pod \"web\" not found",
    )?;
    k.fails("logs web -c other", "error: container other is not valid for pod web out of: web")
}
