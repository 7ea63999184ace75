//! Short hashes for names, as Kubernetes makes them.

/// Characters that form no words, as Kubernetes uses them in names that it makes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const START: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// The FNV-1a hash of some bytes, in 32 bits.
pub(crate) fn fnv_1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(START, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}

/// The FNV-1 hash of some bytes, in 32 bits.
pub(crate) fn fnv_1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(START, |hash, byte| hash.wrapping_mul(PRIME) ^ u32::from(*byte))
}

/// A hash as a part of a name.
pub(crate) fn word(hash: u32) -> String {
    let letter = |digit: u8| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]);
    hash.to_string().bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_everybody_else() {
        assert_eq!((fnv_1(b"foobar"), fnv_1a(b"foobar")), (0x31f0_b262, 0xbf9c_f968));
        assert!(word(1_234_567_890).bytes().all(|letter| ALPHABET.contains(&letter)));
    }
}
