//! kubectl get for people: the columns of each kind, wide, and as they change.

use std::time::Duration;

use anyhow::{Result, ensure};

use serde_json::Value;

use super::proxy::proxy;
use super::{Kubectl, Scenario};

const SOON: Duration = Duration::from_secs(30);

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "table: pods and what they are doing", run: pods },
    Scenario { name: "table: workloads", run: workloads },
    Scenario { name: "table: jobs and cron jobs", run: jobs },
    Scenario { name: "table: configuration and namespaces", run: configuration },
    Scenario { name: "table: services and their endpoints", run: services },
    Scenario { name: "table: ingresses and network policies", run: ingresses },
    Scenario { name: "table: nodes", run: nodes },
    Scenario { name: "table: roles and bindings", run: roles },
    Scenario { name: "table: volumes, claims and classes", run: volumes },
    Scenario { name: "table: autoscalers, budgets, priorities", run: autoscalers },
    Scenario { name: "table: events", run: events },
    Scenario { name: "table: labels, sorting, no headers, a scale", run: options },
    Scenario { name: "table: get -w", run: watch },
    Scenario { name: "table: the columns of every kind", run: columns },
];

/// One line a kind: its columns, each with type, format and priority where these say something.
const COLUMNS: &str = include_str!("table/columns.txt");

/// Cells with `|` between them; ages are masked.
fn rows(printed: &str) -> String {
    let line = |line: &str| {
        let cells = line.trim_end().split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(|cell| if is_age(cell) { "AGE" } else { cell }).collect::<Vec<_>>().join("|")
    };
    printed.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Everything here is younger than two minutes.
fn is_age(cell: &str) -> bool {
    cell.strip_suffix('s').is_some_and(|number| number.parse::<u8>().is_ok())
}

fn shows(k: &Kubectl, line: &str, expected: &str) -> Result<()> {
    let printed = rows(&k.ok(line)?);
    let expected = k.fill(expected);
    ensure!(printed == expected, "kubectl {line}\nexpected:\n{expected}\nprinted:\n{printed}");
    Ok(())
}

fn create(k: &Kubectl, objects: &str) -> Result<()> {
    k.succeed("create -f -", Some(&k.fill(objects))).map(drop)
}

fn status(k: &Kubectl, object: &str, status: &str) -> Result<()> {
    k.ok(&format!("patch {object} --subresource=status --type=merge -p '{{\"status\":{status}}}'")).map(drop)
}

fn pods(k: &Kubectl) -> Result<()> {
    create(
        k,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{
            "initContainers":[{"name":"i","image":"busybox"},{"name":"side","image":"busybox","restartPolicy":"Always"}],
            "containers":[{"name":"a","image":"nginx"},{"name":"b","image":"redis"}]}}"#,
    )?;
    shows(k, "get pods", "NAME|READY|STATUS|RESTARTS|AGE\np|0/3|Pending|0|AGE")?;
    status(
        k,
        "pod p",
        r#"{"phase":"Pending","initContainerStatuses":[{"name":"i","image":"x","imageID":"x","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff"}}}]}"#,
    )?;
    shows(k, "get pods --no-headers", "p|0/3|Init:ImagePullBackOff|0|AGE")?;
    status(
        k,
        "pod p",
        r#"{"phase":"Running","podIP":"10.1.2.3","initContainerStatuses":[
            {"name":"i","image":"x","imageID":"x","ready":true,"restartCount":0,"state":{"terminated":{"exitCode":0,"reason":"Completed"}}},
            {"name":"side","image":"x","imageID":"x","ready":true,"started":true,"restartCount":0,"state":{"running":{}}}],
            "containerStatuses":[
            {"name":"a","image":"x","imageID":"x","ready":true,"started":true,"restartCount":0,"state":{"running":{}}},
            {"name":"b","image":"x","imageID":"x","ready":false,"started":false,"restartCount":4,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}"#,
    )?;
    shows(
        k,
        "get pods -o wide",
        "NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|NOMINATED NODE|READINESS GATES\n\
         p|2/3|CrashLoopBackOff|4|AGE|10.1.2.3|<none>|<none>|<none>",
    )
}

