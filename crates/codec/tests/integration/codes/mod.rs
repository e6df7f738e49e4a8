//! Codes through their public interface: each family's guarantees, the derived equations, and
//! random codes under random losses.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod equations;
mod promises;
mod random;

use gabion_codec::{Code, Equations};

fn code(text: &str) -> Code {
    text.parse().unwrap()
}

/// Arbitrary bytes from a seed.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A stripe of arbitrary data with its parities: all n chunks.
fn stripe(code: &Code, region_bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let length = region_bytes * code.chunk_alignment();
    let mut chunks: Vec<Vec<u8>> = (0..code.k())
        .map(|chunk| bytes(length, seed ^ (chunk as u64) << 32))
        .collect();
    let mut parities = vec![vec![0xEE; length]; code.m()];
    let data: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode(&data, &mut outputs).unwrap();
    chunks.extend(parities);
    chunks
}

/// All sets of `size` numbers below `count`.
fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut sets = Vec::new();
    for last in size - 1..count {
        for mut set in subsets(last, size - 1) {
            set.push(last);
            sets.push(set);
        }
    }
    sets
}

fn all_but(n: usize, lost: &[usize]) -> Vec<usize> {
    (0..n).filter(|chunk| !lost.contains(chunk)).collect()
}

/// Rebuilds `wanted` from `available` and compares with the stripe.
fn check_rebuild(code: &Code, chunks: &[Vec<u8>], available: &[usize], wanted: &[usize]) {
    let equations = code.decode(available, wanted).unwrap();
    assert!(equations.helpers.len() <= code.k(), "{code}");
    check_equations(code, chunks, available, wanted, &equations);
}

fn check_equations(
    code: &Code,
    chunks: &[Vec<u8>],
    available: &[usize],
    wanted: &[usize],
    equations: &Equations,
) {
    assert_eq!(equations.outputs, wanted, "{code}");
    assert!(
        equations
            .helpers
            .iter()
            .all(|helper| available.contains(helper)),
        "{code}"
    );
    let helpers: Vec<&[u8]> = equations
        .helpers
        .iter()
        .map(|&helper| chunks[helper].as_slice())
        .collect();
    let mut rebuilt = vec![vec![0x55; chunks[0].len()]; wanted.len()];
    let mut outputs: Vec<&mut [u8]> = rebuilt.iter_mut().map(Vec::as_mut_slice).collect();
    equations.apply(&helpers, &mut outputs).unwrap();
    for (chunk, rebuilt) in wanted.iter().zip(&rebuilt) {
        assert_eq!(
            rebuilt, &chunks[*chunk],
            "{code}: chunk {chunk} from {available:?}"
        );
    }
}
