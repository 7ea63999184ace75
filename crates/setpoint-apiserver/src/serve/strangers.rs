//! Connections whose clients are not known yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// There is room for some of them; the oldest makes room for the next. So whoever holds many connections and says
/// nothing loses them, and not those who come after.
#[derive(Debug)]
pub(super) struct Strangers {
    most: usize,
    here: Mutex<Here>,
}

#[derive(Debug, Default)]
struct Here {
    next: u64,
    /// In the order in which they came.
    tokens: BTreeMap<u64, CancellationToken>,
}

impl Strangers {
    pub(super) fn new(most: usize) -> Arc<Strangers> {
        Arc::new(Strangers { most: most.max(1), here: Mutex::default() })
    }

    /// Somebody has come.
    pub(super) fn admit(self: &Arc<Strangers>) -> Stranger {
        let token = CancellationToken::new();
        let mut here = self.here.lock();
        let id = here.next;
        here.next += 1;
        here.tokens.insert(id, token.clone());
        let oldest = (here.tokens.len() > self.most).then(|| here.tokens.pop_first()).flatten();
        drop(here);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        Stranger { strangers: Arc::clone(self), id, token, is_known: AtomicBool::new(false) }
    }
}

/// One of them, until it is known or gone.
#[derive(Debug)]
pub(super) struct Stranger {
    strangers: Arc<Strangers>,
    id: u64,
    token: CancellationToken,
    is_known: AtomicBool,
}

impl Stranger {
    /// Now we know who it is: it need not make room any more.
    pub(super) fn becomes_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
        self.strangers.here.lock().tokens.remove(&self.id);
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Waits until it has to make room.
    pub(super) async fn makes_room(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.here.lock().tokens.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room_and_whoever_is_known_does_not() {
        let strangers = Strangers::new(2);
        let [first, second, third] = [(); 3].map(|()| strangers.admit());
        let told = |of: &[&Stranger]| of.iter().map(|one| one.token.is_cancelled()).collect::<Vec<_>>();
        assert_eq!(told(&[&first, &second, &third]), [true, false, false]);
        second.becomes_known();
        let fourth = strangers.admit();
        assert_eq!(told(&[&second, &third, &fourth]), [false, false, false]);
        drop(third);
        let fifth = strangers.admit();
        assert_eq!(told(&[&second, &fourth, &fifth]), [false, false, false]);
        let _sixth = strangers.admit();
        assert_eq!(told(&[&second, &fourth, &fifth]), [false, true, false]);
        drop((first, second, fourth, fifth, _sixth));
        assert!(strangers.here.lock().tokens.is_empty());
    }
}
