//! Objects as they came, of which those that were decoded last are at hand.
//!
//! Whoever follows many objects reads each of them several times when it has changed, and then hardly ever. So a cache need
//! not keep all of them decoded, which takes several times their bytes, nor decode one for each reader.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{DecodeFn, Form, Inner, decode};
use crate::ObjectKey;

/// What the objects of one cache share.
pub(crate) struct Recents<T> {
    decode: DecodeFn<T>,
    most: usize,
    /// Those that are decoded, in the order in which they were.
    decoded: Mutex<VecDeque<Weak<Inner<T>>>>,
}

impl<T> Recents<T> {
    /// At most so many objects are decoded.
    pub(crate) fn shared(decode: DecodeFn<T>, most: NonZeroUsize) -> Arc<Recents<T>> {
        Arc::new(Recents { decode, most: most.get(), decoded: Mutex::default() })
    }

    /// Notes that an object is decoded. The one that was decoded first is bytes again, if there are too many.
    fn note(&self, inner: &Arc<Inner<T>>) {
        let mut decoded = self.decoded.lock();
        decoded.push_back(Arc::downgrade(inner));
        let oldest = if decoded.len() > self.most { decoded.pop_front() } else { None };
        drop(decoded);
        let oldest = oldest.and_then(|oldest| oldest.upgrade());
        if let Some(Form::Recent(recent)) = oldest.as_deref().map(|oldest| &oldest.form) {
            let forgotten = recent.object.lock().take();
            // It is taken apart when nobody waits for the lock.
            drop(forgotten);
        }
    }
}

/// Bytes, and the object as long as it is one of those that were decoded last.
pub(super) struct Recent<T> {
    pub(super) bytes: Box<[u8]>,
    object: Mutex<Option<Arc<T>>>,
    all: Arc<Recents<T>>,
}

impl<T> Recent<T> {
    pub(super) fn new(bytes: Box<[u8]>, all: &Arc<Recents<T>>) -> Recent<T> {
        Recent { bytes, object: Mutex::new(None), all: all.clone() }
    }

    /// The object if it is there without work.
    pub(super) fn at_hand(&self) -> Option<Arc<T>> {
        self.object.lock().clone()
    }

    /// The object. `inner` is what this is the form of.
    pub(super) fn read(&self, inner: &Arc<Inner<T>>, key: &ObjectKey) -> Arc<T> {
        // Under the lock: two who read at the same time shall not both decode.
        let mut object = self.object.lock();
        if let Some(object) = &*object {
            return object.clone();
        }
        let decoded = decode(&self.all.decode, &self.bytes, key);
        *object = Some(decoded.clone());
        drop(object);
        self.all.note(inner);
        decoded
    }
}
