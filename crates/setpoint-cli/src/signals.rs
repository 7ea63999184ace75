//! What stops the process: Ctrl-C, SIGTERM and, if it shall, the end of its parent.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::parent::Parent;

/// The signals that stop the process. From the moment that it is made on, they do nothing else.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    parent: Option<Parent>,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            parent: None,
        })
    }

    /// Takes the end of the parent process for a SIGTERM.
    pub(crate) fn or_end_of(self, parent: Parent) -> Signals {
        Signals { parent: Some(parent), ..self }
    }

    /// Waits for the next one. Gives the exit code of a process that ends by it: 128 + its number.
    pub(crate) async fn next(&mut self) -> i32 {
        let Signals { interrupt, terminate, parent } = self;
        let parent_ended = async {
            match parent {
                Some(parent) => parent.ended().await,
                None => std::future::pending().await,
            }
        };
        let kind = tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
            () = parent_ended => {
                // It ends once.
                self.parent = None;
                SignalKind::terminate()
            }
        };
        128 + kind.as_raw_value()
    }
}