fn workloads(k: &Kubectl) -> Result<()> {
    let template = r#""selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
        "spec":{"containers":[{"name":"c","image":"nginx"},{"name":"d","image":"redis"}]}}"#;
    for kind in ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"] {
        let extra = match kind {
            "DaemonSet" => "",
            "StatefulSet" => r#""replicas":2,"serviceName":"s","#,
            _ => r#""replicas":2,"#,
        };
        create(
            k,
            &format!(
                r#"{{"apiVersion":"apps/v1","kind":"{kind}","metadata":{{"name":"web"}},"spec":{{{extra}{template}}}}}"#
            ),
        )?;
    }
    status(k, "deploy web", r#"{"replicas":2,"readyReplicas":1,"updatedReplicas":2,"availableReplicas":1}"#)?;
    shows(k, "get deploy", "NAME|READY|UP-TO-DATE|AVAILABLE|AGE\nweb|1/2|2|1|AGE")?;
    shows(
        k,
        "get deploy -o wide",
        "NAME|READY|UP-TO-DATE|AVAILABLE|AGE|CONTAINERS|IMAGES|SELECTOR\nweb|1/2|2|1|AGE|c,d|nginx,redis|app=web",
    )?;
    shows(
        k,
        "get rs -o wide",
        "NAME|DESIRED|CURRENT|READY|AGE|CONTAINERS|IMAGES|SELECTOR\nweb|2|0|0|AGE|c,d|nginx,redis|app=web",
    )?;
    shows(
        k,
        "get ds",
        "NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|NODE SELECTOR|AGE\nweb|0|0|0|0|0|<none>|AGE",
    )?;
    shows(k, "get sts -o wide", "NAME|READY|AGE|CONTAINERS|IMAGES\nweb|0/2|AGE|c,d|nginx,redis")?;
    create(
        k,
        r#"{"apiVersion":"v1","kind":"ReplicationController","metadata":{"name":"old"},"spec":{"replicas":1,
            "selector":{"app":"old"},"template":{"metadata":{"labels":{"app":"old"}},
            "spec":{"containers":[{"name":"c","image":"nginx"}]}}}}"#,
    )?;
    shows(
        k,
        "get rc -o wide",
        "NAME|DESIRED|CURRENT|READY|AGE|CONTAINERS|IMAGES|SELECTOR\nold|1|0|0|AGE|c|nginx|app=old",
    )?;
    create(
        k,
        r#"{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"r","ownerReferences":[
            {"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"1","controller":true}]},"revision":3,"data":{}}"#,
    )?;
    shows(k, "get controllerrevisions", "NAME|CONTROLLER|REVISION|AGE\nr|statefulset.apps/web|3|AGE")
}

fn jobs(k: &Kubectl) -> Result<()> {
    k.ok("create job j --image=busybox")?;
    shows(
        k,
        "get jobs",
        "NAME|STATUS|COMPLETIONS|DURATION|AGE\nj|Running|0/1||AGE".replace("||", "|").as_str(),
    )?;
    k.ok("create cronjob cj --image=busybox --schedule='*/5 * * * *'")?;
    shows(
        k,
        "get cronjobs",
        "NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|AGE\ncj|*/5 * * * *|<none>|False|0|<none>|AGE",
    )
}

fn configuration(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=a=1 --from-literal=b=2")?;
    shows(k, "get cm c", "NAME|DATA|AGE\nc|2|AGE")?;
    k.ok("create secret generic s --from-literal=a=1")?;
    shows(k, "get secret s", "NAME|TYPE|DATA|AGE\ns|Opaque|1|AGE")?;
    k.ok("create sa robot")?;
    shows(k, "get sa robot", "NAME|AGE\nrobot|AGE")?;
    shows(k, "get ns {ns}", "NAME|STATUS|AGE\n{ns}|Active|AGE")?;
    create(
        k,
        r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}"#,
    )?;
    shows(k, "get leases", "NAME|HOLDER|AGE\nl|me|AGE")?;
    create(
        k,
        r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"pods":"5","limits.cpu":"2"}}}"#,
    )?;
    status(
        k,
        "quota q",
        r#"{"hard":{"pods":"5","limits.cpu":"2"},"used":{"pods":"1","limits.cpu":"500m"}}"#,
    )?;
    shows(k, "get quota", "NAME|REQUEST|LIMIT|AGE\nq|pods: 1/5|limits.cpu: 500m/2|AGE")
}

