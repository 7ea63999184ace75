//! Names of children that follow from their owner's: the same ones after every crash, so that a create that is
//! repeated makes no second child.

/// The longest name that is also a legal label value, host name and name of a Service.
const LONGEST: usize = 63;
/// How many characters of a hash a name ends with.
const HASH: usize = 10;
/// Letters and digits that form no words, as Kubernetes uses them in names that it makes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The name of a child: its owner's and a suffix, joined by `-`. Always the same for the same two, different
/// for different ones, and 63 characters at most.
///
/// It can be read if it fits and the suffix has no `-` of its own; otherwise it ends with a hash of both.
///
/// ```
/// use setpoint::names::child_name;
///
/// assert_eq!(child_name("web", "config"), "web-config");
/// let long = "a".repeat(80);
/// let name = child_name(&long, "config");
/// assert_eq!(name.len(), 63);
/// assert_eq!(name, child_name(&long, "config"));
/// assert_ne!(name, child_name(&long, "secret"));
/// ```
pub fn child_name(owner: &str, suffix: &str) -> String {
    let joined = format!("{owner}-{suffix}");
    // With a `-` in the suffix, "a" + "b-c" and "a-b" + "c" would be the same name.
    let is_clear = !suffix.is_empty() && !suffix.contains('-') && !is_hash(suffix);
    if joined.len() <= LONGEST && is_clear {
        return joined;
    }
    let end = joined.floor_char_boundary(LONGEST - HASH - 1);
    let start = joined[..end].trim_end_matches(['-', '.']);
    format!("{start}-{}", stable_hash(&[owner, suffix]))
}

fn is_hash(text: &str) -> bool {
    text.len() == HASH && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

/// Ten characters that stand for some texts, legal in names and label values. They are the same in every
/// program and in every later version of this crate, for example for the hash of a template.
#[doc(alias = "ComputeHash")]
pub fn stable_hash(parts: &[&str]) -> String {
    let mut hash = fnv(parts);
    let digits = std::iter::repeat_with(|| {
        let digit = ALPHABET[(hash % ALPHABET.len() as u64) as usize];
        hash /= ALPHABET.len() as u64;
        char::from(digit)
    });
    digits.take(HASH).collect()
}

/// FNV-1a over the parts, each ended by a byte that is in no text. The bits are mixed once more, so that the
/// low ones, which make the digits, depend on all of them.
fn fnv(parts: &[&str]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn short_names_can_be_read() {
        assert_eq!(child_name("web", "config"), "web-config");
        assert_eq!(child_name("my-web", "0"), "my-web-0");
    }

    #[test]
    fn different_owners_and_suffixes_give_different_names() {
        let texts = ["a", "b", "a-b", "b-c", "c", "", "-", "bcdfghjklm", "a-bcdfghjklm"];
        let pairs: Vec<_> = texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))).collect();
        let names: BTreeSet<_> = pairs.iter().map(|(owner, suffix)| child_name(owner, suffix)).collect();
        assert_eq!(names.len(), pairs.len());
    }

    #[test]
    fn long_names_keep_their_beginning_and_end_in_a_hash() {
        let long = format!("{}-{}", "a".repeat(51), "b".repeat(60));
        let name = child_name(&long, "x");
        assert!(name.starts_with(&"a".repeat(51)) && name.len() <= LONGEST, "{name}");
        assert!(!name.contains("--"), "{name}");
    }

    /// They are in names on servers: whatever changes here makes second children.
    #[test]
    fn hashes_never_change() {
        assert_eq!(stable_hash(&[]), "6dbkpdwtnx");
        assert_eq!(stable_hash(&["web", "config"]), "mxwz5lg4pv");
    }

    #[test]
    fn ten_thousand_parts_have_ten_thousand_hashes() {
        let hashes: BTreeSet<_> = (0..10_000).map(|n| stable_hash(&[&n.to_string()])).collect();
        assert_eq!(hashes.len(), 10_000);
    }
}
