//! The resourceVersion: where in the history of a resource an object, a list or a cache stands.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A resourceVersion. Two of one resource can be compared; of two resources they cannot.
///
/// Kubernetes documents (since 1.35) that resourceVersions of one resource are decimal numbers of any size
/// and may be compared. Servers that hand out anything else still work: such versions are equal or
/// incomparable.
///
/// ```
/// use setpoint::ResourceVersion;
///
/// let (nine, ten) = (ResourceVersion::from("9"), ResourceVersion::from("10"));
/// assert!(nine < ten);
/// assert_eq!(ResourceVersion::from("opaque").partial_cmp(&ten), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u128),
    Opaque(Arc<str>),
}

impl ResourceVersion {
    /// Whether this version is older than `other`; false if the two cannot be compared.
    pub fn is_before(&self, other: &ResourceVersion) -> bool {
        self.partial_cmp(other) == Some(Ordering::Less)
    }

    /// The version as a number, if it is one: only these have an order.
    pub(crate) fn number(&self) -> Option<u128> {
        match self.0 {
            Repr::Number(number) => Some(number),
            Repr::Opaque(_) => None,
        }
    }

    /// The version as a number for a gauge; 0 if it is not a number.
    pub(crate) fn as_gauge(&self) -> u64 {
        match self.0 {
            Repr::Number(number) => u64::try_from(number).unwrap_or(u64::MAX),
            Repr::Opaque(_) => 0,
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> ResourceVersion {
        // Only the canonical spelling is a number: it must print as it was read.
        let canonical = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if canonical => ResourceVersion(Repr::Number(number)),
            _ => ResourceVersion(Repr::Opaque(text.into())),
        }
    }
}

impl FromStr for ResourceVersion {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ResourceVersion, Infallible> {
        Ok(text.into())
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &ResourceVersion) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Repr::Number(a), Repr::Number(b)) => Some(a.cmp(b)),
            (a, b) => (a == b).then_some(Ordering::Equal),
        }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => number.fmt(f),
            Repr::Opaque(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As the text that servers send.
impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ResourceVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ResourceVersion, D::Error> {
        String::deserialize(deserializer).map(|text| text.as_str().into())
    }
}
