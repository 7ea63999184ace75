//! Between all stages: an object as it is cached, decoded when somebody reads it.

#[cfg(feature = "compact")]
mod packed;
mod recent;
mod uid;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde::Deserialize;

#[cfg(feature = "compact")]
pub(crate) use self::packed::Packer;
use self::recent::Recent;
pub(crate) use self::recent::Recents;
use self::uid::Uid;
use crate::reflector::{is_json, protobuf_metadata};
use crate::{Object, ObjectKey, ResourceVersion};

/// Makes an object of its bytes. The vector is working space.
pub(crate) type DecodeFn<T> = Arc<dyn Fn(&[u8], &mut Vec<u32>) -> Result<T, serde_json::Error> + Send + Sync>;

/// Makes what packs the objects of one cache.
pub(crate) type PackerOf<T> = fn(DecodeFn<T>) -> Arc<dyn Pack<T>>;

/// Packs and unpacks the objects of one cache.
pub(crate) trait Pack<T>: Send + Sync {
    /// The bytes as they are kept, and their length before they were compressed; 0 if they were not.
    fn pack(&self, bytes: &[u8]) -> (Box<[u8]>, u32);

    /// Lends the bytes as they came.
    fn unpack(&self, packed: &Packed<T>, read: &mut dyn FnMut(&[u8]));

    /// The object: one that was decoded lately, or a new one.
    fn read(&self, packed: &Packed<T>, key: &ObjectKey, version: Option<&ResourceVersion>) -> Arc<T>;
}

/// An object, packed.
#[cfg_attr(not(feature = "compact"), expect(dead_code, reason = "nothing packs"))]
pub(crate) struct Packed<T> {
    bytes: Box<[u8]>,
    length: u32,
    packer: Arc<dyn Pack<T>>,
}

/// A cached object. Cheap to clone; clones are the same object.
///
/// It dereferences to the object. An informer leaves most objects as the bytes that the server sent, and
/// decodes one when it is first read, so a handler that asks only for the [key](Held::key), the
/// [uid](Held::uid), the [version](Held::version) or the [metadata](Held::meta) does not pay for the rest.
///
/// A handle keeps what it has read as long as it lives. The cache keeps it too if it was read through a
/// [`Lister`](crate::Lister), or twice: memory is for what is read again, while a handler that looks once at
/// every object that passes leaves nothing behind. (A [compact](crate::InformerBuilder::compact) cache never
/// keeps it; one with a [bound](crate::InformerBuilder::keep_decoded) keeps what was decoded last.)
///
/// ```
/// use std::sync::Arc;
/// use setpoint::Held;
/// use setpoint::k8s_openapi::api::core::v1::Pod;
///
/// let pod: Pod = serde_json::from_str(r#"{"metadata": {"name": "web"}, "spec": {"nodeName": "n1"}}"#)?;
/// let held = Held::new("web".into(), Arc::new(pod));
/// assert_eq!(held.key().name(), "web");
/// assert_eq!(held.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("n1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Reading cannot fail
///
/// Whatever is in a cache decodes. A type is left undecoded only if it is one of `k8s-openapi` or `kube`, and
/// if an object of exactly the same form (the same fields in the same order, with values of the same kinds) has
/// been decoded before. (One that came in [protobuf](crate::InformerBuilder::protobuf) is instead checked, from its first to
/// its last byte, against what is known of its kind.) Every other object is decoded when it comes, and skipped and reported
/// if it cannot be.
pub struct Held<T> {
    inner: Arc<Inner<T>>,
    /// Only if something was read, since there are many handles of which nothing is.
    own: OnceLock<Box<Own<T>>>,
}

/// What a handle has read, if the cache did not keep it then.
struct Own<T> {
    object: OnceLock<Arc<T>>,
    meta: OnceLock<Box<ObjectMeta>>,
}

impl<T> Default for Own<T> {
    fn default() -> Own<T> {
        Own { object: OnceLock::new(), meta: OnceLock::new() }
    }
}

/// A cached object in its store: without what a handle has read of it.
#[derive(Debug)]
pub(crate) struct Stored<T>(Arc<Inner<T>>);

impl<T: Object> Stored<T> {
    pub(crate) fn new(held: Held<T>) -> Stored<T> {
        Stored(held.inner)
    }

    /// The object if it is there without work.
    pub(crate) fn decoded(&self) -> Option<&Arc<T>> {
        self.0.decoded()
    }

    pub(crate) fn held(&self) -> Held<T> {
        Held { inner: self.0.clone(), own: OnceLock::new() }
    }

    pub(crate) fn into_held(self) -> Held<T> {
        Held { inner: self.0, own: OnceLock::new() }
    }
}

struct Inner<T> {
    key: ObjectKey,
    uid: Option<Uid>,
    version: Option<ResourceVersion>,
    form: Form<T>,
}