fn services(k: &Kubectl) -> Result<()> {
    k.ok("create service clusterip s --tcp=80:8080 --clusterip=None")?;
    shows(
        k,
        "get svc s",
        "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE\ns|ClusterIP|None|<none>|80/TCP|AGE",
    )?;
    k.ok("create service externalname e --external-name=x.example")?;
    shows(
        k,
        "get svc e -o wide",
        "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE|SELECTOR\ne|ExternalName|<none>|x.example|<none>|AGE|app=e",
    )?;
    create(
        k,
        r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s"},"addressType":"IPv4",
            "ports":[{"name":"http","port":80,"protocol":"TCP"}],"endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.2"]},
            {"addresses":["10.0.0.3"]},{"addresses":["10.0.0.4"]}]}"#,
    )?;
    shows(
        k,
        "get endpointslices s",
        "NAME|ADDRESSTYPE|PORTS|ENDPOINTS|AGE\ns|IPv4|80|10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...|AGE",
    )?;
    create(
        k,
        r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"s"},"subsets":[{"addresses":[{"ip":"10.0.0.1"}],
            "ports":[{"port":80,"protocol":"TCP"}]}]}"#,
    )?;
    shows(k, "get endpoints s", "NAME|ENDPOINTS|AGE\ns|10.0.0.1:80|AGE")
}

fn ingresses(k: &Kubectl) -> Result<()> {
    k.ok("create ingress i --rule=a.example/*=s:80,tls=t --rule=b.example/*=s:80 --class=c")?;
    shows(k, "get ingress", "NAME|CLASS|HOSTS|ADDRESS|PORTS|AGE\ni|c|a.example,b.example|80, 443|AGE")?;
    status(k, "ingress i", r#"{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"},{"hostname":"lb.example"}]}}"#)?;
    shows(
        k,
        "get ingress",
        "NAME|CLASS|HOSTS|ADDRESS|PORTS|AGE\ni|c|a.example,b.example|1.2.3.4,lb.example|80, 443|AGE",
    )?;
    create(
        k,
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"n"},"spec":{
            "podSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"Exists"}]}}}"#,
    )?;
    shows(k, "get netpol", "NAME|POD-SELECTOR|AGE\nn|a=b,c|AGE")
}

fn nodes(k: &Kubectl) -> Result<()> {
    create(
        k,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"{ns}","labels":{"node-role.kubernetes.io/worker":"",
            "node-role.kubernetes.io/control-plane":""}},"spec":{"unschedulable":true}}"#,
    )?;
    shows(
        k,
        "get node {ns}",
        "NAME|STATUS|ROLES|AGE|VERSION\n{ns}|Unknown,SchedulingDisabled|control-plane,worker|AGE",
    )?;
    status(
        k,
        "node {ns}",
        r#"{"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"InternalIP","address":"10.0.0.1"}],
            "nodeInfo":{"kubeletVersion":"v1.37.1","osImage":"Linux","kernelVersion":"6.1","architecture":"amd64",
            "containerRuntimeVersion":"containerd://2","bootID":"","kubeProxyVersion":"","machineID":"","operatingSystem":"","systemUUID":""}}"#,
    )?;
    shows(
        k,
        "get node {ns} -o wide",
        "NAME|STATUS|ROLES|AGE|VERSION|INTERNAL-IP|EXTERNAL-IP|OS-IMAGE|KERNEL-VERSION|CONTAINER-RUNTIME\n\
         {ns}|Ready,SchedulingDisabled|control-plane,worker|AGE|v1.37.1|10.0.0.1|<none>|Linux|6.1 (amd64)|containerd://2",
    )?;
    k.ok("delete node {ns}").map(drop)
}

