//! How we know our own networks again.
//!
//! Names are not unique in Neutron, and a client cannot choose ids. But a description can be set in the very
//! request that creates a network, and lists can be filtered by it. So whatever happens between Neutron's
//! commit and ours (a crash, an answer that is lost), the next look finds the network by its description, and
//! nobody makes a second one.

use setpoint::ObjectKey;
use setpoint::names::stable_hash;

const PREFIX: &str = "samplecrd.k8s.io/network=";
/// Neutron takes no more of a description.
const LONGEST: usize = 255;

/// The description of what belongs to the Network of this key, in this cluster.
pub(crate) fn marker(cluster: &str, key: &ObjectKey) -> String {
    let whole = format!("{PREFIX}{cluster}/{key}");
    if whole.len() <= LONGEST {
        return whole;
    }
    // Still the same for the same key; only the sweep cannot read it back.
    format!("{PREFIX}{cluster}#{}", stable_hash(&[&key.to_string()]))
}

/// Whether a description is the marker of some Network.
pub(crate) fn is_marker(description: &str) -> bool {
    description.starts_with(PREFIX)
}

/// The key that a description of this cluster stands for.
pub(crate) fn key_of(cluster: &str, description: &str) -> Option<ObjectKey> {
    let key = description.strip_prefix(PREFIX)?.strip_prefix(cluster)?.strip_prefix('/')?;
    let is_whole = key.split('/').count() == 2 && !key.starts_with('/') && !key.ends_with('/');
    is_whole.then(|| ObjectKey::from(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_says_whose_a_network_is() {
        let key = ObjectKey::namespaced("default", "example");
        let text = marker("prod", &key);
        assert_eq!(text, "samplecrd.k8s.io/network=prod/default/example");
        assert_eq!(key_of("prod", &text), Some(key));
        assert_eq!(key_of("test", &text), None);
        assert_eq!(key_of("prod", "made by hand"), None);
        assert!(is_marker(&text) && !is_marker("made by hand"));
    }

    #[test]
    fn the_longest_name_fits_and_stays_unique() {
        let key = |last: &str| ObjectKey::namespaced(&"n".repeat(63), &format!("{}{last}", "x".repeat(252)));
        let (a, b) = (marker("prod", &key("a")), marker("prod", &key("b")));
        assert!(a.len() <= LONGEST && a != b && a == marker("prod", &key("a")));
        assert_eq!(key_of("prod", &a), None);
    }
}
