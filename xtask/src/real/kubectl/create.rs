//! kubectl create, kubectl run.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "create a namespace", run: namespace },
    Scenario { name: "create configmaps from literals and files", run: configmap },
    Scenario { name: "create secrets", run: secret },
    Scenario { name: "create -f: yaml, json, many documents, a list, stdin", run: from_files },
    Scenario { name: "create --validate: strict, warn, ignore", run: validate },
    Scenario { name: "create with generateName", run: generate_name },
    Scenario { name: "create --dry-run=server writes nothing", run: dry_run },
    Scenario { name: "create other kinds by subcommand", run: subcommands },
    Scenario { name: "run a pod", run: run_pod },
];

fn namespace(k: &Kubectl) -> Result<()> {
    let name = "{ns}-more";
    k.says(&format!("create namespace {name}"), "namespace/{ns}-more created")?;
    k.says(
        &format!("get namespace {name} -o jsonpath='{{.status.phase}} {{.spec.finalizers}}'"),
        "Active [\"kubernetes\"]",
    )?;
    k.says("get ns -l kubernetes.io/metadata.name={ns}-more -o name", "namespace/{ns}-more")?;
    let there_from_the_start =
        "namespace/default\nnamespace/kube-node-lease\nnamespace/kube-public\nnamespace/kube-system";
    k.says("get ns default kube-node-lease kube-public kube-system -o name", there_from_the_start)
}

fn configmap(k: &Kubectl) -> Result<()> {
    k.file("greeting.txt", "hello\nworld\n")?;
    k.file("raw.bin", [0, 1, 0xff])?;
    k.says("create configmap words --from-literal=a=1 --from-literal=b=two", "configmap/words created")?;
    k.says("get cm words -o jsonpath='{.data.a} {.data.b}'", "1 two")?;
    k.says("create cm files --from-file=greeting.txt --from-file=raw=raw.bin", "configmap/files created")?;
    ensure!(k.field("cm files", ".data.greeting\\.txt")? == "hello\nworld\n", "the text changed");
    k.says("get cm files -o jsonpath='{.binaryData.raw}'", "AAH/")?;
    k.file("many.env", "ONE=1\nTWO=2\n")?;
    k.says("create cm env --from-env-file=many.env", "configmap/env created")?;
    k.says("get cm env -o jsonpath='{.data}'", r#"{"ONE":"1","TWO":"2"}"#)
}

fn secret(k: &Kubectl) -> Result<()> {
    k.says("create secret generic login --from-literal=password=hunter2", "secret/login created")?;
    k.says("get secret login -o jsonpath='{.type} {.data.password}'", "Opaque aHVudGVyMg==")?;
    k.says(
        "create secret docker-registry pull --docker-server=r --docker-username=u --docker-password=p",
        "secret/pull created",
    )?;
    k.says("get secret pull -o jsonpath='{.type}'", "kubernetes.io/dockerconfigjson")?;
    // stringData is written, never read.
    let text = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"text"},"stringData":{"k":"v"}}"#;
    k.says_given("create --validate=false -f -", text, "secret/text created")?;
    k.says("get secret text -o jsonpath='{.data} {.stringData}'", r#"{"k":"dg=="} "#)
}

const TWO_DOCUMENTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {app: x}}
data: {k: v}
---
# Nothing but a comment.
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: two
  labels: {app: x}
";

const A_LIST: &str = r#"{"apiVersion":"v1","kind":"List","items":[
    {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l1"}},
    {"apiVersion":"v1","kind":"Secret","metadata":{"name":"l2"}}]}"#;

fn from_files(k: &Kubectl) -> Result<()> {
    k.file("two.yaml", TWO_DOCUMENTS)?;
    k.says("create -f two.yaml", "configmap/one created\nconfigmap/two created")?;
    k.file("one.json", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"j"},"data":{"a":"b"}}"#)?;
    k.says("create -f one.json", "configmap/j created")?;
    k.says_given("create -f -", A_LIST, "configmap/l1 created\nsecret/l2 created")?;
    k.says("get -f two.yaml -o name", "configmap/one\nconfigmap/two")?;
    k.says("get cm -o name -l app", "configmap/one\nconfigmap/two")
}

const MISSPELT: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"daat":{"a":"b"},"data":{"k":"v"}}"#;

