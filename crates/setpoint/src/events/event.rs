//! What happened, in the words of a controller.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

/// The server takes no more of a reason or an action.
const MOST_OF_A_WORD: usize = 128;
/// The server takes no more of a note.
const MOST_OF_A_NOTE: usize = 1024;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Event {
    pub(super) kind: EventType,
    pub(super) reason: String,
    pub(super) note: String,
    pub(super) action: Option<String>,
    pub(super) related: Option<ObjectReference>,
}

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Everything is as it should be.
    Normal,
    /// Something may be wrong.
    Warning,
}

/// Who reports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reporter {
    pub(super) controller: String,
    pub(super) instance: String,
}

impl Event {
    /// All is well. The reason is for machines, in CamelCase; the note is for people. What is too long for
    /// the server is cut: a reason after 128 bytes, a note after 1024.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Event {
        Event::new(EventType::Normal, reason.into(), note.into())
    }

    /// Something may be wrong.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Event {
        Event::new(EventType::Warning, reason.into(), note.into())
    }

    fn new(kind: EventType, reason: String, note: String) -> Event {
        let (reason, note) = (cut(reason, MOST_OF_A_WORD), cut(note, MOST_OF_A_NOTE));
        Event { kind, reason, note, action: None, related: None }
    }

    /// What was being done, for machines, in CamelCase. Without it, it is the reason.
    pub fn action(mut self, action: impl Into<String>) -> Event {
        self.action = Some(cut(action.into(), MOST_OF_A_WORD));
        self
    }

    /// Another object that has to do with it.
    pub fn related<K>(self, object: &K) -> Event
    where
        K: Resource<DynamicType: Default>,
    {
        self.related_to(object.object_ref(&K::DynamicType::default()))
    }

    /// Another object that has to do with it, by reference.
    pub fn related_to(mut self, object: ObjectReference) -> Event {
        self.related = Some(object);
        self
    }

    /// The same event with a prefix before its note.
    pub(super) fn prefixed(mut self, prefix: &str) -> Event {
        self.note = cut(format!("{prefix}{}", self.note), MOST_OF_A_NOTE);
        self
    }
}

impl EventType {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Cuts a text to as many bytes as the server takes, between two characters.
fn cut(mut text: String, most: usize) -> String {
    const SIGN: &str = "…";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most - SIGN.len()));
        text.push_str(SIGN);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_too_long_are_cut_between_characters() {
        let event = Event::normal("R".repeat(200), "ä".repeat(2000));
        assert_eq!((event.reason.len(), event.note.len() <= 1024), (128, true));
        assert!(event.note.ends_with("ä…"), "{}", event.note);
        let event = Event::normal("Synced", "x".repeat(1024)).prefixed("again: ");
        assert!(event.note.starts_with("again: x") && event.note.len() <= 1024);
        assert_eq!(Event::warning("A", "short").note, "short");
    }
}
