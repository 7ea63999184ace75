//! Why a question has no answer, in the words of an extension server's author.

use serde_json::Value;

use crate::field_error::FieldError;

/// Why something was not done. Clients get it as a `Status`, and kubectl shows its sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub(crate) cause: FailureCause,
    pub(crate) message: String,
}

/// The kinds of failures that clients tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    Internal,
    Unavailable,
    BadRequest,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Expired,
    Invalid,
    MethodNotAllowed,
    TooManyRequests,
}

impl Failure {
    fn new(cause: FailureCause, message: impl std::fmt::Display) -> Failure {
        Failure { cause, message: message.to_string() }
    }

    /// A failure that is this program's own (500).
    pub fn internal(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::Internal, message)
    }

    /// What is asked for cannot be had at the moment (503).
    pub fn unavailable(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::Unavailable, message)
    }

    /// The question makes no sense (400).
    pub fn bad_request(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::BadRequest, message)
    }

    /// It is not for this user (403).
    pub fn forbidden(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::Forbidden, message)
    }

    /// There is no such object (404).
    pub fn not_found(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::NotFound, message)
    }

    /// There is an object of this name (409).
    pub fn already_exists(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::AlreadyExists, message)
    }

    /// The object is no longer at the version that the change was made from (409). A client that named no version
    /// is not bothered: its change is made again from the newer state.
    pub fn conflict(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::Conflict, message)
    }

    /// What happened since that version is not known any more (410): the client has to list again.
    pub fn expired(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::Expired, message)
    }

    /// The object cannot be like this (422). [`Kind::validation`](super::Kind::validation) is the place for what can be said
    /// without asking anybody.
    pub fn invalid(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::Invalid, message)
    }

    /// The kind cannot do this (405).
    #[must_use]
    pub fn method_not_allowed() -> Failure {
        Failure::new(FailureCause::MethodNotAllowed, "the kind has no such verb")
    }

    /// Too much is asked for at the same time (429); the client waits a second.
    pub fn too_many_requests(message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureCause::TooManyRequests, message)
    }
}

/// What is wrong with one field of an object: `spec.weight: Invalid value: 0: must be positive`.
#[derive(Clone, Debug, PartialEq)]
pub struct Invalid(pub(super) FieldError);

impl Invalid {
    /// The value is wrong, and why.
    pub fn value(field: impl Into<String>, value: impl Into<Value>, why: impl Into<String>) -> Invalid {
        Invalid(FieldError::invalid(field, value.into(), why))
    }

    /// A value is missing.
    pub fn required(field: impl Into<String>, why: impl Into<String>) -> Invalid {
        Invalid(FieldError::required(field, why))
    }

    /// The field must not be set, or not be changed.
    pub fn forbidden(field: impl Into<String>, why: impl Into<String>) -> Invalid {
        Invalid(FieldError::forbidden(field, why))
    }
}
