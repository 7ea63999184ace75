//! kubectl apply, diff, edit, replace, set, patch --type=strategic: what computes strategic merge patches.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "apply: create, change, change nothing", run: apply },
    Scenario { name: "apply: fields that leave the file leave the object", run: prune },
    Scenario { name: "apply: items keep their order, and sidecars their place", run: order },
    Scenario { name: "apply: finalizers and other lists of words", run: primitives },
    Scenario { name: "apply: --prune, --dry-run, set-last-applied", run: options },
    Scenario { name: "apply: diff shows what would change", run: diff },
    Scenario { name: "apply: edit with a script for an editor", run: edit },
    Scenario { name: "apply: replace a deployment", run: replace },
    Scenario { name: "apply: patch --type=strategic and its directives", run: strategic },
    Scenario { name: "apply: bad strategic patches are explained", run: bad_patches },
    Scenario { name: "apply: set image, env, resources; rollout history", run: set },
    Scenario { name: "apply: describe shows the object and its events", run: describe },
];

fn deployment(replicas: u8, strategy: &str, containers: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"}},"spec":{{"replicas":{replicas},{strategy}
        "selector":{{"matchLabels":{{"app":"web"}}}},"template":{{"metadata":{{"labels":{{"app":"web"}}}},
        "spec":{{"containers":[{containers}]}}}}}}}}"#
    )
}

const C: &str = r#"{"name":"c","image":"nginx"}"#;
const NAMES: &str = "get deploy web -o jsonpath='{.spec.template.spec.containers[*].name}'";

