//! Sets of fields, as trees: what a manager owns, what a change touches.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::PathElement;
use super::schema::Schema;
use crate::strategy::subresources::EACH;

/// A set of fields of an object. That a field is in the set says nothing about its children or parents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(Vec<Node>);

/// A child that is in the set, or has children in it, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    element: PathElement,
    is_member: bool,
    children: FieldSet,
}

/// What a set has of one child of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// Whether the child itself is in the set.
    pub(crate) is_member: bool,
    pub(crate) below: FieldSet,
}

impl Part {
    pub(crate) const MEMBER: Part = Part { is_member: true, below: FieldSet(Vec::new()) };

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_member && self.below.is_empty()
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }
}

impl Node {
    /// What is left below, if that is not what there was: nothing below what is one value.
    fn whole_value(&self, schema: Schema<'_>) -> Option<FieldSet> {
        if self.children.is_empty() {
            return None;
        }
        let atom = schema.atom();
        let is_whole = match (atom.map, atom.scalar, atom.list) {
            // Of what has no type, nothing is known.
            (Some(map), _, _) if map.is_deduced() => return None,
            (Some(map), _, _) => map.is_atomic,
            (None, None, Some(list)) => list.is_atomic(),
            _ => return None,
        };
        if is_whole { Some(FieldSet::default()) } else { self.children.with_whole_values(schema) }
    }
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        // No node is without members below it.
        self.0.is_empty()
    }

    /// The set of these paths, each of names of fields.
    pub(crate) fn of_fields(paths: &[&[&str]]) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds the field at a path. The whole object, which is what the empty path means, nobody can own.
    pub(crate) fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.node_mut(first);
        match rest {
            [] => node.is_member = true,
            rest => node.children.insert(rest),
        }
    }

    /// Adds a child and what is below it; nothing, if neither is in the set.
    pub(crate) fn push(&mut self, element: PathElement, part: Part) {
        if part.is_empty() {
            return;
        }
        match self.place(&element) {
            Ok(at) => {
                let node = &mut self.0[at];
                node.is_member |= part.is_member;
                node.children = std::mem::take(&mut node.children).join(part.below);
            }
            Err(at) => {
                self.0.insert(at, Node { element, is_member: part.is_member, children: part.below });
            }
        }
    }

    /// Where a child is, or would be.
    fn place(&self, element: &PathElement) -> Result<usize, usize> {
        // Walks meet fields in order, so the place is nearly always the end.
        match self.0.last().map(|last| last.element.cmp(element)) {
            None | Some(Ordering::Less) => Err(self.0.len()),
            Some(Ordering::Equal) => Ok(self.0.len() - 1),
            Some(Ordering::Greater) => self.0.binary_search_by(|node| node.element.cmp(element)),
        }
    }

    fn node_mut(&mut self, element: &PathElement) -> &mut Node {
        let at = self.place(element).unwrap_or_else(|at| {
            let node = Node { element: element.clone(), is_member: false, children: FieldSet::default() };
            self.0.insert(at, node);
            at
        });
        &mut self.0[at]
    }

    fn node(&self, element: &PathElement) -> Option<&Node> {
        let at = self.0.binary_search_by(|node| node.element.cmp(element)).ok()?;
        self.0.get(at)
    }

    /// Whether a child is in the set.
    pub(crate) fn has_member(&self, element: &PathElement) -> bool {
        self.node(element).is_some_and(|node| node.is_member)
    }

    /// Whether the field at a path is in the set.
    pub(crate) fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.has_member(last),
            [first, rest @ ..] => self.node(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// What is in the set below a child.
    pub(crate) fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.node(element).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    /// Every path of the set: the fields of a level, then what is below each.
    pub(crate) fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.append_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn append_paths(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        for node in self.0.iter().filter(|node| node.is_member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            paths.push(path);
        }
        for node in &self.0 {
            prefix.push(node.element.clone());
            node.children.append_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// What is in either.
    pub(crate) fn union(&self, other: &FieldSet) -> FieldSet {
        if other.is_empty() {
            return self.clone();
        }
        self.zip(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => Some(Node {
                element: a.element.clone(),
                is_member: a.is_member || b.is_member,
                children: a.children.union(&b.children),
            }),
            (one, other) => one.or(other).cloned(),
        })
    }

    /// The same, of sets that are not needed any more.
    pub(crate) fn join(self, other: FieldSet) -> FieldSet {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (false, true) => self,
            (false, false) => self.union(&other),
        }
    }

    /// Takes out what is in the other.
    pub(crate) fn subtract(&mut self, other: &FieldSet) {
        for taken in &other.0 {
            let Ok(at) = self.0.binary_search_by(|node| node.element.cmp(&taken.element)) else { continue };
            let node = &mut self.0[at];
            node.is_member &= !taken.is_member;
            node.children.subtract(&taken.children);
            if node.is_empty() {
                self.0.remove(at);
            }
        }
    }

    /// What is in both.
    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.zip(other, |a, b| {
            let (a, b) = (a?, b?);
            Some(Node {
                element: a.element.clone(),
                is_member: a.is_member && b.is_member,
                children: a.children.intersection(&b.children),
            })
        })
    }

    /// What is in this set and not in the other.
    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        if other.is_empty() {
            return self.clone();
        }
        self.zip(other, |a, b| {
            let a = a?;
            let Some(b) = b else { return Some(a.clone()) };
            Some(Node {
                element: a.element.clone(),
                is_member: a.is_member && !b.is_member,
                children: a.children.difference(&b.children),
            })
        })
    }

    /// The same, and nothing below what is in the other.
    pub(crate) fn recursive_difference(&self, other: &FieldSet) -> FieldSet {
        if other.is_empty() {
            return self.clone();
        }
        self.zip(other, |a, b| {
            let a = a?;
            match b {
                None => Some(a.clone()),
                Some(b) if b.is_member => None,
                Some(b) => Some(Node {
                    element: a.element.clone(),
                    is_member: a.is_member,
                    children: a.children.recursive_difference(&b.children),
                }),
            }
        })
    }

    /// Pairs the children of two sets in order and joins each pair; what comes out empty is left out.
    fn zip(
        &self,
        other: &FieldSet,
        mut join: impl FnMut(Option<&Node>, Option<&Node>) -> Option<Node>,
    ) -> FieldSet {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut out = Vec::with_capacity(self.0.len());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return FieldSet(out),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.element.cmp(&b.element),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            out.extend(join(a, b).filter(|node| !node.is_empty()));
        }
    }

    /// Only what the patterns lead to: [`EACH`] in them stands for any element.
    pub(crate) fn matching(&self, patterns: &[&[&str]]) -> FieldSet {
        let nodes = self.0.iter().filter_map(|node| {
            let rest: Vec<&[&str]> = patterns
                .iter()
                .filter_map(|pattern| {
                    let (first, rest) = pattern.split_first()?;
                    let fits = match (*first, &node.element) {
                        (EACH, _) => true,
                        (name, PathElement::Field(found)) => name == &**found,
                        _ => false,
                    };
                    fits.then_some(rest)
                })
                .collect();
            if rest.is_empty() {
                return None;
            }
            let children = if rest.iter().any(|rest| rest.is_empty()) {
                node.children.clone()
            } else {
                node.children.matching(&rest)
            };
            Some(Node { element: node.element.clone(), is_member: node.is_member, children })
        });
        FieldSet(nodes.filter(|node| !node.is_empty()).collect())
    }

    /// Adds the fields of structs that have children in the set: they are there as long as these are.
    pub(crate) fn with_named_fields(&self, schema: Option<Schema<'_>>) -> FieldSet {
        let atom = schema.map(|schema| schema.atom());
        let map = atom.as_ref().and_then(|atom| atom.map);
        let list = atom.as_ref().and_then(|atom| atom.list);
        let nodes = self.0.iter().map(|node| {
            let mut is_member = node.is_member;
            let below = match &node.element {
                PathElement::Field(name) => map.and_then(|map| {
                    let declared = map.field(name);
                    is_member |= declared.is_some() && !node.children.is_empty();
                    declared.or_else(|| map.element())
                }),
                PathElement::Key(_) => list.map(|list| list.item),
                _ => None,
            };
            Node {
                element: node.element.clone(),
                is_member,
                children: node.children.with_named_fields(below),
            }
        });
        FieldSet(nodes.collect())
    }

    /// The same set where a type has become one value since it was written: who owned parts of it owns the whole. Nothing, if it
    /// is as it was.
    pub(crate) fn with_whole_values(&self, schema: Schema<'_>) -> Option<FieldSet> {
        let atom = schema.atom();
        let mut changed: Option<Vec<Node>> = None;
        for (at, node) in self.0.iter().enumerate() {
            let below = match (atom.map, atom.scalar, atom.list) {
                (Some(map), _, _) => match &node.element {
                    PathElement::Field(name) => map.child(name),
                    _ => map.element(),
                },
                (None, None, Some(list)) => Some(list.item),
                _ => None,
            };
            let children = below.and_then(|below| node.whole_value(below));
            if let Some(children) = children {
                let is_member = node.is_member || children.is_empty();
                changed.get_or_insert_with(|| self.0.clone())[at] =
                    Node { element: node.element.clone(), is_member, children };
            }
        }
        changed.map(FieldSet)
    }

    /// The set as FieldsV1.
    pub(crate) fn to_fields_v1(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, includes_self: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if includes_self && !self.0.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.0 {
            map.insert(node.element.to_key(), Value::Object(node.children.to_map(node.is_member)));
        }
        map
    }

    /// Reads FieldsV1; an error if it is not.
    pub(crate) fn from_fields_v1(value: &Value) -> Result<FieldSet, String> {
        match value {
            Value::Null => Ok(FieldSet::default()),
            Value::Object(map) => Ok(FieldSet::from_map(map, 0)?.0),
            other => {
                Err(format!("expect {{ or n, but found {}", other.to_string().chars().next().unwrap_or(' ')))
            }
        }
    }

    /// What is below a child, and whether the child itself is in the set.
    fn from_map(map: &Map<String, Value>, depth: usize) -> Result<(FieldSet, bool), String> {
        if depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        let mut set = FieldSet::default();
        let mut is_member = false;
        for (key, value) in map {
            if key == "." {
                is_member = true;
                continue;
            }
            let Some(element) = PathElement::parse(key)? else { continue };
            let (children, child_is_member) = match value {
                Value::Null => (FieldSet::default(), true),
                Value::Object(map) => FieldSet::from_map(map, depth + 1)?,
                _ => return Err(format!("the value of {key:?} is not an object")),
            };
            let node = set.node_mut(&element);
            node.is_member |= child_is_member;
            if !children.is_empty() {
                node.children = children;
            }
        }
        let is_member = is_member || set.is_empty();
        Ok((set, is_member))
    }
}

