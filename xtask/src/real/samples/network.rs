//! Networks in a real Neutron.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Programs;
use super::foo::install;
use super::neutron::Neutron;
use super::stage::{LIMIT, Stage, ready};
use crate::real::process::Running;

pub(crate) const NAME: &str = "network: create, drift, replace, overlap, outage, a hundred, delete";
pub(crate) const KILLED: &str = "network: kill -9 at twenty moments leaves one network each";

const CRD: &str = include_str!("../../../../examples/network/manifests/crd.yaml");
const MARKER: &str = "samplecrd.k8s.io/network=kubernetes/default/";

/// How long Neutron is away. CI can set another number of seconds.
fn outage() -> Duration {
    let seconds = std::env::var("SETPOINT_OUTAGE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn start(stage: &Stage, programs: &Programs, neutron: &Neutron) -> Result<Running> {
    let mut command = programs.command("example-network");
    command.args(["--resync", "3", "--neutron-url", &neutron.url(), "--kubeconfig"]).arg(stage.kubeconfig());
    stage.start(command, "network.log")
}

fn apply(stage: &Stage, networks: &[(String, String)]) -> Result<()> {
    let objects: Vec<_> = networks
        .iter()
        .map(|(name, cidr)| {
            let meta = json!({"name": name});
            json!({"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": meta, "spec": {"cidr": cidr}})
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    stage.kubectl_with("apply -f -", Some(&list.to_string())).map(drop)
}

fn is_ready(stage: &Stage, name: &str, reason: &str) -> Result<bool> {
    let found = stage.get(&format!("network.samplecrd.k8s.io {name}"))?;
    Ok(found.is_some_and(|found| {
        ready(&found).1 == reason && found["status"]["observedGeneration"] == found["metadata"]["generation"]
    }))
}

pub(crate) fn run(stage: &Stage, programs: &Programs, neutron: &mut Neutron) -> Result<()> {
    install(stage, CRD, "networks.samplecrd.k8s.io")?;
    let _controller = start(stage, programs, neutron)?;
    let outcome = scenario(stage, neutron);
    outcome.with_context(|| format!("the controller says:\n{}", stage.log("network.log")))
}

fn scenario(stage: &Stage, neutron: &mut Neutron) -> Result<()> {
    let synced = |name: &'static str| move || is_ready(stage, name, "Synced");
    let spec =
        |spec: &str| stage.kubectl(&format!("patch network example --type=merge -p '{{\"spec\":{spec}}}'"));
    apply(stage, &[("example".into(), "10.20.0.5/24".into())])?;
    stage.until("the network is there", LIMIT, synced("example"))?;
    let (networks, subnets) = (neutron.networks()?, neutron.subnets()?);
    ensure!(networks.len() == 1 && subnets.len() == 1, "{networks:?} {subnets:?}");
    ensure!(networks[0]["description"] == format!("{MARKER}example"), "{}", networks[0]);
    ensure!(subnets[0]["cidr"] == "10.20.0.0/24", "{}", subnets[0]);
    let (network, subnet) = (networks[0]["id"].clone(), subnets[0]["id"].clone());

    spec(r#"{"gateway":"10.20.0.9"}"#)?;
    stage.until("the gateway is changed, its pools with it", LIMIT, || {
        Ok(neutron.subnets()?[0]["gateway_ip"] == "10.20.0.9")
    })?;
    neutron.edit("network", &network, json!({"name": "mine", "description": "mine"}))?;
    neutron.edit("subnet", &subnet, json!({"name": "mine"}))?;
    stage.until("edits are undone", LIMIT, || {
        let (networks, subnets) = (neutron.networks()?, neutron.subnets()?);
        let is_ours = networks[0]["description"] == format!("{MARKER}example");
        Ok(is_ours && networks[0]["name"] == "default/example" && subnets[0]["name"] == "default/example")
    })?;
    neutron.delete("network", &network)?;
    stage.until("a deleted network is made again", LIMIT, || {
        Ok(neutron.networks()?.len() == 1 && neutron.subnets()?.len() == 1)
    })?;
    spec(r#"{"cidr":"10.20.0.0/16","gateway":"10.20.0.1"}"#)?;
    stage.until("the subnet is replaced", LIMIT, || {
        let subnets = neutron.subnets()?;
        Ok(subnets.len() == 1 && subnets[0]["cidr"] == "10.20.0.0/16")
    })?;

    let network = neutron.networks()?[0]["id"].clone();
    neutron.create_subnet(&network, "10.99.0.0/16")?;
    spec(r#"{"cidr":"10.99.1.0/24","gateway":null}"#)?;
    stage.until("an overlap is in the condition", LIMIT, || is_ready(stage, "example", "NeutronRefused"))?;
    let told =
        stage.get("network.samplecrd.k8s.io example")?.map(|found| ready(&found).2).unwrap_or_default();
    ensure!(told.contains("overlaps with another subnet"), "{told}");
    spec(r#"{"cidr":"10.1.0.0/24","gateway":"10.2.0.1"}"#)?;
    stage.until("a gateway outside is refused", LIMIT, || is_ready(stage, "example", "InvalidSpec"))?;
    spec(r#"{"cidr":"10.98.1.0/24","gateway":null}"#)?;
    stage.until("a better spec makes it good", LIMIT, synced("example"))?;

    neutron.stop()?;
    let away_since = Instant::now();
    apply(stage, &[("patient".into(), "10.30.0.0/24".into())])?;
    stage.until("the outage is in the condition", LIMIT, || {
        is_ready(stage, "patient", "NeutronUnreachable")
    })?;
    std::thread::sleep(outage().saturating_sub(away_since.elapsed()));
    neutron.resume()?;
    // By then failures wait a while; a resync looks sooner.
    stage.until("it is made up for", LIMIT, synced("patient"))?;

    stage.kubectl("delete network.samplecrd.k8s.io example patient")?;
    stage.until("nothing is left", LIMIT, || Ok(neutron.networks()?.is_empty()))?;

    let hundred: Vec<_> = (0..100).map(|n| (format!("n{n}"), format!("10.{n}.0.0/24"))).collect();
    apply(stage, &hundred)?;
    stage.until("a hundred are synced", 3 * LIMIT, || {
        let all = stage.list("networks.samplecrd.k8s.io")?;
        Ok(all.len() == 100 && all.iter().all(|found| ready(found).1 == "Synced"))
    })?;
    ensure!(neutron.networks()?.len() == 100 && neutron.subnets()?.len() == 100);
    stage.kubectl("delete networks.samplecrd.k8s.io --all --wait=false")?;
    stage.until("all are gone", 3 * LIMIT, || {
        Ok(stage.list("networks.samplecrd.k8s.io")?.is_empty() && neutron.networks()?.is_empty())
    })
}

/// The controller is killed twenty times, at moments that nobody chose, while Networks come and go.
pub(crate) fn killed(stage: &Stage, programs: &Programs, neutron: &mut Neutron) -> Result<()> {
    install(stage, CRD, "networks.samplecrd.k8s.io")?;
    let mut random = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let mut wanted = BTreeSet::new();
    for round in 0..20u64 {
        let controller = start(stage, programs, neutron)?;
        let names: Vec<_> =
            (0..4).map(|n| (format!("k{round}-{n}"), format!("10.{round}.{n}.0/24"))).collect();
        apply(stage, &names)?;
        wanted.extend(names.into_iter().map(|(name, _)| name));
        if round % 3 == 2 {
            let gone = format!("k{}-0", round - 1);
            stage.kubectl(&format!("delete network.samplecrd.k8s.io {gone} --wait=false"))?;
            wanted.remove(&gone);
        }
        std::thread::sleep(Duration::from_millis(next(1500)));
        // Dropped, it is killed with SIGKILL.
        drop(controller);
    }
    let _controller = start(stage, programs, neutron)?;
    let is_settled = || -> Result<bool> {
        let all = stage.list("networks.samplecrd.k8s.io")?;
        Ok(all.len() == wanted.len() && all.iter().all(|found| ready(found).1 == "Synced"))
    };
    stage.until("every Network is synced", 3 * LIMIT, is_settled)?;
    // Another resync, which finds what is doubled or left over.
    std::thread::sleep(Duration::from_secs(10));
    let mut found: Vec<String> = Vec::new();
    for network in neutron.networks()? {
        let marker = network["description"].as_str().unwrap_or_default();
        found.push(marker.strip_prefix(MARKER).context("a network that is not ours")?.to_owned());
    }
    found.sort();
    ensure!(found.iter().eq(wanted.iter()), "Neutron has {found:?}, wanted are {wanted:?}");
    ensure!(neutron.subnets()?.len() == wanted.len(), "one subnet each");
    stage.kubectl("delete networks.samplecrd.k8s.io --all --wait=false")?;
    stage.until("all are gone", 3 * LIMIT, || {
        Ok(stage.list("networks.samplecrd.k8s.io")?.is_empty() && neutron.networks()?.is_empty())
    })
}
