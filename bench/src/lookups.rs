//! Reads of a full cache: by key, by index, by namespace; and the cost of an index.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use setpoint::{Held, Indexer, ObjectKey, SharedInformer};

/// How long each kind of lookup is repeated.
const TIME: Duration = Duration::from_millis(300);

/// A compact cache has nothing decoded, and must not be read as a whole: that would take all the memory.
pub(crate) fn measure(informer: &SharedInformer<Pod>, is_compact: bool) -> anyhow::Result<Value> {
    let lister = informer.lister();
    let keys: Vec<ObjectKey> = lister.keys();
    // One in ten, read for the first time.
    let started = Instant::now();
    let decoded = keys.iter().step_by(10).filter_map(|key| lister.get(key)).count();
    let first_read = started.elapsed().as_secs_f64() * 1e6 / decoded.max(1) as f64;
    informer.add_index("twenty", twenty)?;
    let values = lister.index_values("twenty")?;
    if !is_compact {
        // What follows is about objects that were read before; peers have all of them decoded.
        drop(lister.list());
    }
    let spread = |n: usize, of: usize| n.wrapping_mul(7919) % of;
    let held = each(|n| drop(black_box(lister.held(&keys[spread(n, keys.len())]))));
    let get = each(|n| drop(black_box(lister.get(&keys[spread(n, keys.len())]))));
    let get_and_read = each(|n| {
        let pod = lister.get(&keys[spread(n, keys.len())]);
        black_box(pod.as_ref().and_then(|pod| node(pod)).map(str::len));
    });
    let by_index = each(|n| drop(black_box(lister.by_index("twenty", &values[spread(n, values.len())]))));
    let index_keys = each(|n| drop(black_box(lister.index_keys("twenty", &values[spread(n, values.len())]))));
    let namespace = each(|n| drop(black_box(lister.namespace(&format!("team-{:03}", n % 50)).list())));
    let update = if is_compact { Value::Null } else { update(&lister.list())?.into() };
    Ok(json!({
        "first_read_us": first_read,
        "held_us": held,
        "get_us": get,
        "get_and_read_us": get_and_read,
        "by_index_us": by_index,
        "by_index_objects": keys.len() / values.len().max(1),
        "index_keys_us": index_keys,
        "namespace_us": namespace,
        "namespace_objects": keys.len() / 50,
        "update_us": update,
    }))
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The node of a Pod and a fifth of the names: a node has a hundred Pods.
fn twenty(pod: &Pod) -> Vec<String> {
    let last = pod.metadata.name.as_deref().and_then(|name| name.bytes().last()).unwrap_or_default();
    node(pod).map(|node| format!("{node}/{}", last % 5)).into_iter().collect()
}

/// Replaces objects in a cache with two indices besides that of namespaces, by others with the same values.
fn update(pods: &[Arc<Pod>]) -> anyhow::Result<f64> {
    let cache = Indexer::<Pod>::default();
    cache.add_index("node", |pod| node(pod).map(str::to_owned).into_iter().collect())?;
    cache.add_index("phase", |pod| pod.status.iter().filter_map(|status| status.phase.clone()).collect())?;
    let held: Vec<Held<Pod>> = pods.iter().cloned().filter_map(held).collect();
    cache.write(|writer| held.iter().for_each(|pod| drop(writer.put(pod.clone()))));
    Ok(each(|n| drop(cache.write(|writer| writer.put(held[n.wrapping_mul(7919) % held.len()].clone())))))
}

fn held(pod: Arc<Pod>) -> Option<Held<Pod>> {
    ObjectKey::of(&pod.metadata).map(|key| Held::new(key, pod))
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
