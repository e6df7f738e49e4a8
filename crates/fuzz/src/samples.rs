//! Valid encodings of a type, found by decoding simple byte patterns: one for each variant of an enum at least.
//!
//! Decoding zeros yields a smallest value of nearly every type, so no sample has to be written by hand, and a new
//! variant has samples at once.

use crate::mutation::Dice;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest encoding that is tried.
const BYTES_MAX: usize = 2048;
/// More variants than any enum has.
const VARIANT_COUNT_MAX: u8 = 120;

/// Encodings of values of `T`, which begin with each variant's number.
pub(crate) fn samples<T: Serialize + DeserializeOwned>() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for variant in 0..VARIANT_COUNT_MAX {
        for pattern in 0..6_u64 {
            let mut bytes = vec![variant];
            let mut dice = Dice::new(pattern << 8 | u64::from(variant));
            bytes.resize_with(BYTES_MAX, || match pattern {
                0 => 0,
                1 => 1,
                // Small numbers, so that lists are short and enums have their variants.
                _ => dice.below(pattern as usize) as u8,
            });
            if let Ok((value, _)) = postcard::take_from_bytes::<T>(&bytes) {
                found.push(postcard::to_stdvec(&value).expect("a decoded value can be encoded"));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}