fn apply(k: &Kubectl) -> Result<()> {
    k.says_given("apply -f -", &deployment(1, "", C), "deployment.apps/web created")?;
    k.says_given("apply -f -", &deployment(1, "", C), "deployment.apps/web unchanged")?;
    let version = k.field("deploy web", ".metadata.resourceVersion")?;
    k.says_given("apply -f -", &deployment(3, "", C), "deployment.apps/web configured")?;
    ensure!(version != k.field("deploy web", ".metadata.resourceVersion")?, "nothing was written");
    k.says("get deploy web -o jsonpath='{.spec.replicas} {.metadata.generation}'", "3 2")?;
    k.file("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: one\n  b: two\n")?;
    k.says("apply -f cm.yaml", "configmap/c created")?;
    k.says("get cm c -o jsonpath='{.data}'", r#"{"a":"one","b":"two"}"#)
}

fn prune(k: &Kubectl) -> Result<()> {
    let first = deployment(
        2,
        r#""minReadySeconds":5,"#,
        r#"{"name":"c","image":"nginx","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"ports":[{"containerPort":80},{"containerPort":81}]},{"name":"gone","image":"busybox"}"#,
    );
    k.says_given("apply -f -", &first, "deployment.apps/web created")?;
    // Somebody else writes what the file does not name: it stays.
    k.ok("scale deploy web --replicas=5")?;
    k.ok("label deploy web other=yes")?;
    let second = deployment(
        2,
        "",
        r#"{"name":"c","image":"nginx:2","env":[{"name":"B","value":"3"}],"ports":[{"containerPort":81}]}"#,
    )
    .replace(r#""replicas":2,"#, "");
    k.says_given("apply -f -", &second, "deployment.apps/web configured")?;
    k.says(NAMES, "c")?;
    k.says(
        "get deploy web -o jsonpath='{.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env} {.spec.template.spec.containers[0].ports[*].containerPort} {.spec.minReadySeconds} {.metadata.labels}'",
        r#"nginx:2 [{"name":"B","value":"3"}] 81  {"other":"yes"}"#,
    )
}

fn order(k: &Kubectl) -> Result<()> {
    let named = |names: &[&str]| {
        let containers: Vec<String> =
            names.iter().map(|name| format!(r#"{{"name":"{name}","image":"nginx"}}"#)).collect();
        deployment(1, "", &containers.join(","))
    };
    k.says_given("apply -f -", &named(&["a", "b"]), "deployment.apps/web created")?;
    k.ok(r#"patch deploy web --type=json -p '[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"sidecar","image":"proxy"}}]'"#)?;
    k.says_given("apply -f -", &named(&["b", "a"]), "deployment.apps/web configured")?;
    k.says(NAMES, "b a sidecar")?;
    k.says_given("apply -f -", &named(&["b", "c"]), "deployment.apps/web configured")?;
    k.says(NAMES, "b sidecar c")?;
    k.says_given("apply -f -", &named(&["d"]), "deployment.apps/web configured")?;
    k.says(NAMES, "sidecar d")
}

fn primitives(k: &Kubectl) -> Result<()> {
    let map = |finalizers: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c","finalizers":[{finalizers}]}},"data":{{"a":"b"}}}}"#
        )
    };
    k.says_given("apply -f -", &map(r#""x.example/a","x.example/b""#), "configmap/c created")?;
    k.ok(r#"patch cm c --type=json -p '[{"op":"add","path":"/metadata/finalizers/-","value":"x.example/server"}]'"#)?;
    k.says_given("apply -f -", &map(r#""x.example/c","x.example/b""#), "configmap/c configured")?;
    k.says("get cm c -o jsonpath='{.metadata.finalizers[*]}'", "x.example/c x.example/b x.example/server")?;
    k.says_given("apply -f -", &map(""), "configmap/c configured")?;
    k.says("get cm c -o jsonpath='{.metadata.finalizers[*]}'", "x.example/server")?;
    k.ok(r#"patch cm c -p '{"metadata":{"finalizers":null}}'"#).map(drop)
}

const TWO: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {set: one}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, labels: {set: one}}\n";
const ONE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {set: one}}\n";

fn options(k: &Kubectl) -> Result<()> {
    k.says_given(
        "apply -f - --dry-run=server",
        TWO,
        "configmap/a created (server dry run)\nconfigmap/b created (server dry run)",
    )?;
    k.says("get cm -l set=one -o name", "")?;
    k.says_given("apply -f -", TWO, "configmap/a created\nconfigmap/b created")?;
    k.says_given(
        "apply -f - --prune -l set=one --prune-allowlist=core/v1/ConfigMap",
        ONE,
        "configmap/a unchanged\nconfigmap/b pruned",
    )?;
    k.says("get cm -l set=one -o name", "configmap/a")?;
    let applied = k.ok("apply view-last-applied cm/a -o json")?;
    ensure!(applied.contains(r#""set": "one""#), "{applied}");
    k.ok("create cm plain")?;
    let finished = k.run("apply -f -", Some(&ONE.replace("name: a", "name: plain")))?;
    ensure!(
        finished.status.success()
            && finished
                .stderr
                .contains("missing the kubectl.kubernetes.io/last-applied-configuration annotation"),
        "{}",
        finished.stderr
    );
    Ok(())
}

fn diff(k: &Kubectl) -> Result<()> {
    k.says_given("apply -f -", &deployment(1, "", C), "deployment.apps/web created")?;
    let same = k.run("diff -f -", Some(&deployment(1, "", C)))?;
    ensure!(same.status.success() && same.stdout.is_empty(), "{}{}", same.stdout, same.stderr);
    let changed = k.run("diff -f -", Some(&deployment(4, "", C)))?;
    ensure!(changed.status.code() == Some(1), "{}", changed.stderr);
    for line in ["-  replicas: 1", "+  replicas: 4", "-  generation: 1", "+  generation: 2"] {
        ensure!(changed.stdout.lines().any(|found| found == line), "{line} is missing:\n{}", changed.stdout);
    }
    k.says("get deploy web -o jsonpath='{.spec.replicas}'", "1")
}

fn edit(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=k=before")?;
    k.editor("sed -i s/before/after/ \"$1\"")?;
    k.says("edit cm c", "configmap/c edited")?;
    k.says("get cm c -o jsonpath='{.data.k}'", "after")?;
    k.editor("true")?;
    let unchanged = k.run("edit cm c", None)?;
    ensure!(unchanged.stderr.contains("Edit cancelled, no changes made."), "{}", unchanged.stderr);
    k.ok("create deployment web --image=nginx")?;
    k.editor("sed -i 's/replicas: 1/replicas: 3/; s/image: nginx/image: redis/' \"$1\"")?;
    k.says("edit deploy web", "deployment.apps/web edited")?;
    k.says(
        "get deploy web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[*].image}'",
        "3 redis",
    )
}

fn replace(k: &Kubectl) -> Result<()> {
    k.says_given("create -f -", &deployment(1, r#""minReadySeconds":5,"#, C), "deployment.apps/web created")?;
    k.says_given(
        "replace -f -",
        &deployment(2, "", r#"{"name":"d","image":"redis"}"#),
        "deployment.apps/web replaced",
    )?;
    k.says("get deploy web -o jsonpath='{.spec.replicas} {.spec.minReadySeconds}'", "2")?;
    k.says(NAMES, "d")?;
    k.says_given(
        "replace --force -f -",
        &deployment(1, "", C),
        "deployment.apps \"web\" deleted from {ns} namespace\ndeployment.apps/web replaced",
    )
}

fn strategic(k: &Kubectl) -> Result<()> {
    let base = deployment(1, "", r#"{"name":"c","image":"nginx"},{"name":"d","image":"redis"}"#);
    k.says_given("create -f -", &base, "deployment.apps/web created")?;
    let patch = |spec: &str| format!(r#"patch deploy web -p '{{"spec":{{{spec}}}}}'"#);
    let containers = |list: &str| patch(&format!(r#""template":{{"spec":{{"containers":[{list}]}}}}"#));
    k.says(&containers(r#"{"name":"c","image":"nginx:2"}"#), "deployment.apps/web patched")?;
    k.says(&containers(r#"{"name":"c","image":"nginx:2"}"#), "deployment.apps/web patched (no change)")?;
    k.says(NAMES, "c d")?;
    k.ok(&containers(r#"{"name":"e","image":"x"}"#))?;
    k.says(NAMES, "e c d")?;
    k.ok(&containers(r#"{"$patch":"delete","name":"c"}"#))?;
    k.says(NAMES, "e d")?;
    k.ok(&containers(r#"{"$patch":"replace"},{"name":"f","image":"x"}"#))?;
    k.says(NAMES, "f")?;
    k.ok(&patch(r#""strategy":{"$retainKeys":["type"],"type":"Recreate"}"#))?;
    k.says("get deploy web -o jsonpath='{.spec.strategy}'", r#"{"type":"Recreate"}"#)?;
    k.ok(&patch(r#""template":{"metadata":{"labels":{"$patch":"replace","app":"web"}}}"#))?;
    k.ok(r#"patch deploy web -p '{"metadata":{"labels":null,"annotations":{"a":"b"}}}'"#)?;
    k.says("get deploy web -o jsonpath='{.metadata.labels} {.metadata.annotations.a}'", " b")?;
    k.says(
        r#"patch deploy web --subresource=scale -p '{"spec":{"replicas":4}}'"#,
        "scale.autoscaling/web patched",
    )?;
    k.ok(r#"patch deploy web --subresource=status -p '{"status":{"conditions":[{"type":"Available","status":"True","reason":"A","message":"m"}]}}'"#)?;
    k.ok(r#"patch deploy web --subresource=status -p '{"status":{"conditions":[{"type":"Progressing","status":"True","reason":"A","message":"m"}]}}'"#)?;
    k.says(
        "get deploy web -o jsonpath='{.status.conditions[*].type} {.spec.replicas}'",
        "Progressing Available 4",
    )
}

fn bad_patches(k: &Kubectl) -> Result<()> {
    k.says_given("create -f -", &deployment(1, "", C), "deployment.apps/web created")?;
    let spec =
        |spec: &str| format!(r#"patch deploy web -p '{{"spec":{{"template":{{"spec":{{{spec}}}}}}}}}'"#);
    for (line, expected) in [
        (
            spec(r#""containers":[{"image":"x"}]"#),
            "Error from server: map: map[image:x] does not contain declared merge key: name",
        ),
        (spec(r#""$patch":"frob""#), "Error from server: unknown patch type: frob in map: map[$patch:frob]"),
        (
            spec(r#""containers":[{"$patch":"merge"}]"#),
            "Error from server: merging lists cannot yet be specified in the patch",
        ),
        (
            spec(r#""$retainKeys":["volumes"],"dnsPolicy":"Default""#),
            "Error from server (BadRequest): invalid patch format of retainKeys",
        ),
        (
            spec(r#""$setElementOrder/containers":[{"name":"x"}],"containers":[{"name":"c","image":"y"}]"#),
            "Error from server: The order in patch list:\n[map[image:y name:c]]\n doesn't match $setElementOrder list:\n[map[name:x]]",
        ),
        (
            spec(r#""$deleteFromPrimitiveList":["x"]"#),
            "Error from server (BadRequest): invalid patch format of primitive list",
        ),
        (
            spec(r#""containers":["c"]"#),
            "Error from server: list element types are not identical: [[map[image:nginx imagePullPolicy:Always name:c resources:map[] terminationMessagePath:/dev/termination-log terminationMessagePolicy:File]] [c]]",
        ),
        (
            r#"patch deploy web -p '{"spec":{"replicas":"three"}}'"#.to_owned(),
            "The request is invalid: patch: Invalid value: \"map[spec:map[replicas:three]]\": unrecognized type: int32",
        ),
        (
            r#"patch deploy web -p '{"spec":{"paused":1,"replicas":2}}'"#.to_owned(),
            "The request is invalid: patch: Invalid value: \"map[spec:map[paused:1 replicas:2]]\": unrecognized type: bool",
        ),
        (
            r#"patch deploy web -p '{"metadata":{"labels":{"a":5}}}'"#.to_owned(),
            "The request is invalid: patch: Invalid value: \"map[metadata:map[labels:map[a:5]]]\": cannot convert int64 to string",
        ),
        (
            r#"patch deploy web -p '{"metadata":{"labels":[]}}'"#.to_owned(),
            "The request is invalid: patch: Invalid value: \"map[metadata:map[labels:[]]]\": cannot restore map from slice",
        ),
        (
            r#"patch deploy web -p '{"$patch":"delete"}'"#.to_owned(),
            "Error from server (BadRequest): the name of the object (web based on URL) was undeterminable: name must be provided",
        ),
        (
            r#"patch deploy web -p '{"metadata":{"name":"other"}}'"#.to_owned(),
            "Error from server (BadRequest): the name of the object (other) does not match the name on the URL (web)",
        ),
    ] {
        k.fails(&line, expected)?;
    }
    k.says("get deploy web -o jsonpath='{.metadata.generation}'", "1")
}

fn set(k: &Kubectl) -> Result<()> {
    k.ok("create deployment web --image=nginx")?;
    k.says("set image deploy/web nginx=nginx:2", "deployment.apps/web image updated")?;
    k.says("set env deploy/web A=1 B=2", "deployment.apps/web env updated")?;
    k.says("set env deploy/web A-", "deployment.apps/web env updated")?;
    k.says(
        "set resources deploy/web --limits=cpu=1,memory=1Gi",
        "deployment.apps/web resource requirements updated",
    )?;
    k.says("set serviceaccount deploy/web robot", "deployment.apps/web serviceaccount updated")?;
    k.says(
        "get deploy web -o jsonpath='{.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env} {.spec.template.spec.containers[0].resources.limits} {.spec.template.spec.serviceAccountName}'",
        r#"nginx:2 [{"name":"B","value":"2"}] {"cpu":"1","memory":"1Gi"} robot"#,
    )?;
    k.says("rollout pause deploy/web", "deployment.apps/web paused")?;
    k.says("rollout resume deploy/web", "deployment.apps/web resumed")?;
    k.says("rollout restart deploy/web", "deployment.apps/web restarted")?;
    k.says("rollout history deploy/web", "deployment.apps/web \nNo rollout history found.")?;
    k.ok("create service clusterip s --tcp=80:80 --clusterip=None")?;
    k.says("set selector svc s app=web", "service/s selector updated")?;
    k.says("get svc s -o jsonpath='{.spec.selector}'", r#"{"app":"web"}"#)
}

fn describe(k: &Kubectl) -> Result<()> {
    k.ok("run p --image=nginx --labels=app=web")?;
    k.succeed(
        "create -f -",
        Some(&k.fill(
            r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p","namespace":"{ns}"},
            "reason":"Started","message":"hello","type":"Normal","source":{"component":"kubelet"}}"#,
        )),
    )?;
    let uid = k.field("pod p", ".metadata.uid")?;
    k.ok(&format!(r#"patch event e --type=merge -p '{{"involvedObject":{{"uid":"{uid}"}}}}'"#))?;
    k.mentions(
        "describe pod p",
        &[
            "Name:",
            "p",
            "Namespace:",
            "{ns}",
            "Labels:",
            "app=web",
            "Image:",
            "nginx",
            "Events:",
            "Started",
            "hello",
        ],
    )?;
    k.ok("create deployment web --image=nginx")?;
    k.mentions(
        "describe deploy web",
        &["Name:", "web", "Replicas:", "1 desired", "Pod Template:", "Image:", "nginx"],
    )?;
    k.ok("create cm c --from-literal=k=v")?;
    k.mentions("describe cm c", &["Name:", "c", "Data", "k:", "v"])
}
