//! The left columns of the guides' tables.

use std::collections::BTreeSet;
use std::fmt;

/// Something that a library exports: its package or module, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub(super) place: String,
    pub(super) name: String,
}

impl Item {
    pub(super) fn new(place: &str, name: &str) -> Item {
        Item { place: place.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place, self.name)
    }
}

pub(super) fn list<'a>(items: impl Iterator<Item = &'a Item>) -> String {
    items.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The rows below `### pkg/NAME`.
pub(super) fn of_controller_runtime(guide: &str) -> BTreeSet<Item> {
    let mut items = BTreeSet::new();
    for section in guide.split("\n### pkg/").skip(1) {
        let place = section.lines().next().unwrap_or_default();
        items.extend(section.lines().flat_map(names).map(|name| Item::new(place, name)));
    }
    items
}

/// The modules that others export again, and those in which the rest of the guide has them.
const WITHIN: [(&str, &str); 4] =
    [("conditions", "wait"), ("delete", "wait"), ("predicates", "utils"), ("store", "reflector")];

/// Rows of names with modules. Without one, it is that of the name before.
pub(super) fn of_kube(rows: &str) -> BTreeSet<Item> {
    let mut items = BTreeSet::new();
    for row in rows.lines() {
        let mut place = None::<&str>;
        for name in names(row) {
            let first = name.split("::").next().unwrap_or_default();
            let is_path = name.contains("::") && first.starts_with(char::is_lowercase);
            if is_path || place.is_none() {
                place =
                    Some(WITHIN.iter().find(|(inner, _)| *inner == first).map_or(first, |(_, outer)| outer));
            }
            let name = name.rsplit("::").next().unwrap_or(name);
            items.insert(Item::new(place.unwrap_or_default(), name));
        }
    }
    items
}

/// What is in backquotes in the first column.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let column = line.strip_prefix("| ").filter(|row| row.starts_with('`'));
    let column = column.and_then(|row| row.split(" | ").next()).unwrap_or_default();
    column.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: &BTreeSet<Item>) -> Vec<String> {
        items.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_in_the_package_of_its_section() {
        let guide = "| `Zero` | before |\n### pkg/builder\n\n| `One` | `Ours` |\n### pkg/cache\n| `Two` | |\n| none |\n";
        assert_eq!(texts(&of_controller_runtime(guide)), ["builder One", "cache Two"]);
    }

    #[test]
    fn a_name_without_a_module_is_in_that_of_the_one_before() {
        let rows = "| `reflector::Store`, `store`, `store::Writer` | `Lister` |\n| `Controller::owns`, `x` | |\n\
                    | `conditions::is_deleted` | |\n| `scheduler`, `Scheduler` | |";
        let expected = [
            "Controller owns",
            "Controller x",
            "reflector Store",
            "reflector Writer",
            "reflector store",
            "scheduler Scheduler",
            "scheduler scheduler",
            "wait is_deleted",
        ];
        assert_eq!(texts(&of_kube(rows)), expected);
    }
}
