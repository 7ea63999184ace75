//! Two writers that undo each other: a field that a key writes is changed back by another writer, and written again.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use lru::LruCache;
use setpoint::ObjectKey;
use setpoint::facts::{FieldChange, Name};

/// A controller and one of its keys.
type Subject = (Name, ObjectKey);
/// A resource and one of its objects.
pub(crate) type Object = (Name, ObjectKey);

/// Of how many objects it remembers what was written.
const OBJECTS: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
/// How many fields of an object are remembered.
const FIELDS: usize = 32;
/// How many objects wait to be explained.
const UNEXPLAINED: usize = 64;
/// How many other writers of a field are named.
const OTHERS: usize = 3;
/// A field that was changed back so often in a row has two writers that undo each other.
pub(crate) const TIMES: u32 = 3;

/// What keys wrote to fields, and how often it was changed back.
#[derive(Debug)]
pub(crate) struct PingPong {
    objects: LruCache<Object, VecDeque<Field>>,
    /// Those with a field that was just changed back by nobody knows whom.
    unexplained: BTreeSet<Object>,
}

/// A field of an object, as one key writes it.
#[derive(Debug)]
struct Field {
    path: String,
    by: Subject,
    /// The field manager of its writes, if they name one.
    manager: Option<Name>,
    /// What it wrote last, if it has written it before; none of it, if it took the field away.
    after: Option<Option<String>>,
    /// How often in a row it has found another value there, and written its own again.
    undone: u32,
    /// Who else writes it.
    others: BTreeSet<Name>,
}

/// Fields of an object that are written in turns.
#[derive(Debug, PartialEq)]
pub(crate) struct Undone {
    pub(crate) fields: Vec<String>,
    pub(crate) times: u32,
    /// The field manager of the key's own writes, if they name one.
    pub(crate) manager: Option<Name>,
}

impl Default for PingPong {
    fn default() -> PingPong {
        PingPong { objects: LruCache::new(OBJECTS), unexplained: BTreeSet::new() }
    }
}

impl PingPong {
    /// A key changed these fields of an object. Says which of them are changed back again and again.
    pub(crate) fn wrote(
        &mut self,
        by: &Subject,
        object: Object,
        manager: Option<&Name>,
        changed: &[FieldChange],
    ) -> Option<Undone> {
        let fields = self.objects.get_or_insert_mut_ref(&object, VecDeque::new);
        for change in changed {
            // Another key of this process may have written what was there.
            let is_others =
                |field: &&Field| field.path == change.path && field.by != *by && field.wrote(&change.before);
            let other = fields.iter().find(is_others).map(Field::writer);
            let known = fields.iter().position(|field| field.path == change.path && field.by == *by);
            let mut field =
                known.and_then(|at| fields.remove(at)).unwrap_or_else(|| Field::new(by, &change.path));
            field.manager = manager.cloned();
            field.changed(change, other);
            if fields.len() == FIELDS {
                fields.pop_front();
            }
            fields.push_back(field);
        }
        let is_in_turns = |field: &&Field| field.by == *by && field.undone >= TIMES;
        let in_turns: Vec<&Field> = fields.iter().filter(is_in_turns).collect();
        let times = in_turns.iter().map(|field| field.undone).max()?;
        let fields = in_turns.iter().map(|field| field.path.clone()).collect();
        if self.is_unexplained(&object) && self.unexplained.len() < UNEXPLAINED {
            self.unexplained.insert(object);
        }
        Some(Undone { fields, times, manager: manager.cloned() })
    }

    /// Fields of this object have these owners, as its managedFields say. Those of fields that are changed back are
    /// the other writers.
    pub(crate) fn owned(&mut self, object: &Object, owners: &[(Name, Vec<String>)]) {
        for field in self.objects.peek_mut(object).into_iter().flatten().filter(|field| field.undone > 0) {
            let of = |is_of: &dyn Fn(&str) -> bool| -> Vec<Name> {
                let of_it = owners.iter().filter(|(_, paths)| paths.iter().any(|path| is_of(path)));
                of_it.map(|(owner, _)| owner.clone()).collect()
            };
            // Who owns what is around a field owns it too, unless others own the field itself.
            let mut here = of(&|path| field.is_at(path));
            if here.is_empty() {
                here = of(&|path| field.is_within(path));
            }
            here.into_iter().for_each(|owner| field.add_other(owner));
        }
    }

