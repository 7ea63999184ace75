//! Promises that a test switches off, one at a time, to see that they are missed.
//!
//! The seam is the feature `mutants`, which nothing but such tests asks for. Without it `is_kept` is the constant
//! `true`, so the compiler leaves no trace of it, and no setting of a program can break a promise.

/// What the runtime promises, as far as it can be switched off. `docs/promises.md` says what each one means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Promise {
    /// Nothing is reconciled before the caches have synced.
    CacheSync,
    /// A key is held until the caches show what its last reconcile wrote.
    OwnWrites,
    /// That goes for deletions too.
    Deletes,
    /// That goes for the deletion of a collection too.
    DeleteCollection,
    /// A write that was answered with 5xx may have happened.
    ServerErrors,
    /// A write whose connection broke may have happened.
    LostAnswers,
    /// A key stays held when a cache lists again.
    Lists,
    /// A key stays held from one term to the next, and a term begins with caches as new as the server.
    Terms,
    /// A term begins with caches as new as the server, whoever wrote before.
    TermStart,
    /// A term begins with all that the caches have in the queue.
    Replay,
    /// At shutdown what is held is left.
    Shutdown,
    /// No write is sent when the lease is no longer surely held.
    Fence,
    /// Who has lost the lease waits until what it had sent has arrived before it leads again.
    Landing,
    /// A finalizer is removed after the clean-up.
    Finalizer,
}

impl Promise {
    /// All of them.
    pub const ALL: [Promise; 14] = [
        Promise::CacheSync,
        Promise::OwnWrites,
        Promise::Deletes,
        Promise::DeleteCollection,
        Promise::ServerErrors,
        Promise::LostAnswers,
        Promise::Lists,
        Promise::Terms,
        Promise::TermStart,
        Promise::Replay,
        Promise::Shutdown,
        Promise::Fence,
        Promise::Landing,
        Promise::Finalizer,
    ];
}

/// Whether a promise is kept here.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is_kept(_promise: Promise) -> bool {
    true
}

#[cfg(feature = "mutants")]
pub(crate) use self::switch::is_kept;
#[cfg(feature = "mutants")]
pub use self::switch::without;

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Promise;

    // A simulated world is one thread, and others may run beside it.
    thread_local! {
        static OFF: Cell<Option<Promise>> = const { Cell::new(None) };
    }

    /// Whether a promise is kept on this thread.
    pub(crate) fn is_kept(promise: Promise) -> bool {
        OFF.get() != Some(promise)
    }

    /// Calls `run` while a promise is not kept on this thread.
    pub fn without<T>(promise: Promise, run: impl FnOnce() -> T) -> T {
        struct On(Option<Promise>);
        impl Drop for On {
            fn drop(&mut self) {
                OFF.set(self.0);
            }
        }
        let _on = On(OFF.replace(Some(promise)));
        run()
    }
}
