//! Priorities, leases, runtime classes and devices.

use serde_json::Value;

use super::cells::{flag, has, int, list, name, text, time};
use super::{AGE, Column, NAME, Printer};

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    Some(match plural {
        "priorityclasses" => &PRIORITY_CLASS,
        "leases" => &LEASE,
        "runtimeclasses" => &RUNTIME_CLASS,
        "deviceclasses" | "resourceclaimtemplates" => &NAME_AND_AGE,
        "resourceclaims" => &RESOURCE_CLAIM,
        "resourceslices" => &RESOURCE_SLICE,
        "devicetaintrules" => &DEVICE_TAINT_RULE,
        _ => return None,
    })
}

const NAME_AND_AGE: Printer =
    Printer { columns: &[NAME, AGE], cells: |object, context| vec![name(object), context.age(object)] };

const PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        Column::integer("Value", "The priority; pods with a higher one go first."),
        Column::boolean("Global-Default", "Whether pods without a class get this one."),
        AGE,
        Column::text("PreemptionPolicy", "Whether its pods may push others out."),
    ],
    cells: |object, context| {
        vec![
            name(object),
            int(object, "/value").into(),
            flag(object, "/globalDefault").into(),
            context.age(object),
            text(object, "/preemptionPolicy").into(),
        ]
    },
};

const LEASE: Printer = Printer {
    columns: &[NAME, Column::text("Holder", "Who holds the lease."), AGE],
    cells: |object, context| {
        vec![name(object), text(object, "/spec/holderIdentity").into(), context.age(object)]
    },
};

const RUNTIME_CLASS: Printer = Printer {
    columns: &[NAME, Column::text("Handler", "What runs the containers."), AGE],
    cells: |object, context| vec![name(object), text(object, "/handler").into(), context.age(object)],
};

const RESOURCE_CLAIM: Printer = Printer {
    columns: &[NAME, Column::text("State", "How far the claim is."), AGE],
    cells: |object, context| vec![name(object), claim_state(object).into(), context.age(object)],
};

fn claim_state(claim: &Value) -> String {
    let is_deleted = has(claim, "/metadata/deletionTimestamp");
    let is_allocated = has(claim, "/status/allocation");
    let is_reserved = is_allocated && !list(claim, "/status/reservedFor").is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_allocated && !is_deleted, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    let states: Vec<&str> = states.into_iter().filter_map(|(holds, state)| holds.then_some(state)).collect();
    states.join(",")
}

const RESOURCE_SLICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Node", "The node that has the devices."),
        Column::text("Driver", "The driver of the devices."),
        Column::text("Pool", "The pool that the slice is a part of."),
        AGE,
    ],
    cells: |object, context| {
        vec![
            name(object),
            text(object, "/spec/nodeName").into(),
            text(object, "/spec/driver").into(),
            text(object, "/spec/pool/name").into(),
            context.age(object),
        ]
    },
};

const DEVICE_TAINT_RULE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Key", "The key of the taint."),
        Column::text("Value", "The value of the taint."),
        Column::text("Effect", "What the taint does to pods."),
        Column::text("TimeAdded", "The time since the taint was added."),
        AGE,
    ],
    cells: |object, context| {
        let added = match time(object, "/spec/taint/timeAdded") {
            None => String::new(),
            added => context.since(added),
        };
        vec![
            name(object),
            text(object, "/spec/taint/key").into(),
            text(object, "/spec/taint/value").into(),
            text(object, "/spec/taint/effect").into(),
            added.into(),
            context.age(object),
        ]
    },
};