/// Objects are not nested deeper than this, see `body`.
const MAX_DEPTH: usize = 1000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_fields_v1(&value).unwrap()
    }

    #[test]
    fn a_set_is_written_and_read_as_fields_v1() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:containers": {r#"k:{"name":"web"}"#: {".": {}, "f:image": {}, "f:name": {}}},
                "f:finalizers": {r#"v:"kubernetes""#: {}},
                "f:replicas": {}
            }
        });
        assert_eq!(set(fields.clone()).to_fields_v1(), fields);
        let field = |name| PathElement::field(name);
        assert!(set(fields.clone()).has(&[field("spec"), field("replicas")]));
        assert!(set(fields.clone()).has(&[field("metadata"), field("labels")]));
        assert!(!set(fields).has(&[field("metadata")]));
    }

    #[test]
    fn unknown_elements_are_passed_over_and_nonsense_is_refused() {
        assert_eq!(set(json!({"x:1": {}, "f:a": {}})), set(json!({"f:a": {}})));
        for bad in [json!([]), json!({"f": {}}), json!({"f:a": 1})] {
            assert!(FieldSet::from_fields_v1(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_parent_and_its_children_are_in_a_set_independently() {
        let all = set(json!({"f:a": {".": {}, "f:b": {}}}));
        assert_eq!(all.difference(&set(json!({"f:a": {}}))), set(json!({"f:a": {"f:b": {}}})));
        assert_eq!(all.difference(&set(json!({"f:a": {"f:b": {}}}))), set(json!({"f:a": {}})));
        assert_eq!(all.recursive_difference(&set(json!({"f:a": {}}))), FieldSet::default());
        assert_eq!(all.intersection(&set(json!({"f:a": {}}))), set(json!({"f:a": {}})));
    }

    #[test]
    fn patterns_keep_what_they_lead_to() {
        let all = set(json!({"f:spec": {"f:containers": {
            r#"k:{"name":"a"}"#: {".": {}, "f:resources": {"f:limits": {}}, "f:image": {}}
        }}}));
        let kept = all.matching(&[&["spec", "containers", EACH, "resources"]]);
        let expected = json!({"f:spec": {"f:containers": {
            r#"k:{"name":"a"}"#: {".": {}, "f:resources": {"f:limits": {}}}
        }}});
        assert_eq!(kept, set(expected));
    }

    /// Names that look like something else, and every type of value.
    fn any_element() -> impl Strategy<Value = PathElement> {
        let name = prop_oneof![
            prop::sample::select(vec![
                "",
                ".",
                "f:",
                "f:.",
                "k:{\"a\":1}",
                "v:1",
                "i:0",
                "a.b",
                "\"",
                "\\",
                "é\u{0}\n",
                "🦀"
            ])
            .prop_map(str::to_owned),
            any::<String>(),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop::num::f64::NORMAL.prop_map(Value::from),
            name.clone().prop_map(Value::from),
        ];
        let value = leaf.clone().prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..3).prop_map(|map| json!(map)),
            ]
        });
        let keys = prop::collection::btree_map(name.clone(), leaf, 1..4);
        prop_oneof![
            name.prop_map(|name| PathElement::field(&name)),
            keys.prop_map(|keys| {
                PathElement::key(keys.into_iter().map(|(name, value)| (name.into(), value)).collect())
            }),
            value.prop_map(PathElement::Value),
            any::<i64>().prop_map(PathElement::Index),
        ]
    }

    proptest! {
        #[test]
        fn any_set_is_the_same_after_it_was_written_and_read(
            paths in prop::collection::vec(prop::collection::vec(any_element(), 1..5), 0..8),
        ) {
            let mut set = FieldSet::default();
            paths.iter().for_each(|path| set.insert(path));
            let text = set.to_fields_v1().to_string();
            let read = FieldSet::from_fields_v1(&serde_json::from_str(&text).unwrap()).unwrap();
            prop_assert_eq!(&read, &set);
            prop_assert_eq!(read.to_fields_v1().to_string(), text);
            prop_assert!(paths.iter().all(|path| read.has(path)));
        }

        #[test]
        fn changing_a_set_in_place_is_the_same_as_making_a_new_one(
            paths in prop::collection::vec((prop::collection::vec(any_element(), 1..4), 0..3), 0..12),
        ) {
            let (mut one, mut other) = (FieldSet::default(), FieldSet::default());
            for (path, whose) in &paths {
                if *whose != 1 {
                    one.insert(path);
                }
                if *whose != 0 {
                    other.insert(path);
                }
            }
            prop_assert_eq!(one.clone().join(other.clone()), one.union(&other));
            let difference = one.difference(&other);
            one.subtract(&other);
            prop_assert_eq!(one, difference);
        }
    }
}
