//! New projects: every combination of options is rendered, and none of the templates' own words are left.

use std::path::Path;

use setpoint_codegen::project::{Crates, Owned};
use setpoint_codegen::{Definition, File, Project};

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == Path::new(path)).map(|file| file.text.as_str()).unwrap_or_default()
}

fn crd(has_status: bool) -> String {
    let status = "{type: object, properties: {conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}, reason: {type: string}, message: {type: string}}}}}}";
    let (status, subresource) = if has_status {
        (format!(", status: {status}"), ", subresources: {status: {}}")
    } else {
        <_>::default()
    };
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: gizmos.acme.org}}
spec:
  group: acme.org
  names: {{kind: Gizmo, plural: gizmos}}
  scope: Namespaced
  versions:
  - {{name: v1, served: true, storage: true{subresource}, schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object}}{status}}}}}}}}}
  - {{name: v2, served: true, storage: false, schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object}}}}}}}}}}
"
    )
}

fn from_crd(has_status: bool) -> anyhow::Result<Project> {
    let text = crd(has_status);
    let mut definitions = Definition::read("gizmo.yaml", &text)?;
    Ok(Project::new("gizmo-operator")?.from_crd(definitions.remove(0), text, true))
}

#[test]
fn nothing_of_the_templates_is_left_whatever_the_options() -> anyhow::Result<()> {
    let plain = || Project::new("my-app");
    let all = |project: Project| Owned::ALL.iter().fold(project, |project, &owned| project.owns(owned));
    let projects = [
        plain()?.group("acme.org").version("v1"),
        plain()?.group("acme.org").version("v1").cluster_scoped().webhook(),
        all(plain()?.group("acme.org").version("v1")).webhook().nested(),
        plain()?.group("acme.org").version("v1").crates(Crates::Checkout("/checkout".into())),
        from_crd(true)?,
        all(from_crd(true)?).webhook(),
        plain()?.group("acme.org").version("v1").webhook().cert_manager(),
        from_crd(false)?,
        from_crd(false)?.owns(Owned::Service),
        plain()?.group("acme.org").version("v1").extension_server(),
        plain()?.group("acme.org").version("v1").cluster_scoped().nested().extension_server(),
    ];
    for project in projects {
        for File { path, text } in project.render()? {
            let path = path.display().to_string();
            let lower = format!("{path}\n{text}").to_lowercase();
            for word in ["widget", "{{", "{%", "v1alpha1", "acme.example"] {
                assert!(!lower.contains(word), "{path} has {word:?}:\n{text}");
            }
            if path.ends_with(".yaml") && !path.contains("crd/") {
                serde_saphyr::from_multiple::<serde_json::Value>(&text)?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_first_crd_and_roles_are_made_from_the_options() -> anyhow::Result<()> {
    let files = Project::new("my-app")?.kind("Policy").cluster_scoped().owns(Owned::Deployment).render()?;
    let crd = text(&files, "config/crd/policies.example.com.yaml");
    let crd: serde_json::Value = serde_saphyr::from_str(crd)?;
    assert_eq!(crd["spec"]["scope"], "Cluster");
    assert_eq!(crd["spec"]["names"]["kind"], "Policy");
    assert_eq!(crd["spec"]["names"]["singular"], "policy");
    assert!(!text(&files, "src/api.rs").contains("namespaced"));
    let elsewhere = Project::new("my-app")?.group("acme.org").render()?;
    let elsewhere = text(&elsewhere, "config/crd/myapps.acme.org.yaml");
    assert!(elsewhere.contains("foo.example.com/CamelCase"), "what Kubernetes says stays: {elsewhere}");
    let roles = text(&files, "config/rbac/rbac.yaml");
    for words in ["policies/status", "deployments", "events.k8s.io", "my-app-leader-election"] {
        assert!(roles.contains(words), "{words}: {roles}");
    }
    Ok(())
}

#[test]
fn a_crd_decides_what_the_options_would() -> anyhow::Result<()> {
    let files = from_crd(true)?.render()?;
    assert_eq!(text(&files, "config/crd/gizmos.acme.org.yaml"), crd(true));
    assert!(text(&files, "src/api.rs").contains("pub struct GizmoSpec"));
    assert!(text(&files, "src/controller.rs").contains("writes_status"));
    assert!(!text(&from_crd(false)?.render()?, "src/controller.rs").contains("writes_status"));
    let files = from_crd(true)?.version("v2").render()?;
    assert!(text(&files, "src/api.rs").contains("version = \"v2\""));

    let error =
        |project: Project| project.render().map_err(|error| error.to_string()).err().unwrap_or_default();
    assert_eq!(error(from_crd(true)?.kind("Other")), "--kind: is \"Other\", but the CRD says \"Gizmo\"");
    assert_eq!(error(from_crd(true)?.group("x.org")), "--group: is \"x.org\", but the CRD says \"acme.org\"");
    assert_eq!(
        error(from_crd(true)?.version("v3")),
        "spec.versions: there is no version \"v3\"; there are: v1, v2"
    );
    assert_eq!(
        error(from_crd(true)?.cluster_scoped()),
        "--cluster-scoped: the objects of this CRD are in namespaces"
    );
    Ok(())
}

#[test]
fn the_versions_of_a_project_are_those_of_the_workspace() -> anyhow::Result<()> {
    let root = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))?;
    for project in [Project::new("my-app")?.webhook(), Project::new("my-app")?.extension_server()] {
        same_versions(&root, text(&project.render()?, "Cargo.toml"));
    }
    Ok(())
}

fn same_versions(root: &str, manifest: &str) {
    let version = |text: &str, name: &str| -> Option<String> {
        let line = text.lines().find(|line| line.split(" = ").next() == Some(name))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    let mut compared = 0;
    for line in manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .take_while(|line| !line.starts_with("# `cargo test`") && *line != "[lints.rust]")
    {
        let Some((name, _)) = line.split_once(" = ").filter(|(name, _)| !name.starts_with("setpoint")) else {
            continue;
        };
        assert_eq!(version(manifest, name), version(root, name), "{name}");
        compared += 1;
    }
    assert!(compared > 10, "{manifest}");
    assert_eq!(version(manifest, "rust-version"), version(root, "rust-version"));
}

#[test]
fn an_extension_server_is_no_operator() -> anyhow::Result<()> {
    let server = || Project::new("tides").map(Project::extension_server);
    let files = server()?.cluster_scoped().render()?;
    assert!(!text(&files, "src/api.rs").contains("namespaced"));
    assert!(text(&server()?.render()?, "src/api.rs").contains("namespaced"));
    assert!(files.iter().all(|file| !file.path.starts_with("config/crd")));
    let api_service: serde_json::Value =
        serde_saphyr::from_str(text(&files, "config/apiservice/apiservice.yaml"))?;
    assert_eq!(api_service["metadata"]["name"], "v1alpha1.example.com");
    let refused = server()?.webhook().render().unwrap_err().to_string();
    assert_eq!(refused, "--webhook: an extension server checks its objects itself");
    assert!(server()?.owns(Owned::Secret).render().is_err());
    Ok(())
}

#[test]
fn certificates_are_the_operators_unless_cert_manager_is_asked_for() -> anyhow::Result<()> {
    let own = Project::new("my-app")?.webhook().render()?;
    let all = |files: &[File]| files.iter().map(|file| file.text.as_str()).collect::<String>();
    assert!(!all(&own).contains("cert-manager"));
    assert!(text(&own, "config/manager/deployment.yaml").contains("--service=my-app"));
    assert!(text(&own, "config/webhook/kustomization.yaml").contains("rbac.yaml"));
    let rules = serde_saphyr::from_multiple::<serde_json::Value>(text(&own, "config/webhook/rbac.yaml"))?;
    for rule in rules.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
        let is_create = rule["verbs"] == serde_json::json!(["create"]);
        assert!(is_create || rule["resourceNames"].is_array(), "more than it needs: {rule}");
    }

    let theirs = Project::new("my-app")?.webhook().cert_manager().render()?;
    assert!(text(&theirs, "config/webhook/webhooks.yaml").contains("cert-manager.io/inject-ca-from"));
    assert!(text(&theirs, "config/webhook/certificate.yaml").contains("secretName: my-app-tls"));
    assert_eq!(text(&theirs, "config/webhook/rbac.yaml"), "");
    assert!(text(&theirs, "config/manager/deployment.yaml").contains("--tls=/tls"));
    assert!(
        !all(&Project::new("my-app")?.cert_manager().render()?).contains("cert-manager"),
        "without webhooks"
    );
    Ok(())
}
