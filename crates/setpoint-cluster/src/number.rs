//! Numbers as statuses have them.

/// A number of objects.
pub(crate) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Most counters of a status are left out when they are zero: the server does so too.
pub(crate) fn unless_zero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}
