//! Certificates for those who ask, and slices of endpoints that somebody writes by hand.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

use super::{Kubectl, Scenario, create, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: SIGNED[0], run: kubelet },
    Scenario { name: SIGNED[1], run: people },
    Scenario { name: "endpoints by hand are mirrored", run: mirror },
];

/// Those that need somebody who signs: `setpoint cluster` has no key.
pub(super) const SIGNED: [&str; 2] =
    ["a kubelet asks for a certificate", "a certificate that is approved, one that is denied"];

/// A request for a certificate in this name.
fn ask(kubectl: &Kubectl, name: &str, signer: &str, subject: (&str, &str), usages: &str) -> Result<()> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::OrganizationName, subject.0);
    parameters.distinguished_name.push(DnType::CommonName, subject.1);
    let request = parameters.serialize_request(&KeyPair::generate()?)?.pem()?;
    let request = STANDARD.encode(request);
    create(
        kubectl,
        &format!(
            "apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {name}}}
spec:
  signerName: {signer}
  usages: {usages}
  request: {request}"
        ),
    )
}

fn state(kubectl: &Kubectl, name: &str) -> Result<String> {
    let conditions = "{range .status.conditions[*]}{.type}={.status}:{.reason}:{.message}{end}";
    kubectl.ok(&format!("get certificatesigningrequest {name} -o jsonpath='{conditions}'"))
}

/// Waits for the certificate; says whether it is one.
fn certificate(kubectl: &Kubectl, name: &str) -> Result<String> {
    let field = format!("get certificatesigningrequest {name} -o jsonpath='{{.status.certificate}}'");
    let encoded = wait_for_words(kubectl, &field, 1)?.remove(0);
    let text = String::from_utf8(STANDARD.decode(encoded)?)?;
    let first = text.lines().next().context("the certificate is empty")?;
    Ok(first.to_owned())
}

fn kubelet(kubectl: &Kubectl) -> Result<String> {
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let usages = "[key encipherment, digital signature, client auth]";
    ask(kubectl, "kubelet", signer, ("system:nodes", "system:node:node-1"), usages)?;
    let made = certificate(kubectl, "kubelet")?;
    let state = state(kubectl, "kubelet")?;
    kubectl.ok("delete certificatesigningrequest kubelet")?;
    Ok(format!("{made} {state}"))
}

fn people(kubectl: &Kubectl) -> Result<String> {
    let (signer, usages) = ("kubernetes.io/kube-apiserver-client", "[client auth]");
    for name in ["alice", "mallory"] {
        ask(kubectl, name, signer, ("team", name), usages)?;
    }
    kubectl.ok("certificate approve alice")?;
    kubectl.ok("certificate deny mallory")?;
    let made = certificate(kubectl, "alice")?;
    // A kubelet's signer refuses whatever is not a kubelet's.
    let kubelets = "kubernetes.io/kube-apiserver-client-kubelet";
    ask(kubectl, "bob", kubelets, ("team", "bob"), usages)?;
    kubectl.ok("certificate approve bob")?;
    let failed = "{.status.conditions[?(@.type==\"Failed\")].reason}";
    wait(
        kubectl,
        &format!("get certificatesigningrequest bob -o jsonpath='{failed}'"),
        "SignerValidationFailure",
    )?;
    let states = ["alice", "mallory", "bob"].map(|name| state(kubectl, name));
    let states = states.into_iter().collect::<Result<Vec<_>>>()?.join(" ");
    kubectl.ok("delete certificatesigningrequest alice mallory bob")?;
    Ok(format!("{made} {states}"))
}

fn slices(kubectl: &Kubectl) -> Result<String> {
    let slices = "{range .items[*]}{.metadata.generateName}:{.metadata.labels}:{.metadata.annotations}:{.addressType}:\
                  {.metadata.ownerReferences[*].kind}:{.endpoints}:{.ports} {end}";
    sorted(kubectl, "endpointslices", slices)
}

fn mirror(kubectl: &Kubectl) -> Result<String> {
    create(
        kubectl,
        "apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {ports: [{name: web, port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: outside, labels: {team: a}, annotations: {note: b}}
subsets:
- addresses: [{ip: 192.0.2.1, hostname: one}, {ip: 192.0.2.2}]
  notReadyAddresses: [{ip: 192.0.2.3}]
  ports: [{name: web, port: 8080}]",
    )?;
    let addresses = "get endpointslices -o jsonpath='{.items[*].endpoints[*].addresses[0]}'";
    wait_for_words(kubectl, addresses, 3)?;
    let first = slices(kubectl)?;
    let change = "{\"subsets\":[{\"addresses\":[{\"ip\":\"192.0.2.9\"}],\"ports\":[{\"name\":\"web\",\"port\":81}]},\
                  {\"addresses\":[{\"ip\":\"2001:db8::1\"}],\"ports\":[{\"name\":\"web\",\"port\":81}]}]}";
    kubectl.ok(&format!("patch endpoints outside --type=merge -p '{change}'"))?;
    wait_for_words(kubectl, addresses, 2)?;
    wait_for_words(kubectl, "get endpointslices -o name", 2)?;
    let second = slices(kubectl)?;
    // With a selector the Service has slices of its own.
    kubectl.ok("label endpoints outside endpointslice.kubernetes.io/skip-mirror=true")?;
    wait_for_words(kubectl, "get endpointslices -o name", 0)?;
    kubectl.ok("label endpoints outside endpointslice.kubernetes.io/skip-mirror-")?;
    wait_for_words(kubectl, "get endpointslices -o name", 2)?;
    kubectl.ok("delete service outside")?;
    wait_for_words(kubectl, "get endpointslices -o name", 0)?;
    Ok(format!("{first} | {second} | {}", kubectl.ok("get endpoints -o name")?))
}
