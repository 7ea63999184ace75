//! CustomResourceDefinitions and what they define, as people meet them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "custom: printer columns, short names, categories", run: columns },
    Scenario { name: "custom: explain", run: explain },
    Scenario { name: "custom: edit with a typo in a field name", run: edit },
    Scenario { name: "custom: scale and status", run: parts },
    Scenario { name: "custom: bad objects", run: bad_objects },
    Scenario { name: "custom: a definition of more than 10,000 lines", run: large },
    Scenario { name: "custom: an APIService for each group-version", run: api_service },
];

/// How long kube-apiserver's controllers may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A group of its own for each scenario: definitions are in no namespace.
const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: foos.{ns}.example.com
spec:
  group: "{ns}.example.com"
  names: {kind: Foo, plural: foos, shortNames: [fo]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        description: Foo is a sample.
        properties:
          spec:
            type: object
            required: [replicas]
            properties:
              replicas: {type: integer, minimum: 0, maximum: 10, description: How many.}
              color: {type: string, enum: [red, green], default: red}
              names: {type: array, x-kubernetes-list-type: set, items: {type: string}}
            x-kubernetes-validations:
            - {rule: "self.color != 'green' || self.replicas > 1", message: green needs two}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
"#;

const FOO: &str = r#"
apiVersion: "{ns}.example.com/v1"
kind: Foo
metadata: {name: a}
spec: {replicas: 2}
"#;

fn define(k: &Kubectl) -> Result<()> {
    k.file("definition.yaml", k.fill(DEFINITION))?;
    k.file("foo.yaml", k.fill(FOO))?;
    k.says(
        "apply -f definition.yaml",
        "customresourcedefinition.apiextensions.k8s.io/foos.{ns}.example.com created",
    )?;
    established(k)
}

/// kubectl gives up on a definition that has no conditions yet, which kube-apiserver's has for some moments.
fn established(k: &Kubectl) -> Result<()> {
    until(k, "wait --for=condition=established crd/foos.{ns}.example.com --timeout=30s")
}

/// Runs a command again until it succeeds.
fn until(k: &Kubectl, line: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let finished = k.run(line, None)?;
        if finished.status.success() {
            return Ok(());
        }
        ensure!(begun.elapsed() < LIMIT, "kubectl {line} fails for {LIMIT:?}: {}", finished.stderr);
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn columns(k: &Kubectl) -> Result<()> {
    define(k)?;
    k.says("apply -f foo.yaml", "foo.{ns}.example.com/a created")?;
    k.says("apply -f foo.yaml", "foo.{ns}.example.com/a unchanged")?;
    k.says("get foos.{ns}.example.com", "NAME   REPLICAS   READY\na      2          ")?;
    k.ok(r#"patch foos.{ns}.example.com a --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'"#)?;
    k.says(
        "get foos.{ns}.example.com -o wide",
        "NAME   REPLICAS   COLOR   READY\na      2          red     True",
    )?;
    k.says("get fo.{ns}.example.com -o name", "foo.{ns}.example.com/a")?;
    k.says("delete foos.{ns}.example.com a", "foo.{ns}.example.com \"a\" deleted from {ns} namespace")
}

/// kube-apiserver publishes the schema some moments after the definition is established.
fn published(k: &Kubectl) -> Result<()> {
    until(k, "explain foos --api-version={ns}.example.com/v1")
}

fn explain(k: &Kubectl) -> Result<()> {
    define(k)?;
    published(k)?;
    k.mentions(
        "explain foos.spec --api-version={ns}.example.com/v1 --recursive",
        &[
            "GROUP:      {ns}.example.com\nKIND:       Foo\nVERSION:    v1\n",
            "color\t<string>",
            "replicas\t<integer> -required-",
        ],
    )?;
    k.mentions("explain foos.spec.replicas --api-version={ns}.example.com/v1", &["How many."])
}

fn edit(k: &Kubectl) -> Result<()> {
    define(k)?;
    k.ok("apply -f foo.yaml")?;
    k.editor("sed -i 's/^  replicas: 2/  replicas: 3/' \"$1\"")?;
    k.says("edit foos.{ns}.example.com a", "foo.{ns}.example.com/a edited")?;
    k.editor("sed -i 's/^  color:/  colour:/' \"$1\"; cp \"$1\" edited")?;
    let finished = k.run("edit foos.{ns}.example.com a", None)?;
    ensure!(!finished.status.success(), "a typo was accepted: {}", finished.stdout);
    // kubectl shows the reason in the file, for the next try, and keeps a copy of it.
    let complaint = k.fill("error: foos.{ns}.example.com \"a\" is invalid\n");
    ensure!(finished.stderr.starts_with(&complaint), "other words: {}", finished.stderr);
    k.mentions_file("edited", "unknown field \"spec.colour\"")?;
    k.says("get foos.{ns}.example.com a -o jsonpath='{.spec}'", r#"{"color":"red","replicas":3}"#)
}

fn parts(k: &Kubectl) -> Result<()> {
    define(k)?;
    k.ok("apply -f foo.yaml")?;
    k.says("scale foos.{ns}.example.com a --replicas=4", "foo.{ns}.example.com/a scaled")?;
    k.says("get foos.{ns}.example.com a -o jsonpath='{.spec.replicas} {.metadata.generation}'", "4 2")
}

fn bad_objects(k: &Kubectl) -> Result<()> {
    define(k)?;
    let object = |spec: &str| k.fill(FOO).replace("{replicas: 2}", spec);
    k.fails_given(
        "create -f -",
        &object("{replicas: 11}"),
        "The Foo \"a\" is invalid: spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to \
         10",
    )?;
    k.fails_given(
        "create -f -",
        &object("{replicas: 1, color: green}"),
        "The Foo \"a\" is invalid: spec: Invalid value: green needs two",
    )?;
    k.fails_given(
        "create -f -",
        &object("{replicas: 1, names: [x, x]}"),
        "The Foo \"a\" is invalid: spec.names[1]: Duplicate value: \"x\"",
    )?;
    k.fails_given(
        "create -f -",
        &object("{replicas: 1, nested: {a: 1}}"),
        "Error from server (BadRequest): error when creating \"STDIN\": Foo in version \"v1\" cannot be handled as a \
         Foo: strict decoding error: unknown field \"spec.nested\"",
    )
}

/// A schema of the size of cert-manager's or the Prometheus operator's.
fn large(k: &Kubectl) -> Result<()> {
    let mut fields = String::new();
    for section in 0..40 {
        fields.push_str(&format!(
            "              section{section}:\n                type: object\n                description: Section {section}.\n                properties:\n"
        ));
        for field in 0..85 {
            fields.push_str(&format!(
                "                  field{field}:\n                    type: string\n                    description: Field {field} of section {section}, with a sentence that says what it is for.\n"
            ));
        }
    }
    let definition = k.fill(DEFINITION).replace(
        "            properties:\n              replicas",
        &format!("            properties:\n{fields}              replicas"),
    );
    let lines = definition.lines().count();
    ensure!(lines > 10_000, "only {lines} lines");
    k.file("definition.yaml", &definition)?;
    // Client-side apply would put all of it into an annotation, which is too long for that.
    let establish = timed(|| {
        k.ok("create -f definition.yaml")?;
        established(k)
    })?;
    let object = FOO.replace("{replicas: 2}", "{replicas: 2, section7: {field9: hello}}");
    let apply = timed(|| k.says_given("apply -f -", &object, "foo.{ns}.example.com/a created"))?;
    published(k)?;
    let explain = timed(|| {
        k.mentions(
            "explain foos.spec.section7.field9 --api-version={ns}.example.com/v1",
            &["Field 9 of section 7"],
        )
    })?;
    let get = timed(|| k.says("get foos.{ns}.example.com", "NAME   REPLICAS   READY\na      2          "))?;
    println!(
        "      {lines} lines: establish {establish} ms, apply {apply} ms, explain {explain} ms, get {get} ms"
    );
    Ok(())
}

/// How many milliseconds something takes that succeeds.
fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<u128> {
    let begun = Instant::now();
    run()?;
    Ok(begun.elapsed().as_millis())
}

fn api_service(k: &Kubectl) -> Result<()> {
    define(k)?;
    k.ok("wait --for=condition=available apiservice/v1.{ns}.example.com --timeout=30s")?;
    k.mentions(
        "get apiservice v1.{ns}.example.com -o yaml",
        &[
            "kube-aggregator.kubernetes.io/automanaged: \"true\"",
            "groupPriorityMinimum: 1000",
            "versionPriority: 100",
            "reason: Local",
        ],
    )
}