fn roles(k: &Kubectl) -> Result<()> {
    k.ok("create role r --verb=get --resource=pods")?;
    let created = k.field("role r", ".metadata.creationTimestamp")?;
    shows(k, "get roles", &format!("NAME|CREATED AT\nr|{created}"))?;
    k.ok("create rolebinding b --role=r --user=ann --user=bob --group=g --serviceaccount={ns}:robot")?;
    shows(k, "get rolebindings", "NAME|ROLE|AGE\nb|Role/r|AGE")?;
    shows(
        k,
        "get rolebindings -o wide",
        "NAME|ROLE|AGE|USERS|GROUPS|SERVICEACCOUNTS\nb|Role/r|AGE|ann, bob|g|{ns}/robot",
    )?;
    create(
        k,
        r#"{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"l"},"spec":{"limits":[{"type":"Pod","max":{"cpu":"1"}}]}}"#,
    )?;
    let created = k.field("limits l", ".metadata.creationTimestamp")?;
    shows(k, "get limits", &format!("NAME|CREATED AT\nl|{created}"))
}

fn volumes(k: &Kubectl) -> Result<()> {
    create(
        k,
        r#"{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"{ns}"},"provisioner":"p.example"}"#,
    )?;
    shows(
        k,
        "get sc {ns}",
        "NAME|PROVISIONER|RECLAIMPOLICY|VOLUMEBINDINGMODE|ALLOWVOLUMEEXPANSION|AGE\n{ns}|p.example|Delete|Immediate|false|AGE",
    )?;
    create(
        k,
        r#"{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"{ns}"},"spec":{"capacity":{"storage":"1Gi"},
            "accessModes":["ReadWriteMany","ReadWriteOnce"],"storageClassName":"fast","hostPath":{"path":"/x"}}}"#,
    )?;
    status(k, "pv {ns}", r#"{"phase":"Available"}"#)?;
    shows(
        k,
        "get pv {ns} -o wide",
        "NAME|CAPACITY|ACCESS MODES|RECLAIM POLICY|STATUS|CLAIM|STORAGECLASS|VOLUMEATTRIBUTESCLASS|REASON|AGE|VOLUMEMODE\n\
         {ns}|1Gi|RWO,RWX|Retain|Available|fast|<unset>|AGE|Filesystem",
    )?;
    create(
        k,
        r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"storageClassName":"fast",
            "accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#,
    )?;
    shows(
        k,
        "get pvc",
        "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES|STORAGECLASS|VOLUMEATTRIBUTESCLASS|AGE\nc|Pending|fast|<unset>|AGE",
    )?;
    k.ok("delete sc/{ns} pv/{ns} --wait=false").map(drop)
}

fn autoscalers(k: &Kubectl) -> Result<()> {
    create(
        k,
        r#"{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{
            "scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"minReplicas":1,"maxReplicas":5,
            "metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}}"#,
    )?;
    let expected =
        "NAME|REFERENCE|TARGETS|MINPODS|MAXPODS|REPLICAS|AGE\nh|Deployment/web|cpu: <unknown>/80%|1|5|0|AGE";
    shows(k, "get hpa", expected)?;
    shows(k, "get hpa.v1.autoscaling", expected)?;
    k.ok("create pdb b --selector=app=web --min-available=50%")?;
    shows(k, "get pdb", "NAME|MIN AVAILABLE|MAX UNAVAILABLE|ALLOWED DISRUPTIONS|AGE\nb|50%|N/A|0|AGE")?;
    k.ok("create priorityclass {ns} --value=7 --description=x")?;
    shows(
        k,
        "get pc {ns}",
        "NAME|VALUE|GLOBAL-DEFAULT|AGE|PREEMPTIONPOLICY\n{ns}|7|false|AGE|PreemptLowerPriority",
    )?;
    k.ok("delete pc {ns}").map(drop)
}

