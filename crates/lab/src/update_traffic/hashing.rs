//! A hash for keys of a few words that the lab makes itself: the counts look up some keys for every chunk that a trace
//! updates. Nothing defends against keys that are chosen to collide, so it is not for names from outside.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with this hash.
pub(super) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Folding>>;

/// Odd constants with bits in no pattern: the golden ratio, and the square root of 3.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xbb67_ae85_84ca_a73b;

/// Folds each word into the state by a product of twice the width, whose halves are added without carry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Folding(u64);

impl Hasher for Folding {
    /// One more round, so that high bits of the last word reach the low ones.
    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(MIX);
        mixed ^ (mixed >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ MIX) * u128::from(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    /// Maps take the lowest bits for the place and the highest for the tag: both must tell neighbours apart.
    #[test]
    fn neighbours_differ_in_low_and_high_bits() {
        let hash = |key: u64| BuildHasherDefault::<Folding>::default().hash_one(key);
        for step in [1, 1 << 12, 1 << 40] {
            let hashes: Vec<u64> = (0..1024).map(|at| hash(at * step)).collect();
            let low: BTreeSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
            let high: BTreeSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(low.len() > 700, "step {step}: {} low ends", low.len());
            assert!(high.len() > 100, "step {step}: {} high ends", high.len());
        }
    }
}
