//! Jobs and CronJobs.

use anyhow::Result;

use super::{Kubectl, Scenario, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "create a job", run: job },
    Scenario { name: "a job that fails", run: failing },
    Scenario { name: "create a cronjob and run it", run: cron_job },
];

/// What a Job says, without times.
fn state(kubectl: &Kubectl, name: &str) -> Result<String> {
    let numbers = "{.status.succeeded}/{.status.failed}/{.status.active}/{.status.ready}/{.status.terminating}/\
                   {.status.uncountedTerminatedPods}";
    let numbers = kubectl.ok(&format!("get job {name} -o jsonpath='{numbers}'"))?;
    let conditions = "{range .status.conditions[*]}{.type}={.status}:{.reason} {end}";
    let conditions = sorted(kubectl, &format!("job {name}"), conditions)?;
    let reasons = "{range .items[?(@.involvedObject.kind==\"Job\")]}{.type}:{.reason} {end}";
    let reasons = sorted(kubectl, "events", reasons)?;
    let finalizers = kubectl.ok("get pods -o jsonpath='{.items[*].metadata.finalizers}'")?;
    Ok(format!("{numbers} | {conditions} | {reasons} | finalizers {finalizers}"))
}

fn job(kubectl: &Kubectl) -> Result<String> {
    kubectl.says("create job hello --image=busybox -- echo hello", "job.batch/hello created")?;
    kubectl.ok("wait --for=condition=complete --timeout=55s job/hello")?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].status.phase}'", "Succeeded")?;
    state(kubectl, "hello")
}

const FAILING: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec:
  backoffLimit: 0
  template:
    metadata:
      annotations: {sim.setpoint.dev/exit-code: "3"}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox}]
"#;

fn failing(kubectl: &Kubectl) -> Result<String> {
    kubectl.file("bad.yaml", FAILING)?;
    kubectl.ok("create -f bad.yaml")?;
    kubectl.ok("wait --for=condition=failed --timeout=55s job/bad")?;
    state(kubectl, "bad")
}

fn cron_job(kubectl: &Kubectl) -> Result<String> {
    let line = "create cronjob tick --image=busybox --schedule='* * * * *' -- echo tick";
    kubectl.says(line, "cronjob.batch/tick created")?;
    let job = wait_for_words(kubectl, "get jobs -o jsonpath='{.items[*].metadata.name}'", 1)?.remove(0);
    // No second one, however slow the rest is.
    let off = "{\"spec\":{\"suspend\":true}}";
    kubectl.ok(&format!("patch cronjob tick -p '{off}'"))?;
    kubectl.ok(&format!("wait --for=condition=complete --timeout=55s job/{job}"))?;
    wait(kubectl, "get cronjob tick -o jsonpath='{.status.active}'", "")?;
    let reasons = "{range .items[?(@.involvedObject.kind==\"CronJob\")]}{.type}:{.reason} {end}";
    let reasons = sorted(kubectl, "events", reasons)?;
    let scheduled = kubectl.field("cronjob tick", ".status.lastScheduleTime")?;
    let at = ".metadata.annotations.batch\\.kubernetes\\.io/cronjob-scheduled-timestamp";
    let is_same = kubectl.field(&format!("job {job}"), at)? == scheduled;
    let owner = kubectl.field(&format!("job {job}"), ".metadata.ownerReferences[0].kind")?;
    Ok(format!("{reasons} | annotated with its time: {is_same} | owner {owner}"))
}
