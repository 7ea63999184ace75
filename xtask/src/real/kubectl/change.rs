//! kubectl patch, label, annotate, scale.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "patch --type=json", run: json_patch },
    Scenario { name: "patch --type=merge", run: merge_patch },
    Scenario { name: "patch --subresource=status", run: status_patch },
    Scenario { name: "label, relabel, unlabel", run: label },
    Scenario { name: "annotate, overwrite, remove", run: annotate },
    Scenario { name: "scale a deployment created from JSON", run: scale },
    Scenario { name: "replace", run: replace },
];

fn json_patch(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=k=v")?;
    let steps = r#"[{"op":"test","path":"/data/k","value":"v"},{"op":"add","path":"/data/z","value":"9"},
        {"op":"copy","from":"/data/k","path":"/data/copy"},{"op":"move","from":"/data/z","path":"/data/moved"},
        {"op":"replace","path":"/data/k","value":"w"}]"#;
    k.says(&format!("patch cm c --type=json -p '{steps}'"), "configmap/c patched")?;
    k.says("get cm c -o jsonpath='{.data}'", r#"{"copy":"v","k":"w","moved":"9"}"#)?;
    let failed = "The request is invalid: the server rejected our request due to an error in our request";
    k.fails(r#"patch cm c --type=json -p '[{"op":"test","path":"/data/k","value":"v"}]'"#, failed)?;
    k.fails(r#"patch cm c --type=json -p '[{"op":"remove","path":"/data/missing"}]'"#, failed)?;
    k.says("get cm c -o jsonpath='{.data.k}'", "w")
}

fn merge_patch(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=k=v --from-literal=z=1")?;
    k.says(r#"patch cm c --type=merge -p '{"data":{"z":null,"n":"2"}}'"#, "configmap/c patched")?;
    let before = k.field("cm c", ".metadata.resourceVersion")?;
    k.says(r#"patch cm c --type=merge -p '{"data":{"z":null,"n":"2"}}'"#, "configmap/c patched (no change)")?;
    let after = k.field("cm c", ".metadata.resourceVersion")?;
    ensure!(
        before == after,
        "a patch that changes nothing moved the resourceVersion from {before} to {after}"
    );
    k.says("get cm c -o jsonpath='{.data}'", r#"{"k":"v","n":"2"}"#)?;
    k.file("patch.yaml", "data:\n  from: file\n")?;
    k.says("patch cm c --type=merge --patch-file patch.yaml", "configmap/c patched")?;
    k.says("get cm c -o jsonpath='{.data.from}'", "file")?;
    k.fails(
        r#"patch cm c --type=merge -p '{"metadata":{"resourceVersion":"1"},"data":{"k":"x"}}'"#,
        "Error from server (Conflict): Operation cannot be fulfilled on configmaps \"c\": the object has been \
         modified; please apply your changes to the latest version and try again",
    )
}

fn status_patch(k: &Kubectl) -> Result<()> {
    k.ok("run p --image=nginx")?;
    k.says(
        r#"patch pod p --subresource=status --type=merge -p '{"status":{"phase":"Running","podIP":"10.0.0.9"},"metadata":{"labels":{"l":"1"}}}'"#,
        "pod/p patched",
    )?;
    k.says(
        "get pod p -o jsonpath='{.status.phase} {.status.podIP} {.metadata.generation}'",
        "Running 10.0.0.9 1",
    )?;
    k.says("get pods --field-selector status.phase=Running,status.podIP=10.0.0.9 -o name", "pod/p")?;
    // The other way round: the main resource does not write status.
    k.ok(r#"patch pod p --type=merge -p '{"status":{"phase":"Failed"},"metadata":{"labels":{"l":"2"}}}'"#)?;
    k.says("get pod p --subresource=status -o jsonpath='{.status.phase} {.metadata.labels.l}'", "Running 2")
}

fn label(k: &Kubectl) -> Result<()> {
    k.ok("create cm c")?;
    k.says("label cm c tier=front", "configmap/c labeled")?;
    k.says("label cm c tier=front", "configmap/c not labeled")?;
    k.fails("label cm c tier=back", "error: 'tier' already has a value (front), and --overwrite is false")?;
    k.says("label cm c tier=back extra= --overwrite", "configmap/c labeled")?;
    k.says("get cm c -o jsonpath='{.metadata.labels}'", r#"{"extra":"","tier":"back"}"#)?;
    k.says("label cm c tier-", "configmap/c unlabeled")?;
    k.says("get cm c -o jsonpath='{.metadata.labels}'", r#"{"extra":""}"#)?;
    k.fails(
        "label cm c 'bad key=1'",
        "The ConfigMap \"c\" is invalid: metadata.labels: Invalid value: \"bad key\": name part must consist of \
         alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
         'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    )
}

fn annotate(k: &Kubectl) -> Result<()> {
    k.ok("create cm a")?;
    k.ok("create cm b")?;
    k.says("annotate cm a note='hello world'", "configmap/a annotated")?;
    k.fails(
        "annotate cm a note=other",
        "error: --overwrite is false but found the following declared annotation(s): 'note' already has a value \
         (hello world)",
    )?;
    k.says("annotate cm a note=other --overwrite", "configmap/a annotated")?;
    k.says("annotate cm --all seen=yes", "configmap/a annotated\nconfigmap/b annotated")?;
    k.says("get cm a -o jsonpath='{.metadata.annotations}'", r#"{"note":"other","seen":"yes"}"#)?;
    k.says("annotate cm a note- seen-", "configmap/a annotated")?;
    k.says("get cm a -o jsonpath='{.metadata.annotations}'", "")
}

const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{
    "replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
    "spec":{"containers":[{"name":"c","image":"nginx"}]}}}}"#;

fn scale(k: &Kubectl) -> Result<()> {
    k.file("web.json", DEPLOYMENT)?;
    k.says("create --validate=false -f web.json", "deployment.apps/web created")?;
    k.says("scale deployment web --replicas=3", "deployment.apps/web scaled")?;
    k.says("get deploy web -o jsonpath='{.spec.replicas} {.metadata.generation}'", "3 2")?;
    k.fails(
        "scale deployment web --replicas=4 --current-replicas=1",
        "error: Expected replicas to be 1, was 3",
    )?;
    k.says("scale deployment/web --replicas=4 --current-replicas=3", "deployment.apps/web scaled")?;
    k.says("scale --replicas=0 -f web.json", "deployment.apps/web scaled")?;
    k.says(
        "get deploy web --subresource=scale -o jsonpath='{.kind} {.apiVersion} {.spec.replicas} {.status.selector}'",
        "Scale autoscaling/v1  app=web",
    )?;
    k.says("get deploy web -o jsonpath='{.spec.replicas} {.metadata.generation}'", "0 4")?;
    k.ok("create cm c")?;
    k.fails(
        "scale cm c --replicas=3",
        "Error from server (NotFound): the server could not find the requested resource",
    )
}

const OBJECT: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","labels":{"a":"b"}},"data":{"k":"v"}}"#;

fn replace(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=old=1")?;
    k.says_given("replace --validate=false -f -", OBJECT, "configmap/c replaced")?;
    k.says("get cm c -o jsonpath='{.data} {.metadata.labels}'", r#"{"k":"v"} {"a":"b"}"#)?;
    let stale = OBJECT.replace(r#""labels""#, r#""resourceVersion":"1","labels""#);
    k.fails_given(
        "replace --validate=false -f -",
        &stale,
        "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on configmaps \
         \"c\": the object has been modified; please apply your changes to the latest version and try again",
    )?;
    let missing = OBJECT.replace(r#""c""#, r#""none""#);
    k.fails_given(
        "replace --validate=false -f -",
        &missing,
        "Error from server (NotFound): error when replacing \"STDIN\": configmaps \"none\" not found",
    )
}
