//! The numbers of the sources that keys can be held for: one for each scope of each cache.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

/// Those of what is gone are used again.
#[derive(Clone, Default)]
pub(super) struct Numbers(Arc<Mutex<Used>>);

#[derive(Default)]
struct Used {
    next: u32,
    free: Vec<Range<u32>>,
}

/// Numbers in a row, until this is dropped.
pub(super) struct Numbered {
    range: Range<u32>,
    of: Numbers,
}

impl Numbers {
    pub(super) fn take(&self, count: u32) -> Numbered {
        let mut used = self.0.lock();
        let fits = used.free.iter().position(|range| range.end - range.start == count);
        let range = match fits {
            Some(at) => used.free.swap_remove(at),
            None => {
                let first = used.next;
                used.next += count;
                first..used.next
            }
        };
        Numbered { range, of: self.clone() }
    }
}

impl Numbered {
    pub(super) fn first(&self) -> u32 {
        self.range.start
    }

    pub(super) fn range(&self) -> Range<u32> {
        self.range.clone()
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.of.0.lock().free.push(self.range.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_when_nobody_has_them() {
        let numbers = Numbers::default();
        let (one, two, three) = (numbers.take(1), numbers.take(2), numbers.take(1));
        assert_eq!((one.range(), two.range(), three.range()), (0..1, 1..3, 3..4));
        drop(one);
        let (two_more, again, next) = (numbers.take(2), numbers.take(1), numbers.take(1));
        assert_eq!((two_more.range(), again.range(), next.range()), (4..6, 0..1, 6..7));
    }
}
