//! Numbers at the ends of their types, wherever a client may write one that is added to something, or to now.

use super::{Attack, own};

/// A method, a path below the namespace, and a body. `#` stands for the number, `@` for a continue token with it.
type Field = (&'static str, &'static str, &'static str);

const FIELDS: &[Field] = &[
    ("DELETE", "api/v1 pods/guarded?dryRun=All&gracePeriodSeconds=#", ""),
    ("DELETE", "api/v1 pods/guarded?dryRun=All", r#"{"dryRun":["All"],"gracePeriodSeconds":#}"#),
    (
        "POST",
        "api/v1 pods/guarded/eviction?dryRun=All",
        r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"guarded"},"deleteOptions":{"dryRun":["All"],"gracePeriodSeconds":#}}"#,
    ),
    ("GET", "api/v1 pods?watch=true&timeoutSeconds=#", ""),
    ("GET", "api/v1 pods?timeoutSeconds=#&limit=#", ""),
    ("GET", "api/v1 pods?resourceVersion=#", ""),
    ("GET", "api/v1 pods?resourceVersion=#&resourceVersionMatch=Exact", ""),
    ("GET", "api/v1 pods?watch=true&resourceVersion=#&timeoutSeconds=1", ""),
    ("GET", "api/v1 pods?timeout=#h", ""),
    ("GET", "api/v1 pods/guarded/log?sinceSeconds=#", ""),
    ("GET", "api/v1 pods/guarded/log?tailLines=#&limitBytes=#", ""),
    ("POST", "api/v1 serviceaccounts/guarded/token", r#"{"spec":{"expirationSeconds":#}}"#),
    (
        "POST",
        "api/v1 pods?dryRun=All",
        r#"{"metadata":{"name":"n","generation":#,"deletionGracePeriodSeconds":#},"spec":{"terminationGracePeriodSeconds":#,"activeDeadlineSeconds":#,"priority":#,"serviceAccountName":"guarded","tolerations":[{"operator":"Exists","effect":"NoExecute","tolerationSeconds":#}],"containers":[{"name":"c","image":"i"}]}}"#,
    ),
    (
        "POST",
        "api/v1 pods?dryRun=All",
        r#"{"metadata":{"name":"n"},"spec":{"serviceAccountName":"guarded","containers":[{"name":"c","image":"i","ports":[{"containerPort":#,"hostPort":#}],"livenessProbe":{"exec":{"command":["x"]},"initialDelaySeconds":#,"periodSeconds":#,"timeoutSeconds":#,"failureThreshold":#,"terminationGracePeriodSeconds":#},"lifecycle":{"preStop":{"sleep":{"seconds":#}}}}]}}"#,
    ),
    (
        "POST",
        "api/v1 pods?dryRun=All",
        r##"{"metadata":{"name":"n"},"spec":{"serviceAccountName":"guarded","containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"#","memory":"#Ei"},"limits":{"cpu":"#E","memory":"1e#"}}}]}}"##,
    ),
    (
        "POST",
        "batch/v1 jobs?dryRun=All",
        r#"{"metadata":{"name":"n"},"spec":{"parallelism":#,"completions":#,"completionMode":"Indexed","backoffLimit":#,"backoffLimitPerIndex":#,"maxFailedIndexes":#,"activeDeadlineSeconds":#,"ttlSecondsAfterFinished":#,"successPolicy":{"rules":[{"succeededCount":#,"succeededIndexes":"0-#"}]},"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#,
    ),
    (
        "POST",
        "batch/v1 cronjobs?dryRun=All",
        r#"{"metadata":{"name":"n"},"spec":{"schedule":"*/# * * * *","startingDeadlineSeconds":#,"successfulJobsHistoryLimit":#,"failedJobsHistoryLimit":#,"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}"#,
    ),
    (
        "POST",
        "apps/v1 deployments?dryRun=All",
        r##"{"metadata":{"name":"n","annotations":{"deployment.kubernetes.io/revision":"#"}},"spec":{"replicas":#,"minReadySeconds":#,"progressDeadlineSeconds":#,"revisionHistoryLimit":#,"strategy":{"rollingUpdate":{"maxSurge":#,"maxUnavailable":"#%"}},"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"##,
    ),
    (
        "POST",
        "apps/v1 statefulsets?dryRun=All",
        r#"{"metadata":{"name":"n"},"spec":{"replicas":#,"minReadySeconds":#,"ordinals":{"start":#},"updateStrategy":{"rollingUpdate":{"partition":#,"maxUnavailable":#}},"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
    ),
    (
        "POST",
        "apps/v1 daemonsets",
        r##"{"metadata":{"name":"n","annotations":{"deprecated.daemonset.template.generation":"#"}},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"##,
    ),
    (
        "PATCH",
        "apps/v1 daemonsets/n",
        r##"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"#"}]"##,
    ),
    ("DELETE", "apps/v1 daemonsets/n", ""),
    (
        "POST",
        "autoscaling/v2 horizontalpodautoscalers?dryRun=All",
        r#"{"metadata":{"name":"n"},"spec":{"minReplicas":#,"maxReplicas":#,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"behavior":{"scaleUp":{"stabilizationWindowSeconds":#,"policies":[{"type":"Pods","value":#,"periodSeconds":#}]}}}}"#,
    ),
    (
        "POST",
        "api/v1 services?dryRun=All",
        r#"{"metadata":{"name":"n"},"spec":{"type":"NodePort","ports":[{"port":#,"targetPort":#,"nodePort":#}],"healthCheckNodePort":#,"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":#}}}}"#,
    ),
    (
        "POST",
        "policy/v1 poddisruptionbudgets?dryRun=All",
        r##"{"metadata":{"name":"n"},"spec":{"minAvailable":"#%","selector":{}},"status":{"observedGeneration":#,"disruptionsAllowed":#,"currentHealthy":#,"desiredHealthy":#,"expectedPods":#}}"##,
    ),
    (
        "POST",
        "api/v1 persistentvolumeclaims?dryRun=All",
        r##"{"metadata":{"name":"n"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"#Ei"}}}}"##,
    ),
    (
        "POST",
        "api/v1 events?dryRun=All",
        r#"{"metadata":{"name":"n","namespace":"hostile"},"involvedObject":{"namespace":"hostile"},"count":#,"series":{"count":#}}"#,
    ),
    ("GET", "api/v1 pods?limit=1&continue=@", ""),
];

/// What is written: at the ends of the types that numbers are read into, and past them.
const NUMBERS: &[&str] =
    &["9223372036854775807", "-9223372036854775808", "2147483647", "18446744073709551615", "1e308"];

pub(super) const KINDS: usize = FIELDS.len() * NUMBERS.len();

pub(super) fn attack(n: usize) -> Attack {
    let ((method, place, body), number) = (FIELDS[n / NUMBERS.len()], NUMBERS[n % NUMBERS.len()]);
    let (root, path) = place.split_once(' ').expect("a root and a path");
    let root = if root == "api/v1" { root.to_owned() } else { format!("apis/{root}") };
    let path = own(&root, path).replace('#', number).replace('@', &token(number));
    let mut attack = Attack::json(method, path, body.replace('#', number));
    if method == "PATCH" {
        attack.media = "application/json-patch+json";
    }
    attack
}

/// A continue token that says that so many objects come before.
fn token(number: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let text = format!(r#"{{"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000","before":{number}}}"#);
    let mut token = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        let digits = [18, 12, 6, 0].map(|shift| char::from(DIGITS[(bits >> shift & 63) as usize]));
        token.extend(&digits[..=three.len()]);
    }
    token
}
