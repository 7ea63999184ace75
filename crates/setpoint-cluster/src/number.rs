//! Numbers as specs and statuses have them.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number of objects.
pub(crate) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Most counters of a status are left out when they are zero: the server does so too.
pub(crate) fn unless_zero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// Which way a part of a pod counts.
#[derive(Clone, Copy)]
pub(crate) enum Round {
    Up,
    Down,
}

/// A number, or a percentage of `total`.
pub(crate) fn scaled(value: &IntOrString, total: i32, round: Round) -> i32 {
    let percent = match value {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok()),
    };
    // The server takes nothing else than a number or a percentage.
    let parts = percent.unwrap_or(0).saturating_mul(total.into());
    let whole = match round {
        Round::Up => parts.saturating_add(99) / 100,
        Round::Down => parts / 100,
    };
    i32::try_from(whole).unwrap_or(i32::MAX)
}
