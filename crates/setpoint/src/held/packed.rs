//! Objects as they came, compressed, with a dictionary that is learned from the first of them.
//!
//! Objects of one kind say nearly the same in nearly the same words. A dictionary of what they have in common
//! makes of a Pod of three kilobytes of JSON less than three hundred bytes.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use lru::LruCache;
use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

use super::{DecodeFn, Pack, Packed, decode};
use crate::{ObjectKey, ResourceVersion};

/// How many objects the dictionary is learned from, and how many bytes of them at most.
const SAMPLES: usize = 400;
const SAMPLE_BYTES: usize = 4 << 20;

/// How long a dictionary may be.
const DICTIONARY_BYTES: usize = 64 << 10;

/// Fast, and with a dictionary hardly worse than others.
const LEVEL: i32 = 1;

/// How many decoded objects are kept at hand.
const DECODED: NonZeroUsize = NonZeroUsize::new(256).expect("it is not 0");

/// Packs and unpacks the objects of one cache.
pub(crate) struct Packer<T> {
    decode: DecodeFn<T>,
    samples: Mutex<Samples>,
    dictionary: OnceLock<Option<Dictionary>>,
    recent: Mutex<LruCache<ObjectKey, Recent<T>>>,
}

/// An object that was decoded, and its version.
type Recent<T> = (Option<ResourceVersion>, Arc<T>);

#[derive(Default)]
struct Samples {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

/// What was learned, and contexts that have it at hand. There are never more of these than threads that packed
/// or unpacked at the same time.
struct Dictionary {
    bytes: Vec<u8>,
    compressors: Mutex<Vec<Compressor<'static>>>,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
}

impl<T: Send + Sync + 'static> Packer<T> {
    /// What packs the objects that `decode` can read.
    pub(crate) fn shared(decode: DecodeFn<T>) -> Arc<dyn Pack<T>> {
        Arc::new(Packer::new(decode))
    }
}

impl<T> Packer<T> {
    fn new(decode: DecodeFn<T>) -> Packer<T> {
        // Grows as it fills: `LruCache::new` would take all its memory at once, for informers that never pack too.
        let mut recent = LruCache::unbounded();
        recent.resize(DECODED);
        Packer { decode, samples: Mutex::default(), dictionary: OnceLock::new(), recent: Mutex::new(recent) }
    }

    /// The dictionary, if enough was seen to learn one. Until then `bytes` is one more sample.
    fn dictionary(&self, bytes: &[u8]) -> Option<&Dictionary> {
        if let Some(dictionary) = self.dictionary.get() {
            return dictionary.as_ref();
        }
        let mut samples = self.samples.lock();
        samples.bytes.extend_from_slice(bytes);
        samples.sizes.push(bytes.len());
        if samples.sizes.len() < SAMPLES && samples.bytes.len() < SAMPLE_BYTES {
            return None;
        }
        let learned = std::mem::take(&mut *samples);
        // Under the lock, so that one thread learns, once.
        self.dictionary.get_or_init(|| Dictionary::learn(&learned)).as_ref()
    }
}

impl Dictionary {
    /// `None` if the samples have too little in common.
    fn learn(samples: &Samples) -> Option<Dictionary> {
        let bytes = zstd::dict::from_continuous(&samples.bytes, &samples.sizes, DICTIONARY_BYTES).ok()?;
        Some(Dictionary { bytes, compressors: Mutex::default(), decompressors: Mutex::default() })
    }

    fn compress(&self, bytes: &[u8]) -> Option<Box<[u8]>> {
        let idle = self.compressors.lock().pop();
        let mut compressor = match idle {
            Some(compressor) => compressor,
            None => Compressor::with_dictionary(LEVEL, &self.bytes).ok()?,
        };
        let compressed = compressor.compress(bytes).ok()?;
        self.compressors.lock().push(compressor);
        Some(compressed.into())
    }

    fn decompress(&self, bytes: &[u8], length: usize) -> Option<Vec<u8>> {
        let idle = self.decompressors.lock().pop();
        let mut decompressor = match idle {
            Some(decompressor) => decompressor,
            None => Decompressor::with_dictionary(&self.bytes).ok()?,
        };
        let decompressed = decompressor.decompress(bytes, length).ok()?;
        self.decompressors.lock().push(decompressor);
        Some(decompressed)
    }
}

impl<T: Send + Sync> Pack<T> for Packer<T> {
    fn pack(&self, bytes: &[u8]) -> (Box<[u8]>, u32) {
        let compressed = self.dictionary(bytes).and_then(|dictionary| dictionary.compress(bytes));
        match (compressed, u32::try_from(bytes.len())) {
            (Some(compressed), Ok(length)) if compressed.len() < bytes.len() => (compressed, length),
            _ => (bytes.into(), 0),
        }
    }

    fn unpack(&self, packed: &Packed<T>, read: &mut dyn FnMut(&[u8])) {
        if packed.length == 0 {
            return read(&packed.bytes);
        }
        let dictionary = self.dictionary.get().and_then(Option::as_ref);
        let bytes = dictionary.and_then(|all| all.decompress(&packed.bytes, packed.length as usize));
        read(&bytes.expect("what was compressed with the dictionary decompresses with it"));
    }

    fn read(&self, packed: &Packed<T>, key: &ObjectKey, version: Option<&ResourceVersion>) -> Arc<T> {
        let recent = self.recent.lock().get(key).cloned();
        if let Some((held, object)) = recent
            && held.is_some()
            && held.as_ref() == version
        {
            return object;
        }
        let mut read = None;
        self.unpack(packed, &mut |bytes| read = Some(decode(&self.decode, bytes, key)));
        let object = read.expect("the bytes are always lent");
        self.recent.lock().put(key.clone(), (version.cloned(), object.clone()));
        object
    }
}

#[cfg(test)]
mod tests;