fn events(k: &Kubectl) -> Result<()> {
    create(
        k,
        r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p","namespace":"{ns}",
            "fieldPath":"spec.containers{c}"},"reason":"Started","message":" hello ","type":"Normal","source":{"component":"kubelet","host":"n1"}}"#,
    )?;
    for line in ["get events", "get events.events.k8s.io"] {
        shows(k, line, "LAST SEEN|TYPE|REASON|OBJECT|MESSAGE\n<unknown>|Normal|Started|pod/p|hello")?;
    }
    shows(
        k,
        "get events -o wide",
        "LAST SEEN|TYPE|REASON|OBJECT|SUBOBJECT|SOURCE|MESSAGE|FIRST SEEN|COUNT|NAME\n\
         <unknown>|Normal|Started|pod/p|spec.containers{c}|kubelet, n1|hello|<unknown>|1|e",
    )
}

fn options(k: &Kubectl) -> Result<()> {
    k.ok("create cm a --from-literal=k=1")?;
    k.ok("create cm b --from-literal=k=1 --from-literal=l=2")?;
    k.ok("label cm b tier={ns}")?;
    shows(k, "get cm a b -L tier", "NAME|DATA|AGE|TIER\na|1|AGE\nb|2|AGE|{ns}")?;
    shows(k, "get cm a b --show-labels", "NAME|DATA|AGE|LABELS\na|1|AGE|<none>\nb|2|AGE|tier={ns}")?;
    shows(
        k,
        "get cm --sort-by=.metadata.labels.tier --field-selector metadata.name!=kube-root-ca.crt --no-headers",
        "a|1|AGE\nb|2|AGE",
    )?;
    shows(k, "get cm a b --show-kind", "NAME|DATA|AGE\nconfigmap/a|1|AGE\nconfigmap/b|2|AGE")?;
    shows(
        k,
        "get cm -A --field-selector metadata.name=b -l tier={ns}",
        "NAMESPACE|NAME|DATA|AGE\n{ns}|b|2|AGE",
    )?;
    k.ok("create deployment web --image=nginx --replicas=2")?;
    shows(k, "get deploy web --subresource=scale", "NAME|DESIRED|AVAILABLE|AGE\nweb|2|0|AGE")
}

fn watch(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=k=1")?;
    let mut lines = k.start("get cm -w --field-selector metadata.name!=kube-root-ca.crt")?;
    let mut next = |expected: &str| -> Result<()> {
        let line = rows(&lines.next(SOON)?);
        ensure!(line == expected, "expected {expected}, not {line}");
        Ok(())
    };
    next("NAME|DATA|AGE")?;
    next("c|1|AGE")?;
    k.ok(r#"patch cm c --type=merge -p '{"data":{"l":"2"}}'"#)?;
    next("c|2|AGE")?;
    k.ok("create cm other")?;
    next("other|0|AGE")?;
    k.ok("delete cm other")?;
    next("other|0|AGE")
}

fn columns(k: &Kubectl) -> Result<()> {
    let (_process, client) = proxy(k)?;
    let mut lines = Vec::new();
    for line in k.ok("api-resources --no-headers --verbs=list")?.lines() {
        // NAME, perhaps SHORTNAMES, APIVERSION, NAMESPACED, KIND.
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (name, version) = (cells[0], cells[cells.len() - 3]);
        let root = if version.contains('/') { "apis" } else { "api" };
        let path = format!("/{root}/{version}/{name}?limit=1");
        let table = client.get_json(&path, "application/json;as=Table;v=v1;g=meta.k8s.io")?;
        lines.push(format!("{version} {name}: {}", column_texts(&table).join(", ")));
    }
    lines.sort();
    let (found, expected) = (lines.join("\n"), COLUMNS.trim_end());
    ensure!(found == expected, "expected:\n{expected}\nfound:\n{found}");
    Ok(())
}

fn column_texts(table: &Value) -> Vec<String> {
    let text = |column: &Value| {
        let word = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
        let kind = Some(word("type")).filter(|kind| kind != "string");
        let format = Some(word("format")).filter(|format| !format.is_empty());
        let priority = column["priority"].as_i64().filter(|priority| *priority > 0);
        let more: Vec<String> =
            kind.into_iter().chain(format).chain(priority.map(|priority| priority.to_string())).collect();
        if more.is_empty() { word("name") } else { format!("{} ({})", word("name"), more.join(" ")) }
    };
    table["columnDefinitions"].as_array().into_iter().flatten().map(text).collect()
}
