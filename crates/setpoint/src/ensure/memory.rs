//! What came of writes, where it is not what was wanted.
//!
//! A request of [`ensure`](crate::ensure) carries a [`Recall`]. A client that has a memory, which a reconcile's has,
//! hears it on the way: it lets itself be known, and ends the request if it would be the last one over again.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use lru::LruCache;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde_json::Value;

/// How many objects a memory knows, at most: 48 bytes each and the links of a map. Only those are in it which the
/// server does not store as wanted.
const MOST: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");

/// What was wanted, and what the object was then. As a digest: an object may be large.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Trace([u8; SHA256_OUTPUT_LEN]);

impl Trace {
    /// Of a wish, and an object as it is. What changes without anybody's doing (the version, and the status) is no
    /// part of it, unless the wish mentions it.
    pub(crate) fn of(wish: &Value, object: &Value) -> Trace {
        let mut digest = Context::new(&SHA256);
        let mut write = |value: &Value| {
            digest.update(value.to_string().as_bytes());
            digest.update(b"\n");
        };
        write(wish);
        for (name, value) in object.as_object().into_iter().flatten() {
            let passes = match name.as_str() {
                "apiVersion" | "kind" | "metadata" => false,
                "status" => wish.get("status").is_some(),
                _ => true,
            };
            if passes {
                write(&Value::String(name.clone()));
                write(value);
            }
        }
        for (name, value) in object.get("metadata").and_then(Value::as_object).into_iter().flatten() {
            if !matches!(name.as_str(), "resourceVersion" | "generation" | "managedFields") {
                write(&Value::String(name.clone()));
                write(value);
            }
        }
        let mut trace = [0; SHA256_OUTPUT_LEN];
        trace.copy_from_slice(digest.finish().as_ref());
        Trace(trace)
    }
}

/// The memory of one controller: all its workers share it, since any of them may get a key.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<LruCache<Trace, ()>>>);

impl Default for Memory {
    fn default() -> Memory {
        Memory(Arc::new(Mutex::new(LruCache::sparse(MOST))))
    }
}

impl Memory {
    /// Hears a request. An error if it is known what the server would make of it: what is there already.
    pub(crate) fn hear(&self, recall: &Recall) -> Result<(), AsLastTime> {
        // Somebody nearer to the reconcile may have heard it.
        let _ = recall.0.memory.set(self.clone());
        let is_known = recall.0.trace.is_some_and(|trace| self.0.lock().get(&trace).is_some());
        if is_known { Err(AsLastTime) } else { Ok(()) }
    }
}

/// What a request lets a memory on its way know.
#[derive(Clone, Default)]
pub(crate) struct Recall(Arc<Asked>);

#[derive(Default)]
struct Asked {
    trace: Option<Trace>,
    memory: OnceLock<Memory>,
}

impl Recall {
    /// Asks not to be sent if this has been written already.
    pub(crate) fn of(trace: Trace) -> Recall {
        Recall(Arc::new(Asked { trace: Some(trace), memory: OnceLock::new() }))
    }

    /// Whether there was a memory on the way.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.memory.get().is_some()
    }

    /// Keeps what came of the write.
    pub(crate) fn keep(&self, trace: Trace) {
        if let Some(memory) = self.0.memory.get() {
            memory.0.lock().put(trace, ());
        }
    }
}

/// A request that was not sent: the last one like it left the object as it is.
#[derive(Debug, thiserror::Error)]
#[error("the last write like this one left the object as it is")]
pub(crate) struct AsLastTime;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trace_is_of_the_wish_and_of_what_others_can_change() {
        let trace = |wish: Value, object: Value| Trace::of(&wish, &object).0;
        let object = |version: &str, size: u32, ready: u32| {
            json!({"kind": "W", "metadata": {"uid": "u", "resourceVersion": version}, "spec": {"size": size},
                "status": {"ready": ready}})
        };
        let wish = json!({"spec": {"x": 1}});
        let reference = trace(wish.clone(), object("1", 1, 1));
        assert_eq!(trace(wish.clone(), object("2", 1, 2)), reference);
        assert_ne!(trace(wish.clone(), object("1", 2, 1)), reference);
        assert_ne!(trace(json!({"spec": {"x": 2}}), object("1", 1, 1)), reference);
        let mut other = object("1", 1, 1);
        other["metadata"]["uid"] = json!("v");
        assert_ne!(trace(wish, other), reference);
        let wish = json!({"status": {"x": 1}});
        assert_ne!(trace(wish.clone(), object("1", 1, 1)), trace(wish, object("1", 1, 2)));
    }

    #[test]
    fn a_memory_forgets_what_was_not_asked_for_longest() {
        let memory = Memory::default();
        let trace = |n: usize| Trace::of(&json!(n), &json!({}));
        let asked = |n: usize| memory.hear(&Recall::of(trace(n))).is_err();
        assert!(!asked(0));
        let recall = Recall::default();
        memory.hear(&recall).unwrap();
        for n in 0..MOST.get() {
            recall.keep(trace(n));
        }
        assert!(asked(0));
        recall.keep(trace(MOST.get()));
        assert!(asked(0) && !asked(1) && asked(2));
        assert_eq!(memory.0.lock().len(), MOST.get());
    }
}
