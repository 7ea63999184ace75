//! `setpoint new` → `cargo test` → `setpoint up` and the program → `kubectl apply` → reconciled.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::sources::CERTIFICATES;
use super::{SUITE, Tools};
use crate::real::report::Report;
use crate::real::samples::stage::{LIMIT, Stage};
use crate::real::servers::Server;
use crate::workspace;

/// A project to make.
pub(super) struct Variant {
    pub(super) name: &'static str,
    project: &'static str,
    options: &'static [&'static str],
    resource: &'static str,
    kind: &'static str,
    /// What has to be there once the object is reconciled.
    owned: Option<&'static str>,
    has_webhook: bool,
}

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "a new project, from nothing to reconciled",
        project: "my-app",
        options: &[],
        resource: "myapps.example.com",
        kind: "myapp",
        owned: Some("configmap"),
        has_webhook: false,
    },
    Variant {
        name: "a new project that owns a Deployment and has webhooks",
        project: "shop-operator",
        options: &[
            "--group",
            "shop.example.org",
            "--version",
            "v1",
            "--owns",
            "deployment",
            "--webhook",
            "--cert-manager",
        ],
        resource: "shops.shop.example.org",
        kind: "shop",
        owned: Some("deployment"),
        has_webhook: true,
    },
    Variant {
        name: "a new project for the CRD of cert-manager's Certificate",
        project: "certs",
        options: &["--from-crd", "crd.yaml"],
        resource: "certificates.cert-manager.io",
        kind: "certificate",
        owned: None,
        has_webhook: false,
    },
    Variant {
        name: "a new project for a kind of the whole cluster",
        project: "zone-operator",
        options: &["--cluster-scoped", "--owns", "secret", "--owns", "service"],
        resource: "zones.example.com",
        kind: "zone",
        owned: Some("service"),
        has_webhook: false,
    },
];

pub(super) fn run(report: &mut Report, tools: &Tools<'_>, variant: &Variant) {
    if !report.filter().takes(SUITE, variant.name) {
        return;
    }
    let crd = match variant.options.contains(&"--from-crd") {
        true => match CERTIFICATES.fetch(tools.cache) {
            Ok(files) => files.into_iter().next(),
            Err(error) => return report.skip(variant.name, &format!("{error:#}")),
        },
        false => None,
    };
    let begun = Instant::now();
    let outcome = check(report, tools, variant, crd);
    report.record(SUITE, variant.name, begun.elapsed(), outcome);
}

fn check(report: &Report, tools: &Tools<'_>, variant: &Variant, crd: Option<PathBuf>) -> Result<()> {
    let begun = Instant::now();
    let home = TempDir::new()?;
    if let Some(crd) = crd {
        std::fs::copy(crd, home.path().join("crd.yaml"))?;
    }
    let root = workspace::root()?.display().to_string();
    let arguments = [&["new", variant.project, "--checkout", &root], variant.options].concat();
    tools.setpoint(home.path(), &arguments)?;
    let made = begun.elapsed();
    let project = home.path().join(variant.project);
    let said = tools.cargo(&project, &["test", "--offline"])?;
    let tested = begun.elapsed();
    let passed = said.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    ensure!(passed >= 2, "only {passed} tests:\n{said}");
    for name in ["the_roles_are_enough", "no_verb_can_be_taken_away"] {
        ensure!(said.contains(&format!("test {name} ... ok")), "{name}:\n{said}");
    }
    tools.cargo(&project, &["build", "--offline"])?;
    let built = begun.elapsed();
    reconcile(tools, variant, &project)?;
    report.note(
        SUITE,
        &format!(
            "{}: made in {} ms; {passed} tests passed after {:.1} s; built after {:.1} s; reconciled after {:.1} s",
            variant.project,
            made.as_millis(),
            tested.as_secs_f64(),
            built.as_secs_f64(),
            begun.elapsed().as_secs_f64()
        ),
    );
    tools.cargo(&project, &["fmt", "--check"])?;
    regenerate(tools, variant, &project)?;
    Ok(())
}

/// `gen crd` and `gen rbac` find nothing to do, see what somebody has changed, and put it right.
fn regenerate(tools: &Tools<'_>, variant: &Variant, project: &Path) -> Result<()> {
    let is_made_from_crd = variant.options.contains(&"--from-crd");
    let crd = (!is_made_from_crd).then(|| ("crd", format!("config/crd/{}.yaml", variant.resource)));
    for (what, file) in crd.into_iter().chain([("rbac", "config/rbac/rbac.yaml".to_owned())]) {
        tools.generate(project, &["gen", what, "--check"])?;
        let file = project.join(file);
        let fresh = std::fs::read_to_string(&file)?;
        std::fs::write(&file, format!("{fresh}# stale\n"))?;
        ensure!(tools.generate(project, &["gen", what, "--check"]).is_err(), "{what} is stale");
        ensure!(tools.generate(project, &["gen", what]).is_err(), "what somebody has changed is kept");
        tools.generate(project, &["gen", what, "--force"])?;
        ensure!(std::fs::read_to_string(&file)? == fresh, "{what} is made as it was");
    }
    Ok(())
}

