//! What a fact is about.

use setpoint::facts::{LoopEvent, Name};
use setpoint::{Fact, ObjectKey};

/// The queue or controller, and the key, that a fact is about, if it is about one.
pub(crate) fn of(event: &LoopEvent) -> Option<(&Name, &ObjectKey)> {
    match event {
        LoopEvent::Added { queue, key, .. }
        | LoopEvent::Phase { queue, key, .. }
        | LoopEvent::Delayed { queue, key, .. }
        | LoopEvent::Held { queue, key, .. }
        | LoopEvent::Released { queue, key, .. } => Some((queue, key)),
        LoopEvent::ReconcileStarted { controller, key, .. }
        | LoopEvent::ReconcileEnded { controller, key, .. }
        | LoopEvent::Write { controller, key, .. }
        | LoopEvent::Finding { controller, key, .. } => Some((controller, key)),
        _ => None,
    }
}

/// Which facts somebody wants to see. Empty texts are no wish.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) controller: String,
    /// A part of the key.
    pub(crate) key: String,
    pub(crate) namespace: String,
}

impl Filter {
    pub(crate) fn is_open(&self) -> bool {
        *self == Filter::default()
    }

    /// Facts about no key are wanted by everybody: they are few, and say why keys move.
    pub(crate) fn takes(&self, fact: &Fact) -> bool {
        if self.is_open() {
            return true;
        }
        let Some((controller, key)) = of(&fact.event) else {
            return !matches!(
                fact.event,
                LoopEvent::Received { .. } | LoopEvent::Applied { .. } | LoopEvent::Handler { .. }
            );
        };
        let is_in = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is_in(&self.controller, controller)
            && is_in(&self.namespace, key.namespace().unwrap_or_default())
            && (self.key.is_empty() || key.to_string().contains(&self.key))
    }
}
