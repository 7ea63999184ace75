//! What makes pods, and what limits their disruption.

use serde_json::Value;

use super::cells::{
    condition, containers, flag, has, human_duration, int, labels, list, name, scalar, selector, text,
    text_or, time,
};
use super::{AGE, CONTAINERS, Column, Context, IMAGES, NAME, Printer, SELECTOR};
use crate::label_query;

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    Some(match plural {
        "deployments" => &DEPLOYMENT,
        "replicasets" => &REPLICA_SET,
        "replicationcontrollers" => &REPLICATION_CONTROLLER,
        "statefulsets" => &STATEFUL_SET,
        "daemonsets" => &DAEMON_SET,
        "controllerrevisions" => &CONTROLLER_REVISION,
        "jobs" => &JOB,
        "cronjobs" => &CRON_JOB,
        "poddisruptionbudgets" => &POD_DISRUPTION_BUDGET,
        _ => return None,
    })
}

const TEMPLATE: &str = "/spec/template/spec/containers";

const READY: Column = Column::text("Ready", "How many of the wanted pods are ready.");

const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        READY,
        Column::text("Up-to-date", "How many pods have the newest template."),
        Column::text("Available", "How many pods have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, context| {
        let [names, images] = containers(object, TEMPLATE);
        vec![
            name(object),
            ready(object),
            int(object, "/status/updatedReplicas").into(),
            int(object, "/status/availableReplicas").into(),
            context.age(object),
            names,
            images,
            label_query::of(object.pointer("/spec/selector").unwrap_or(&Value::Null)).into(),
        ]
    },
};

fn ready(object: &Value) -> Value {
    format!("{}/{}", int(object, "/status/readyReplicas"), int(object, "/spec/replicas")).into()
}

const REPLICAS: [Column; 8] = [
    NAME,
    Column::integer("Desired", "How many pods there should be."),
    Column::integer("Current", "How many pods there are."),
    Column::integer("Ready", "How many pods are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn replicas(object: &Value, context: &Context, selector: String) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE);
    vec![
        name(object),
        int(object, "/spec/replicas").into(),
        int(object, "/status/replicas").into(),
        int(object, "/status/readyReplicas").into(),
        context.age(object),
        names,
        images,
        selector.into(),
    ]
}

const REPLICA_SET: Printer = Printer {
    columns: &REPLICAS,
    cells: |object, context| replicas(object, context, selector(object, "/spec/selector")),
};

const REPLICATION_CONTROLLER: Printer = Printer {
    columns: &REPLICAS,
    cells: |object, context| replicas(object, context, labels(object, "/spec/selector")),
};

const STATEFUL_SET: Printer = Printer {
    columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
    cells: |object, context| {
        let [names, images] = containers(object, TEMPLATE);
        vec![name(object), ready(object), context.age(object), names, images]
    },
};

const DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        Column::integer("Desired", "How many nodes should run the pod."),
        Column::integer("Current", "How many of these nodes run the pod."),
        Column::integer("Ready", "How many of these nodes have a ready pod."),
        Column::integer("Up-to-date", "How many nodes have a pod of the newest template."),
        Column::integer("Available", "How many nodes have a pod that has been ready for long enough."),
        Column::text("Node Selector", "The labels of the nodes that run the pod."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, context| {
        let [names, images] = containers(object, TEMPLATE);
        let count = |field| Value::from(int(object, field));
        vec![
            name(object),
            count("/status/desiredNumberScheduled"),
            count("/status/currentNumberScheduled"),
            count("/status/numberReady"),
            count("/status/updatedNumberScheduled"),
            count("/status/numberAvailable"),
            labels(object, "/spec/template/spec/nodeSelector").into(),
            context.age(object),
            names,
            images,
            selector(object, "/spec/selector").into(),
        ]
    },
};

const CONTROLLER_REVISION: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Controller", "What the revision belongs to."),
        Column::text("Revision", "The number of the revision."),
        AGE,
    ],
    cells: |object, context| {
        let owner = list(object, "/metadata/ownerReferences").iter().find(|owner| flag(owner, "/controller"));
        let controller = owner.map_or_else(
            || "<none>".to_owned(),
            |owner| {
                let kind = text(owner, "/kind").to_lowercase();
                let name = text(owner, "/name");
                match text(owner, "/apiVersion").split_once('/') {
                    Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
                    None => format!("{kind}/{name}"),
                }
            },
        );
        vec![name(object), controller.into(), int(object, "/revision").into(), context.age(object)]
    },
};

const JOB: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "What the job is doing, in a word."),
        Column::text("Completions", "How many of the wanted pods have succeeded."),
        Column::text("Duration", "How long the job took, or has taken so far."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, context| {
        let [names, images] = containers(object, TEMPLATE);
        vec![
            name(object),
            job_status(object).into(),
            job_completions(object).into(),
            job_duration(object, context).into(),
            context.age(object),
            names,
            images,
            selector(object, "/spec/selector").into(),
        ]
    },
};

fn job_status(job: &Value) -> &'static str {
    let is = |kind| condition(job, kind).is_some_and(|found| text(found, "/status") == "True");
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if has(job, "/metadata/deletionTimestamp") => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_completions(job: &Value) -> String {
    let succeeded = int(job, "/status/succeeded");
    if has(job, "/spec/completions") {
        return format!("{succeeded}/{}", int(job, "/spec/completions"));
    }
    match int(job, "/spec/parallelism") {
        parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, context: &Context) -> String {
    let Some(start) = time(job, "/status/startTime") else { return String::new() };
    let end = time(job, "/status/completionTime").unwrap_or(context.now);
    human_duration(end.duration_since(start))
}

const CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Schedule", "When jobs are started, in cron's form."),
        Column::text("Timezone", "The time zone of the schedule."),
        Column::boolean("Suspend", "Whether no more jobs are started."),
        Column::integer("Active", "How many jobs are running."),
        Column::text("Last Schedule", "The time since the last job was started."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, context| {
        let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
        let last = match time(object, "/status/lastScheduleTime") {
            None => "<none>".to_owned(),
            last => context.since(last),
        };
        let suspend = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        vec![
            name(object),
            text(object, "/spec/schedule").into(),
            text_or(object, "/spec/timeZone", "<none>").into(),
            suspend.into(),
            list(object, "/status/active").len().into(),
            last.into(),
            context.age(object),
            names,
            images,
            selector(object, "/spec/jobTemplate/spec/selector").into(),
        ]
    },
};

const POD_DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Min Available", "How many pods must stay available."),
        Column::text("Max Unavailable", "How many pods may be unavailable."),
        Column::integer("Allowed Disruptions", "How many pods may be evicted now."),
        AGE,
    ],
    cells: |object, context| {
        let number = |pointer| object.pointer(pointer).map_or_else(|| "N/A".to_owned(), scalar);
        vec![
            name(object),
            number("/spec/minAvailable").into(),
            number("/spec/maxUnavailable").into(),
            int(object, "/status/disruptionsAllowed").into(),
            context.age(object),
        ]
    },
};