/// Runs the project's program against a server, as the user that its manifests make, and applies the sample.
fn reconcile(tools: &Tools<'_>, variant: &Variant, project: &Path) -> Result<()> {
    // With controllers: a Deployment that is owned is to become available.
    let server = Server::setpoint_cluster(tools.setpoint)?;
    let stage = Stage::new(tools.kubectl.clone(), server.kubeconfig(), tools.setpoint)?;
    let path = |path: &str| project.join(path).display().to_string();
    let rendered = stage.kubectl(&format!("kustomize {}", path("config/default")))?;
    ensure!(rendered.contains("kind: CustomResourceDefinition") && rendered.contains("kind: Deployment"));
    for part in ["crd", "manager", "rbac"] {
        stage.kubectl(&format!("apply -k {}", path(&format!("config/{part}"))))?;
    }
    stage.kubectl(&format!("wait --for=condition=established crd/{} --timeout=30s", variant.resource))?;

    let mut program = Command::new(tools.target.join("debug").join(variant.project));
    program.args(["--health", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--kubeconfig"]);
    program.arg(as_service_account(&stage, variant.project)?);
    if variant.has_webhook {
        let address = format!("127.0.0.1:{}", free_port()?);
        register(&stage, &project.join("config/webhook/webhooks.yaml"), &address)?;
        program.args(["--webhooks", &address, "--tls"]).arg(stage.folder());
    }
    let _program = stage.start(program, "program.log")?;
    let sample = path(&format!("config/samples/{}.yaml", variant.kind));
    stage.until("the sample is accepted", LIMIT, || {
        Ok(stage.kubectl(&format!("apply -f {sample}")).is_ok())
    })?;
    let ready = || {
        let objects = stage.list(&format!("{} -A", variant.resource))?;
        Ok(objects.iter().any(is_ready))
    };
    let reconciled = stage.until("the status says Ready", LIMIT, ready);
    reconciled.with_context(|| stage.log("program.log"))?;
    if let Some(owned) = variant.owned {
        let there = stage.get(&format!("{owned} example"))?.context("what it owns is not there")?;
        ensure!(there["metadata"]["ownerReferences"][0]["controller"] == true, "{there}");
    }
    if variant.has_webhook {
        let object = &stage.list(&format!("{} -A", variant.resource))?[0];
        ensure!(object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == variant.project, "{object}");
        let blank = std::fs::read_to_string(&sample)?.replace("message: hello", "message: ' '");
        let refused = stage.kubectl_fails("apply -f -", Some(&blank))?;
        ensure!(refused.contains("nothing but space"), "{refused}");
    }
    Ok(())
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// What an administrator does beside cert-manager: a certificate for the webhooks, and where the server finds them, which
/// here is no Service.
fn register(stage: &Stage, manifest: &Path, address: &str) -> Result<()> {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    std::fs::write(stage.folder().join("tls.crt"), cert.pem())?;
    std::fs::write(stage.folder().join("tls.key"), signing_key.serialize_pem())?;
    let ca_bundle = base64::engine::general_purpose::STANDARD.encode(cert.pem());
    let mut items: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(manifest)?)?;
    for item in &mut items {
        for webhook in item["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("no path")?;
            webhook["clientConfig"] =
                json!({"url": format!("https://{address}{path}"), "caBundle": ca_bundle});
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    stage.kubectl_with("apply -f -", Some(&list.to_string()))?;
    Ok(())
}

/// A kubeconfig for the service account that config/rbac gives its role to.
fn as_service_account(stage: &Stage, project: &str) -> Result<PathBuf> {
    let namespace = format!("{project}-system");
    let token = stage.kubectl(&format!("create token {project} -n {namespace}"))?;
    let path = stage.folder().join("service-account");
    std::fs::copy(stage.kubeconfig(), &path)?;
    let file = path.display();
    let contexts = stage.kubectl(&format!("config view --kubeconfig {file} -o json"))?;
    let contexts: Value = serde_json::from_str(&contexts)?;
    let cluster = contexts["contexts"][0]["context"]["cluster"].as_str().context("no cluster")?;
    stage.kubectl(&format!("config set-credentials account --token={} --kubeconfig {file}", token.trim()))?;
    stage.kubectl(&format!(
        "config set-context account --cluster={cluster} --user=account --namespace={namespace} --kubeconfig {file}"
    ))?;
    stage.kubectl(&format!("config use-context account --kubeconfig {file}"))?;
    Ok(path)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
