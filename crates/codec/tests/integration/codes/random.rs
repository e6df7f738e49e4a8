//! Random codes: deltas agree with a new encoding, and any set of chunks either rebuilds or is
//! refused.

use gabion_codec::{Code, CodeError};
use proptest::prelude::*;

use crate::codes::{bytes, check_equations, stripe};

/// A code of moderate size of any family.
fn any_code() -> impl Strategy<Value = Code> {
    prop_oneof![
        (1usize..20, 1usize..8).prop_map(|(k, m)| Code::reed_solomon(k, m)),
        (1usize..20, 1usize..8).prop_map(|(k, m)| Code::cauchy(k, m)),
        (1usize..12).prop_map(Code::rdp),
        (1usize..12).prop_map(Code::evenodd),
        (1usize..16, 1usize..5, 0usize..5).prop_map(|(k, l, g)| Code::lrc(k, l.min(k), g)),
        (1usize..16, 1usize..8, 1u32..3).prop_map(|(k, m, r)| Code::rotated(k, m, 1 << r)),
        (2usize..8).prop_map(Code::replication),
    ]
    .prop_map(Result::unwrap)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A change of one data sub-chunk, applied to the parities as its delta, gives the same
    /// parities as encoding the changed data.
    #[test]
    fn delta_rows_agree_with_encoding_anew(
        code in any_code(), place in any::<prop::sample::Index>(), region in 1usize..40, seed: u64,
    ) {
        let w = code.sub_chunks();
        let place = place.index(code.k() * w);
        let (data_chunk, data_row) = (place / w, place % w);
        let mut chunks = stripe(&code, region, seed);
        let delta = bytes(region, !seed);
        let rows = |row: usize| row * region..(row + 1) * region;
        let changed = &mut chunks[data_chunk][rows(data_row)];
        gabion_codec::kernel::add_assign(changed, &delta);
        let targets = code.delta_rows(data_chunk, data_row);
        for target in &targets {
            prop_assert!(target.chunk >= code.k() && target.coefficient != 0);
            let parity = &mut chunks[target.chunk][rows(target.row)];
            gabion_codec::kernel::mul_add(target.coefficient, &delta, parity);
        }
        let data: Vec<&[u8]> = chunks[..code.k()].iter().map(Vec::as_slice).collect();
        let mut fresh = vec![vec![0; region * w]; code.m()];
        let mut outputs: Vec<&mut [u8]> = fresh.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(&data, &mut outputs).unwrap();
        prop_assert_eq!(&fresh[..], &chunks[code.k()..]);
    }

    /// For any available set in any order, either the equations rebuild the wanted chunks, or the
    /// set is insufficient and the error is correct.
    #[test]
    fn decoding_rebuilds_or_refuses(
        code in any_code(),
        order in Just(()).prop_perturb(|(), mut rng| rng.random::<u64>()),
        available_count in any::<prop::sample::Index>(),
        seed: u64,
    ) {
        let n = code.n();
        let mut shuffled: Vec<(u8, usize)> = bytes(n, order).into_iter().zip(0..n).collect();
        shuffled.sort_unstable();
        let chunks: Vec<usize> = shuffled.into_iter().map(|(_, chunk)| chunk).collect();
        let (available, lost) = chunks.split_at(available_count.index(n + 1));
        let content = stripe(&code, 3, seed);
        match code.decode(available, lost) {
            Ok(equations) => {
                prop_assert!(equations.helpers.len() <= code.k());
                check_equations(&code, &content, available, lost, &equations);
            }
            Err(CodeError::NotSufficient { wanted, missing, missing_count, .. }) => {
                prop_assert!(!code.is_sufficient(available));
                prop_assert!(!wanted.is_empty() && missing_count >= 1);
                prop_assert!(missing_count <= missing.len());
                for chunk in wanted {
                    prop_assert!(code.decode(available, &[chunk]).is_err());
                }
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
        if code.is_sufficient(available) {
            prop_assert!(code.decode(available, lost).is_ok());
        }
        for &chunk in lost.iter().take(1) {
            for candidate in code.repair_equations(chunk, available).unwrap_or_default() {
                check_equations(&code, &content, available, &[chunk], &candidate);
            }
        }
    }
}