fn validate(k: &Kubectl) -> Result<()> {
    let strict = "Error from server (BadRequest): error when creating \"STDIN\": ConfigMap in version \"v1\" cannot be \
                  handled as a ConfigMap: strict decoding error: unknown field \"daat\"";
    k.fails_given("create -f -", &MISSPELT.replace("NAME", "strict"), strict)?;
    let warned = k.run("create --validate=warn -f -", Some(&MISSPELT.replace("NAME", "warned")))?;
    ensure!(warned.status.success(), "a warning is not an error: {}", warned.stderr);
    k.compare("create --validate=warn", &warned.stderr, "Warning: unknown field \"daat\"")?;
    k.compare("create --validate=warn", &warned.stdout, "configmap/warned created")?;
    let ignored = k.run("create --validate=ignore -f -", Some(&MISSPELT.replace("NAME", "ignored")))?;
    k.compare("create --validate=ignore", &ignored.stderr, "")?;
    k.says("get cm warned ignored -o jsonpath='{.items[*].data.k} {.items[*].daat}'", "v v ")?;
    k.fails("get cm strict", "Error from server (NotFound): configmaps \"strict\" not found")
}

fn generate_name(k: &Kubectl) -> Result<()> {
    k.file("gen.json", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"gen-"}}"#)?;
    k.ok("create --validate=false -f gen.json")?;
    k.ok("create --validate=false -f gen.json")?;
    let names = k.field("cm", ".items[*].metadata.name")?;
    let names: Vec<&str> = names.split(' ').collect();
    ensure!(names.len() == 2, "not two objects: {names:?}");
    for name in names {
        let random = name.strip_prefix("gen-").unwrap_or_default();
        ensure!(
            random.len() == 5 && random.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
            "{name}"
        );
    }
    Ok(())
}

fn dry_run(k: &Kubectl) -> Result<()> {
    k.says("create cm idea --from-literal=a=1 --dry-run=server", "configmap/idea created (server dry run)")?;
    k.fails("get cm idea", "Error from server (NotFound): configmaps \"idea\" not found")?;
    k.says("create cm real", "configmap/real created")?;
    k.says(
        "delete cm real --dry-run=server",
        "configmap \"real\" deleted from {ns} namespace (server dry run)",
    )?;
    k.says("label cm real a=b --dry-run=server", "configmap/real labeled (server dry run)")?;
    k.says("get cm real -o jsonpath='{.metadata.name}{.metadata.labels}'", "real")
}

fn subcommands(k: &Kubectl) -> Result<()> {
    for (line, printed) in [
        ("deployment web --image=nginx --replicas=2", "deployment.apps/web created"),
        ("serviceaccount robot", "serviceaccount/robot created"),
        ("service clusterip web --tcp=80:8080", "service/web created"),
        ("job once --image=busybox", "job.batch/once created"),
        ("cronjob nightly --image=busybox --schedule='0 3 * * *'", "cronjob.batch/nightly created"),
        ("role reader --verb=get --resource=pods", "role.rbac.authorization.k8s.io/reader created"),
        (
            "rolebinding readers --role=reader --serviceaccount={ns}:robot",
            "rolebinding.rbac.authorization.k8s.io/readers created",
        ),
        ("quota small --hard=pods=3", "resourcequota/small created"),
        (
            "poddisruptionbudget web --selector=app=web --min-available=1",
            "poddisruptionbudget.policy/web created",
        ),
        ("ingress web --rule='a.example/=web:80'", "ingress.networking.k8s.io/web created"),
    ] {
        k.says(&format!("create {line}"), printed)?;
    }
    k.says(
        "get deploy web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image}'",
        "2 nginx",
    )?;
    k.says("get svc web -o jsonpath='{.spec.ports[0].port} {.spec.ports[0].targetPort}'", "80 8080")?;
    k.says("get pdb web -o jsonpath='{.spec.minAvailable}'", "1")
}

/// The command of the seeds' lab. It has no `--validate`: kubectl run never
/// asks for a schema.
fn run_pod(k: &Kubectl) -> Result<()> {
    k.says("run test --image=nginx --image-pull-policy=IfNotPresent", "pod/test created")?;
    k.says(
        "get pod test -o jsonpath='{.metadata.labels.run} {.spec.containers[0].image} \
         {.spec.containers[0].imagePullPolicy} {.status.phase} {.metadata.generation}'",
        "test nginx IfNotPresent Pending 1",
    )?;
    k.says("get pods -l run=test --field-selector status.phase=Pending -o name", "pod/test")?;
    k.says("run envy --image=busybox --env=A=b --port=80 -- sleep 1", "pod/envy created")?;
    k.says(
        "get pod envy -o jsonpath='{.spec.containers[0].args} {.spec.containers[0].env[0].value}'",
        r#"["sleep","1"] b"#,
    )
}