    /// Whether there are objects with fields that were changed back by nobody knows whom.
    pub(crate) fn has_unexplained(&self) -> bool {
        !self.unexplained.is_empty()
    }

    /// The first of them. They come again with the next write that was undone.
    pub(crate) fn take_unexplained(&mut self, most: usize) -> Vec<Object> {
        std::iter::from_fn(|| self.unexplained.pop_first()).take(most).collect()
    }

    pub(crate) fn is_unexplained(&self, object: &Object) -> bool {
        let is_open = |field: &Field| field.undone >= TIMES && !field.is_explained();
        self.objects.peek(object).into_iter().flatten().any(is_open)
    }

    /// Who else writes these fields of an object, which this key writes.
    pub(crate) fn others(&self, object: &Object, by: &Subject, fields: &[String]) -> Vec<Name> {
        let is_known = |field: &&Field| field.by == *by && fields.contains(&field.path);
        let known = self.objects.peek(object).into_iter().flatten().filter(is_known);
        let others: BTreeSet<&Name> = known.flat_map(|field| &field.others).collect();
        others.into_iter().cloned().collect()
    }
}

impl Field {
    fn new((controller, key): &Subject, path: &str) -> Field {
        let (by, path) = ((controller.clone(), key.clone()), path.to_owned());
        Field { path, by, manager: None, after: None, undone: 0, others: BTreeSet::new() }
    }

    fn wrote(&self, value: &Option<String>) -> bool {
        self.after.as_ref() == Some(value)
    }

    fn changed(&mut self, change: &FieldChange, other: Option<Name>) {
        // The content of a Secret is not known: none was there before, and none is there now.
        let is_undone = self.wrote(&change.after) && change.before != change.after;
        self.after = Some(change.after.clone());
        if !is_undone {
            (self.undone, self.others) = (0, BTreeSet::new());
            return;
        }
        self.undone = self.undone.saturating_add(1);
        if let Some(other) = other {
            self.add_other(other);
        }
    }

    fn add_other(&mut self, other: Name) {
        if self.manager.as_ref() != Some(&other) && self.others.len() < OTHERS {
            self.others.insert(other);
        }
    }

    /// Whether its other writer is known; if it is not known which one is its own, both.
    fn is_explained(&self) -> bool {
        let least = if self.manager.is_some() { 1 } else { 2 };
        self.others.len() >= least
    }

    /// What it is called by those whom it undoes.
    fn writer(&self) -> Name {
        let (controller, key) = &self.by;
        format!("{controller} for {key}").as_str().into()
    }

    /// Whether a path of managedFields is this field, or in it.
    fn is_at(&self, path: &str) -> bool {
        is_within(&without_items(path), &without_items(&self.path))
    }

    /// Whether this field is at a path of managedFields, or in it.
    fn is_within(&self, path: &str) -> bool {
        is_within(&without_items(&self.path), &without_items(path))
    }
}

fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Items of lists have a number in differences, and a name or a value in managedFields:
/// `spec.ports[0].port` and `spec.ports[name=web].port` are `spec.ports[].port`.
fn without_items(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut depth = 0_usize;
    for c in path.chars() {
        match c {
            '[' => depth = depth.saturating_add(1),
            ']' => depth = depth.saturating_sub(1),
            _ if depth > 0 => continue,
            _ => {}
        }
        plain.push(c);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Object {
        ("configmaps".into(), "default/web".into())
    }

    fn by(controller: &str, key: &str) -> Subject {
        (controller.into(), key.into())
    }

    fn change(before: &str, after: &str) -> [FieldChange; 1] {
        [FieldChange { path: "data.mode".into(), before: Some(before.into()), after: Some(after.into()) }]
    }

    fn write(played: &mut PingPong, before: &str, after: &str) -> Option<Undone> {
        let manager = Name::from("keeper");
        played.wrote(&by("keeper", "default/web"), object(), Some(&manager), &change(before, after))
    }

    fn others(played: &PingPong, by: &Subject) -> Vec<Name> {
        played.others(&object(), by, &["data.mode".into()])
    }

    #[test]
    fn a_field_that_is_changed_back_three_times_is_found_with_its_other_writer() {
        let mut played = PingPong::default();
        for n in 0..3 {
            assert_eq!(write(&mut played, "off", "on"), None, "after {n} times");
        }
        let undone = write(&mut played, "off", "on").unwrap();
        assert_eq!((undone.fields, undone.times), (vec!["data.mode".to_owned()], 3));
        assert_eq!(undone.manager, Some("keeper".into()));
        assert_eq!(played.take_unexplained(8), [object()]);
        assert!(!played.has_unexplained() && played.is_unexplained(&object()));
        let owned = |owner: &str, path: &str| (Name::from(owner), vec![path.to_owned()]);
        // Who made the object owns its data, but not all that is in it.
        let mine = [owned("keeper", "data.mode"), owned("someone", "data.other"), owned("creator", "data")];
        played.owned(&object(), &mine);
        assert_eq!(others(&played, &by("keeper", "default/web")), []);
        let owners = [owned("creator", "data"), owned("rival", "data.mode")];
        played.owned(&object(), &owners);
        assert_eq!(others(&played, &by("keeper", "default/web")), ["rival".into()]);
        assert!(!played.is_unexplained(&object()));
        write(&mut played, "off", "on");
        assert!(!played.has_unexplained(), "it is known by now");
    }

    #[test]
    fn a_field_that_gets_somewhere_is_not_in_turns() {
        let mut played = PingPong::default();
        for n in 0..20 {
            let (before, after) = (n.to_string(), (n + 1).to_string());
            assert_eq!(write(&mut played, &before, &after), None, "a counter");
        }
        for n in 0..20 {
            assert_eq!(
                write(&mut played, &format!("{n}"), &format!("of {n}")),
                None,
                "it follows another one"
            );
        }
        assert_eq!(write(&mut played, "off", "on"), None);
        for _ in 0..20 {
            assert_eq!(write(&mut played, "on", "off"), None, "its own change of mind");
            assert_eq!(write(&mut played, "off", "on"), None, "and back");
        }
    }

    #[test]
    fn two_keys_of_a_process_name_each_other() {
        let mut played = PingPong::default();
        let (red, blue) = (by("paint", "default/red"), by("paint", "default/blue"));
        let mut found = None;
        for _ in 0..4 {
            found = played.wrote(&red, object(), None, &change("blue", "red"));
            played.wrote(&blue, object(), None, &change("red", "blue"));
        }
        assert_eq!(found.map(|undone| undone.times), Some(3));
        assert_eq!(others(&played, &red), ["paint for default/blue".into()]);
        assert_eq!(others(&played, &blue), ["paint for default/red".into()]);
    }

    #[test]
    fn of_a_key_whose_writes_name_no_manager_both_managers_are_looked_for() {
        let mut played = PingPong::default();
        let keeper = by("keeper", "default/web");
        for _ in 0..4 {
            played.wrote(&keeper, object(), None, &change("off", "on"));
        }
        for (owner, is_unexplained) in [("unknown", true), ("rival", false)] {
            played.owned(&object(), &[(owner.into(), vec!["data.mode".to_owned()])]);
            assert_eq!(played.is_unexplained(&object()), is_unexplained, "with {owner}");
        }
        assert_eq!(others(&played, &keeper), ["rival".into(), "unknown".into()]);
    }

    #[test]
    fn paths_of_managed_fields_are_those_of_differences() {
        let field = |path: &str| Field::new(&by("a", "b"), path);
        assert!(field("spec.ports[0].port").is_at("spec.ports[port=80,protocol=TCP].port"));
        assert!(field("data").is_at("data.mode") && !field("data.mode.x").is_at("data.mode"));
        assert!(field("spec.args[0]").is_within("spec.args") && !field("spec.args").is_within("spec.args[]"));
        assert!(
            field("metadata.labels.app.kubernetes.io/name").is_at("metadata.labels.app.kubernetes.io/name")
        );
        assert!(!field("data.mode").is_at("data.modes") && !field("data.mode").is_at("spec"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut played = PingPong::default();
        let path = |n: usize| FieldChange { path: n.to_string(), before: None, after: Some("x".into()) };
        for n in 0..3 * FIELDS {
            played.wrote(&by("a", "b"), object(), None, &[path(n)]);
        }
        assert_eq!(played.objects.peek(&object()).map(VecDeque::len), Some(FIELDS));
        for n in 0..3 * OBJECTS.get() {
            let object = ("pods".into(), ObjectKey::from(n.to_string().as_str()));
            played.wrote(&by("a", "b"), object, None, &[path(n)]);
        }
        assert_eq!(played.objects.len(), OBJECTS.get());
    }
}
