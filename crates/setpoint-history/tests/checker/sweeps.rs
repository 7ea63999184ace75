//! Deletes of the collection: what they list was there, and is gone afterwards.

use setpoint_history::{Call, Event, Fields, From, Item, Outcome, Promise, State};

use crate::story::{A, B, Story, again, get, item, listed};

const SWEEP: Call = Call::DeleteCollection { limit: Some(1) };

/// A at 10 and B at 11.
fn two() -> Story {
    Story::created().then((3, 4), Call::Create { key: B }, Outcome::Written(again(B, 11, 2, 2)))
}

fn swept() -> Story {
    let all = Outcome::Listed { version: 11, items: vec![item(A, 10, 1)], more: true };
    two().then((5, 8), SWEEP, all)
}

fn events() -> [Event; 3] {
    [Event::Added(item(A, 10, 1)), Event::Added(again(B, 11, 2, 2)), Event::Deleted(item(A, 12, 1))]
}

#[test]
fn what_it_lists_is_deleted() {
    swept().watch(From::Version(9), &events()).then((9, 10), get(A), Outcome::NotFound).holds();
    let kept = item(A, 13, 4);
    swept()
        .then((9, 10), Call::MergePatch { key: A }, Outcome::Written(kept))
        .watch(From::Version(9), &[events()[0], events()[1], Event::Modified(kept)])
        .breaks(Promise::Linearizable, "delete the collection");
    // Somebody else may have been faster, with a read in between.
    let delete = Call::Delete { key: A, expect: None };
    swept()
        .watch(From::Version(9), &events())
        .then((5, 7), delete, Outcome::Deleted(1))
        .then((5, 6), get(A), Outcome::Found(item(A, 10, 1)))
        .holds();
}

#[test]
fn it_deletes_what_it_lists_and_nothing_else() {
    let other = Event::Deleted(again(B, 12, 2, 2));
    swept()
        .watch(From::Version(9), &[events()[0], events()[1], other])
        .breaks(Promise::Once, "nobody has deleted");
    two().watch(From::Version(9), &events()).breaks(Promise::Once, "nobody has deleted");
    two().then((5, 8), SWEEP, Outcome::Unknown).watch(From::Version(9), &events()).holds();
    two()
        .then((5, 8), SWEEP, Outcome::Refused(429))
        .watch(From::Version(9), &events())
        .breaks(Promise::Once, "nobody has deleted");
}

#[test]
fn it_deletes_while_it_runs() {
    // The object was made again after it had ended.
    let create = Call::Create { key: A };
    let made = again(A, 13, 4, 3);
    let again =
        [events()[0], events()[1], events()[2], Event::Added(made), Event::Deleted(again(A, 14, 4, 3))];
    let story = || swept().then((9, 10), create, Outcome::Written(made));
    story().watch(From::Version(9), &again[..4]).holds();
    story().watch(From::Version(9), &again).breaks(Promise::Once, "nobody has deleted");
}

#[test]
fn it_lists_the_first_objects_as_they_are() {
    let both = [item(A, 10, 1), again(B, 11, 2, 2)];
    two().then((5, 8), SWEEP, listed(11, &both)).breaks(Promise::Snapshot, "more than were asked for");
    two().then((5, 8), SWEEP, listed(11, &both[1..])).breaks(Promise::Snapshot, "o000 was there");
}

/// The same object, marked as deleted at another version.
fn marked(item: Item, version: u64) -> Item {
    let fields = Fields { is_leaving: true, ..item.state.fields };
    Item { version, state: State { fields, ..item.state }, ..item }
}

#[test]
fn a_pod_is_marked_before_it_is_gone() {
    let (a, delete) = (item(A, 10, 1), Call::Delete { key: A, expect: None });
    let gone = Event::Deleted(marked(a, 12));
    let events = [Event::Added(a), Event::Modified(marked(a, 11)), gone];
    let told = |story: Story| story.watch(From::Version(9), &events).of_pods();
    // Who deletes a marked pod is answered, too.
    let twice = |story: Story| {
        story.then((3, 4), delete, Outcome::Deleted(1)).then((3, 4), delete, Outcome::Deleted(1))
    };
    told(twice(Story::created())).holds();
    told(twice(Story::created()).then((5, 6), get(A), Outcome::Found(marked(a, 11)))).holds();
    told(Story::created().then((3, 4), delete, Outcome::Unknown)).holds();
    told(Story::created()).breaks(Promise::Once, "nobody has deleted");
    told(Story::created().then((3, 4), delete, Outcome::Refused(429)))
        .breaks(Promise::Once, "nobody has deleted");
    // A mark changes nothing else, and it stays.
    let patched = Outcome::Written(item(A, 12, 3));
    let events = [Event::Added(a), Event::Modified(marked(a, 11)), Event::Modified(item(A, 12, 3))];
    Story::created()
        .then((3, 4), delete, Outcome::Deleted(1))
        .then((5, 6), Call::MergePatch { key: A }, patched)
        .watch(From::Version(9), &events)
        .of_pods()
        .breaks(Promise::Follows, "a field is not as it was");
}

#[test]
fn a_write_to_a_marked_pod_is_stored_or_ends_it() {
    let (a, delete) = (item(A, 10, 1), Call::Delete { key: A, expect: None });
    let (patch, patched) = (Call::MergePatch { key: A }, marked(item(A, 12, 3), 12));
    let story = || {
        Story::created()
            .then((3, 8), delete, Outcome::Deleted(1))
            .then((5, 6), patch, Outcome::Leaving)
            .of_pods()
    };
    let (added, mark) = (Event::Added(a), Event::Modified(marked(a, 11)));
    story().watch(From::Version(9), &[added, mark, Event::Deleted(marked(a, 12))]).holds();
    let stored = [added, mark, Event::Modified(patched), Event::Deleted(marked(patched, 13))];
    story().watch(From::Version(9), &stored).holds();
    assert_eq!(story().verdict().unknown, 0);
}