impl<T> Inner<T> {
    fn decoded(&self) -> Option<&Arc<T>> {
        match &self.form {
            Form::Decoded(object) => Some(object),
            Form::Lazy(lazy) => lazy.kept.get(),
            Form::Recent(_) | Form::Packed(_) => None,
        }
    }
}

enum Form<T> {
    Decoded(Arc<T>),
    Lazy(Lazy<T>),
    Recent(Recent<T>),
    Packed(Packed<T>),
}

/// Bytes until the object is kept, then the object.
struct Lazy<T> {
    kept: OnceLock<Arc<T>>,
    unkept: Mutex<Unkept>,
    decode: DecodeFn<T>,
}

struct Unkept {
    /// `None` when the object is kept.
    bytes: Option<Box<[u8]>>,
    was_read: bool,
}

/// Which object it is, and in which version, as read from its bytes.
pub(crate) struct Identity {
    pub(crate) key: ObjectKey,
    uid: Option<Uid>,
    version: Option<ResourceVersion>,
}

impl Identity {
    pub(crate) fn new(key: ObjectKey, uid: Option<&str>, version: Option<&str>) -> Identity {
        Identity { key, uid: uid.map(Uid::from), version: version.map(ResourceVersion::from) }
    }
}

impl<T: Object> Held<T> {
    /// An object that is decoded already.
    pub fn new(key: ObjectKey, object: Arc<T>) -> Held<T> {
        let meta = object.meta();
        let identity = Identity::new(key, meta.uid.as_deref(), meta.resource_version.as_deref());
        Held::with(identity, Form::Decoded(object))
    }

    /// An object whose metadata has a name, or nothing.
    pub(crate) fn named(object: T) -> Option<Held<T>> {
        ObjectKey::of(object.meta()).map(|key| Held::new(key, Arc::new(object)))
    }

    /// The bytes of an object, which `decode` must be able to read.
    pub(crate) fn lazy(identity: Identity, bytes: Box<[u8]>, decode: DecodeFn<T>) -> Held<T> {
        let unkept = Mutex::new(Unkept { bytes: Some(bytes), was_read: false });
        Held::with(identity, Form::Lazy(Lazy { kept: OnceLock::new(), unkept, decode }))
    }

    /// The bytes of an object, which `recents` can read. It is decoded as long as it is one of those that were decoded last.
    pub(crate) fn recent(identity: Identity, bytes: Box<[u8]>, recents: &Arc<Recents<T>>) -> Held<T> {
        Held::with(identity, Form::Recent(Recent::new(bytes, recents)))
    }

    /// The bytes of an object, which are packed and never kept in another form.
    pub(crate) fn packed(identity: Identity, bytes: &[u8], packer: &Arc<dyn Pack<T>>) -> Held<T> {
        let (bytes, length) = packer.pack(bytes);
        Held::with(identity, Form::Packed(Packed { bytes, length, packer: packer.clone() }))
    }

    pub(crate) fn identity(&self) -> Identity {
        let Inner { key, uid, version, .. } = &*self.inner;
        Identity { key: key.clone(), uid: uid.clone(), version: version.clone() }
    }

    fn with(Identity { key, uid, version }: Identity, form: Form<T>) -> Held<T> {
        let inner = Arc::new(Inner { key, uid, version, form });
        Held { inner, own: OnceLock::new() }
    }

    /// `namespace/name`.
    pub fn key(&self) -> &ObjectKey {
        &self.inner.key
    }

    /// The uid, if the server gave it one.
    pub fn uid(&self) -> Option<String> {
        self.inner.uid.as_ref().map(ToString::to_string)
    }

