//! Reads of a full cache: by key, by index, by namespace; and the cost of an index.

use std::hint::black_box;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use setpoint::{ObjectKey, SharedInformer};

/// How long each kind of lookup is repeated.
const TIME: Duration = Duration::from_millis(300);

pub(crate) fn measure(informer: &SharedInformer<Pod>) -> anyhow::Result<Value> {
    let lister = informer.lister();
    let keys: Vec<ObjectKey> = lister.keys();
    let started = Instant::now();
    let decoded = keys.iter().step_by(10).filter_map(|key| lister.get(key)).count();
    let first_read = started.elapsed().as_secs_f64() * 1e6 / decoded.max(1) as f64;
    informer
        .add_index("node", |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())?;
    let nodes = lister.index_values("node")?;
    let spread = |n: usize, of: usize| n.wrapping_mul(7919) % of;
    let held = each(|n| drop(black_box(lister.held(&keys[spread(n, keys.len())]))));
    let get = each(|n| drop(black_box(lister.get(&keys[spread(n, keys.len())]))));
    let by_index = each(|n| drop(black_box(lister.by_index("node", &nodes[spread(n, nodes.len())]))));
    let index_keys = each(|n| drop(black_box(lister.index_keys("node", &nodes[spread(n, nodes.len())]))));
    let namespace = each(|n| drop(black_box(lister.namespace(&format!("team-{:03}", n % 50)).list())));
    Ok(json!({
        "first_read_us": first_read,
        "held_us": held,
        "get_us": get,
        "by_index_us": by_index,
        "by_index_objects": keys.len() / nodes.len().max(1),
        "index_keys_us": index_keys,
        "namespace_us": namespace,
        "namespace_objects": keys.len() / 50,
    }))
}

/// Microseconds a call.
fn each(mut call: impl FnMut(usize)) -> f64 {
    let started = Instant::now();
    let mut calls = 0;
    while started.elapsed() < TIME {
        for _ in 0..16 {
            call(calls);
            calls += 1;
        }
    }
    started.elapsed().as_secs_f64() * 1e6 / calls as f64
}
