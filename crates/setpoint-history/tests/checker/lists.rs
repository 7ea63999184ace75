//! Lists, and lists in pages.

use setpoint_history::{Call, Continue, Fresh, Item, Outcome, Promise};

use crate::story::{A, B, Story, again, item, list, listed};

/// A at 10 and 12, B at 11.
fn story() -> Story {
    Story::created().then((3, 4), Call::Create { key: B }, Outcome::Written(again(B, 11, 2, 2))).then(
        (5, 6),
        Call::Update { key: A, expect: None },
        Outcome::Written(item(A, 12, 3)),
    )
}

fn page(version: u64, items: &[Item], more: bool) -> Outcome {
    Outcome::Listed { version, items: items.to_vec(), more }
}

fn after(version: Option<u64>) -> Call {
    Call::List { fresh: Fresh::Latest, limit: Some(1), from: Some(Continue { after: A, version }) }
}

#[test]
fn a_list_is_the_state_at_its_version() {
    let b = again(B, 11, 2, 2);
    let exact = |version| list(Fresh::Exact(version));
    story().then((7, 8), exact(10), listed(10, &[item(A, 10, 1)])).holds();
    story().then((7, 8), exact(11), listed(11, &[item(A, 10, 1), b])).holds();
    story().then((7, 8), exact(12), listed(12, &[item(A, 12, 3), b])).holds();
}

#[test]
fn a_list_is_not_of_two_moments() {
    let b = again(B, 11, 2, 2);
    let exact = |version| list(Fresh::Exact(version));
    story()
        .then((7, 8), exact(12), listed(12, &[item(A, 10, 1), b]))
        .breaks(Promise::Snapshot, "at 12 the object o000 was at 12");
    story()
        .then((7, 8), exact(12), listed(12, &[item(A, 12, 3)]))
        .breaks(Promise::Snapshot, "at 12 the object o001 was there");
    story()
        .then((7, 8), exact(10), listed(10, &[item(A, 10, 1), b]))
        .breaks(Promise::Snapshot, "newer than the list");
    story()
        .then((7, 8), exact(11), listed(11, &[item(A, 12, 3), b]))
        .breaks(Promise::Snapshot, "at 11 the object o000 was at 10");
}

#[test]
fn a_list_is_at_the_version_that_was_asked_for() {
    let items = [item(A, 12, 3), again(B, 11, 2, 2)];
    story()
        .then((7, 8), list(Fresh::Exact(11)), listed(12, &items))
        .breaks(Promise::Snapshot, "11 was asked for");
    story().then((7, 8), list(Fresh::AtLeast(11)), listed(12, &items)).holds();
    story()
        .then((7, 8), list(Fresh::AtLeast(13)), listed(12, &items))
        .breaks(Promise::Snapshot, "13 or newer was asked for");
}

#[test]
fn pages_are_of_one_version_or_say_that_they_are_not() {
    let first = Call::List { fresh: Fresh::Latest, limit: Some(1), from: None };
    let b = again(B, 11, 2, 2);
    let begun = || {
        Story::created()
            .then((3, 4), Call::Create { key: B }, Outcome::Written(b))
            .then((5, 6), first, page(11, &[item(A, 10, 1)], true))
            .then((7, 8), Call::MergePatch { key: B }, Outcome::Written(again(B, 12, 4, 2)))
    };
    let newer = again(B, 12, 4, 2);
    begun().then((9, 10), after(Some(11)), page(11, &[b], false)).holds();
    begun().then((9, 10), after(None), page(12, &[newer], false)).holds();
    begun()
        .then((9, 10), after(Some(11)), page(12, &[newer], false))
        .breaks(Promise::Snapshot, "does not say so");
    begun()
        .then((9, 10), after(Some(11)), page(11, &[newer], false))
        .breaks(Promise::Snapshot, "o001 was at 11");
    begun().then((9, 10), after(Some(11)), page(11, &[], false)).breaks(Promise::Snapshot, "o001 was there");
}

#[test]
fn a_page_is_in_order_and_no_longer_than_asked() {
    let call = Call::List { fresh: Fresh::Latest, limit: Some(1), from: None };
    let items = [item(A, 12, 3), again(B, 11, 2, 2)];
    story().then((7, 8), call, page(12, &items, false)).breaks(Promise::Snapshot, "more than were asked for");
    let turned = [items[1], items[0]];
    story().then((7, 8), list(Fresh::Latest), listed(12, &turned)).breaks(Promise::Snapshot, "not in order");
}
