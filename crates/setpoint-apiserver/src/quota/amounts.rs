//! Amounts by the names of resources.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use setpoint_kinds::Quantity;

/// Quantities by the names of resources, as `hard` and `used` of a quota or `requests` of a container have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    /// Reads a list of resources; nothing if there is none.
    pub fn of(list: &Value) -> Amounts {
        let entries = list.as_object().into_iter().flatten();
        entries
            .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)))
            .collect()
    }

    /// The list as objects have it.
    pub fn to_json(&self) -> Value {
        let entries = self.0.iter().map(|(name, amount)| (name.clone(), amount.to_string().into()));
        Value::Object(entries.collect::<Map<String, Value>>())
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Names and amounts, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// How much there is of a resource, if it is in the list.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Puts a resource into the list.
    pub fn set(&mut self, name: &str, amount: Quantity) {
        self.0.insert(name.to_owned(), amount);
    }

    /// Whether nothing is in the list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds all of another list.
    pub fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// What is more than in another list; never less than nothing.
    #[must_use]
    pub fn above(&self, other: &Amounts) -> Amounts {
        let above = |name: &str, amount: Quantity| {
            let more = amount.saturating_sub(other.get(name).unwrap_or_default());
            if more < Quantity::ZERO { Quantity::ZERO } else { more }
        };
        self.iter().map(|(name, amount)| (name.to_owned(), above(name, amount))).collect()
    }

    /// The resources that another list has, too.
    #[must_use]
    pub fn within(&self, other: &Amounts) -> Amounts {
        self.iter()
            .filter(|(name, _)| other.0.contains_key(*name))
            .map(|(name, amount)| (name.to_owned(), amount))
            .collect()
    }

    /// The resources of which there is something.
    #[must_use]
    pub fn without_zeros(&self) -> Amounts {
        let some = self.iter().filter(|(_, amount)| !amount.is_zero());
        some.map(|(name, amount)| (name.to_owned(), amount)).collect()
    }

    /// Raises each resource to what another list has of it.
    pub(crate) fn raise_to(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_insert(*amount);
            *most = (*most).max(*amount);
        }
    }
}

impl FromIterator<(String, Quantity)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (String, Quantity)>>(entries: I) -> Amounts {
        Amounts(entries.into_iter().collect())
    }
}

/// `cpu=1,memory=2Gi`.
impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{name}={amount}")?;
        }
        Ok(())
    }
}
