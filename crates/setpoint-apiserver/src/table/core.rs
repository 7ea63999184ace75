//! Configuration, nodes, namespaces and events.

use serde_json::Value;

use super::cells::{condition, count, flag, has, int, list, name, or_none, quantity, text, text_or, time};
use super::{AGE, Column, Context, NAME, Printer};

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    Some(match plural {
        "configmaps" => &CONFIG_MAP,
        "secrets" => &SECRET,
        "serviceaccounts" => &SERVICE_ACCOUNT,
        "namespaces" => &NAMESPACE,
        "nodes" => &NODE,
        "events" => &EVENT,
        "resourcequotas" => &RESOURCE_QUOTA,
        "componentstatuses" => &COMPONENT_STATUS,
        _ => return None,
    })
}

const DATA: Column = Column::text("Data", "How many entries it has.");

const CONFIG_MAP: Printer = Printer {
    columns: &[NAME, DATA, AGE],
    cells: |object, context| {
        let entries = count(object, "/data") + count(object, "/binaryData");
        vec![name(object), entries.into(), context.age(object)]
    },
};

const SECRET: Printer = Printer {
    columns: &[NAME, Column::text("Type", "What programs may expect in the secret."), DATA, AGE],
    cells: |object, context| {
        vec![name(object), text(object, "/type").into(), count(object, "/data").into(), context.age(object)]
    },
};

const SERVICE_ACCOUNT: Printer =
    Printer { columns: &[NAME, AGE], cells: |object, context| vec![name(object), context.age(object)] };

const NAMESPACE: Printer = Printer {
    columns: &[NAME, Column::text("Status", "Whether the namespace lives or ends."), AGE],
    cells: |object, context| vec![name(object), text(object, "/status/phase").into(), context.age(object)],
};

const NODE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "Whether the node is ready, and takes pods."),
        Column::text("Roles", "What the node is for."),
        AGE,
        Column::text("Version", "The version of its kubelet."),
        Column::text("Internal-IP", "Its address within the cluster.").wide(),
        Column::text("External-IP", "Its address outside the cluster.").wide(),
        Column::text("OS-Image", "Its operating system.").wide(),
        Column::text("Kernel-Version", "Its kernel.").wide(),
        Column::text("Container-Runtime", "What runs its containers.").wide(),
    ],
    cells: node,
};

fn node(node: &Value, context: &Context) -> Vec<Value> {
    let mut status = match condition(node, "Ready").map(|ready| text(ready, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| text(node, &format!("/status/nodeInfo/{field}"));
    let known = |field: &str| match info(field) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    let mut kernel = known("kernelVersion");
    if !info("architecture").is_empty() {
        kernel.push_str(&format!(" ({})", info("architecture")));
    }
    let address = |kind: &str| {
        let found = list(node, "/status/addresses").iter().find(|address| text(address, "/type") == kind);
        Value::from(found.map_or("<none>", |address| text(address, "/address")))
    };
    vec![
        name(node),
        status.into(),
        roles(node).into(),
        context.age(node),
        info("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage").into(),
        kernel.into(),
        known("containerRuntimeVersion").into(),
    ]
}

/// `node-role.kubernetes.io/ROLE` and `kubernetes.io/role: ROLE`.
fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then(|| value.as_str().unwrap_or_default()),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or_none(roles.join(","))
}

const EVENT: Printer = Printer {
    columns: &[
        Column::text("Last Seen", "The time since it happened last."),
        Column::text("Type", "Normal, or a warning."),
        Column::text("Reason", "What happened, in a word."),
        Column::text("Object", "What it happened to."),
        Column::text("Subobject", "The part of the object that it happened to.").wide(),
        Column::text("Source", "Who reports it.").wide(),
        Column::text("Message", "What happened, in a sentence."),
        Column::text("First Seen", "The time since it happened first.").wide(),
        Column::text("Count", "How often it happened.").wide(),
        NAME.wide(),
    ],
    cells: event,
};

fn event(event: &Value, context: &Context) -> Vec<Value> {
    let first = context.since(time(event, "/firstTimestamp").or_else(|| time(event, "/eventTime")));
    let mut last = match time(event, "/lastTimestamp") {
        None => first.clone(),
        last => context.since(last),
    };
    let mut count = int(event, "/count");
    if has(event, "/series") {
        last = context.since(time(event, "/series/lastObservedTime"));
        count = int(event, "/series/count");
    } else if count == 0 {
        // What happened once need not say so.
        count = 1;
    }
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let target = match text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(event, "/source/component", text(event, "/reportingComponent"));
    let source = match text_or(event, "/source/host", text(event, "/reportingInstance")) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    vec![
        last.into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        target.into(),
        text(event, "/involvedObject/fieldPath").into(),
        source.into(),
        text(event, "/message").trim().into(),
        first.into(),
        count.into(),
        name(event),
    ]
}

const RESOURCE_QUOTA: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Request", "What is used of the quota, for requests and numbers of objects."),
        Column::text("Limit", "What is used of the quota, for limits."),
        AGE,
    ],
    cells: |object, context| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for resource in object.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten() {
            let escaped = resource.0.replace('~', "~0").replace('/', "~1");
            let used = quantity(object, &format!("/status/used/{escaped}"));
            let hard = quantity(object, &format!("/status/hard/{escaped}"));
            let column = if resource.0.starts_with("limits.") { &mut limits } else { &mut requests };
            column.push(format!("{}: {used}/{hard}", resource.0));
        }
        vec![name(object), requests.join(", ").into(), limits.join(", ").into(), context.age(object)]
    },
};

const COMPONENT_STATUS: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "Whether the component is healthy."),
        Column::text("Message", "What the component says."),
        Column::text("Error", "What is wrong with the component."),
    ],
    cells: |object, _| {
        let healthy = list(object, "/conditions").iter().find(|found| text(found, "/type") == "Healthy");
        let status = match healthy.map(|found| text(found, "/status")) {
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        };
        let said = |field| Value::from(healthy.map_or("", |found| text(found, field)));
        vec![name(object), status.into(), said("/message"), said("/error")]
    },
};