    /// The resourceVersion, if the server gave it one.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.inner.version.as_ref()
    }

    /// The metadata. If nobody has read the object, only they are decoded.
    pub fn meta(&self) -> &ObjectMeta {
        if let Form::Recent(recent) = &self.inner.form
            && self.own_object().is_none()
            && let Some(object) = recent.at_hand()
        {
            return self.own().object.get_or_init(|| object).meta();
        }
        match self.decoded() {
            Some(object) => object.meta(),
            None => self.own().meta.get_or_init(|| Box::new(self.read_meta())),
        }
    }

    /// The object. It is decoded now if nobody has read it yet.
    pub fn object(&self) -> &Arc<T> {
        if let Some(object) = self.decoded() {
            return object;
        }
        self.own().object.get_or_init(|| match &self.inner.form {
            Form::Decoded(object) => object.clone(),
            Form::Lazy(lazy) => lazy.read(&self.inner.key),
            Form::Recent(recent) => recent.read(&self.inner, &self.inner.key),
            Form::Packed(packed) => packed.packer.read(packed, &self.inner.key, self.version()),
        })
    }

    /// The object, which stays decoded from now on, if the cache keeps any for good.
    pub(crate) fn into_kept(self) -> Arc<T> {
        match &self.inner.form {
            // Nothing but the object is made of this handle.
            Form::Recent(recent) if self.own_object().is_none() => recent.read(&self.inner, &self.inner.key),
            Form::Lazy(lazy) => lazy.keep(&self.inner.key, self.own_object()).clone(),
            _ => self.object().clone(),
        }
    }

    /// Whether two are one object in one version.
    pub fn is_same_version(&self, other: &Held<T>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
            || (self.version().is_some()
                && self.version() == other.version()
                && self.inner.uid == other.inner.uid)
    }

    /// Whether two of one name are different objects: deleted and created again in between.
    pub(crate) fn is_recreated(&self, new: &Held<T>) -> bool {
        match (&self.inner.uid, &new.inner.uid) {
            (Some(old), Some(new)) => old != new,
            _ => false,
        }
    }

    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.inner.uid.as_ref().is_some_and(|own| *own == Uid::from(uid))
    }

    /// The object if it is there without work.
    pub(crate) fn decoded(&self) -> Option<&Arc<T>> {
        // First what was given out before: it is the same object each time.
        self.own_object().or_else(|| self.inner.decoded())
    }

    fn own(&self) -> &Own<T> {
        self.own.get_or_init(Box::default)
    }

    fn own_object(&self) -> Option<&Arc<T>> {
        self.own.get()?.object.get()
    }

    fn read_meta(&self) -> ObjectMeta {
        let read = match &self.inner.form {
            Form::Decoded(object) => return object.meta().clone(),
            Form::Lazy(lazy) => lazy.unkept.lock().bytes.as_deref().and_then(meta_of),
            Form::Recent(recent) => meta_of(&recent.bytes),
            Form::Packed(packed) => {
                let mut meta = None;
                packed.packer.unpack(packed, &mut |bytes| meta = meta_of(bytes));
                meta
            }
        };
        // Somebody has read the object meanwhile, and the bytes are gone.
        read.unwrap_or_else(|| self.object().meta().clone())
    }
}

fn meta_of(bytes: &[u8]) -> Option<ObjectMeta> {
    if !is_json(bytes) {
        return protobuf_metadata(bytes).ok();
    }
    #[derive(Deserialize)]
    struct Anything {
        metadata: ObjectMeta,
    }
    serde_json::from_slice(bytes).ok().map(|object: Anything| object.metadata)
}

impl<T> Lazy<T> {
    /// The object for one reader. From the second read on it is kept.
    fn read(&self, key: &ObjectKey) -> Arc<T> {
        // Under the lock: two who read at the same time shall not both decode.
        let mut unkept = self.unkept.lock();
        if unkept.was_read {
            return self.keep_under(&mut unkept, key, None).clone();
        }
        unkept.was_read = true;
        let bytes = unkept.bytes.as_deref();
        bytes.map_or_else(|| self.kept(key).clone(), |bytes| decode(&self.decode, bytes, key))
    }

    /// The object for all readers. `read` is it, if somebody has it already.
    fn keep(&self, key: &ObjectKey, read: Option<&Arc<T>>) -> &Arc<T> {
        match self.kept.get() {
            Some(object) => object,
            None => self.keep_under(&mut self.unkept.lock(), key, read),
        }
    }

    fn keep_under(&self, unkept: &mut Unkept, key: &ObjectKey, read: Option<&Arc<T>>) -> &Arc<T> {
        let Some(bytes) = unkept.bytes.take() else { return self.kept(key) };
        self.kept.get_or_init(|| read.cloned().unwrap_or_else(|| decode(&self.decode, &bytes, key)))
    }

    /// What is kept once the bytes are gone.
    fn kept(&self, key: &ObjectKey) -> &Arc<T> {
        self.kept.get().unwrap_or_else(|| panic!("{key} has neither bytes nor an object"))
    }
}

fn decode<T>(decode: &DecodeFn<T>, bytes: &[u8], key: &ObjectKey) -> Arc<T> {
    match decode(bytes, &mut Vec::with_capacity(64)) {
        Ok(object) => Arc::new(object),
        // Bytes come in here only after they were decoded, or others of the same form.
        Err(error) => panic!("{key} was found decodable and is not: {error}"),
    }
}

impl<T: Object> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object()
    }
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Held<T> {
        let own =
            self.own.get().and_then(|own| own.object.get()).map(|object| {
                Box::new(Own { object: OnceLock::from(object.clone()), meta: OnceLock::new() })
            });
        Held { inner: self.inner.clone(), own: own.map_or_else(OnceLock::new, OnceLock::from) }
    }
}

impl<T> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.inner).finish()
    }
}

impl<T> fmt::Debug for Inner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}", self.key, self.version)
    }
}

#[cfg(test)]
mod tests;
