//! Every code family against what it promises: exhaustively over erasure patterns for small sizes,
//! by random patterns for large ones.

use gabion_codec::{Code, CodeError, Matrix};
use proptest::prelude::*;

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
    check_equations(code, chunks, available, wanted, &equations);
}

fn check_equations(
    code: &Code,
    chunks: &[Vec<u8>],
    available: &[usize],
    wanted: &[usize],
    equations: &gabion_codec::Equations,
) {
    assert_eq!(equations.outputs, wanted, "{code}");
    assert!(
        equations
            .helpers
            .iter()
            .all(|helper| available.contains(helper)),
        "{code}"
    );
    assert!(equations.helpers.len() <= code.k(), "{code}");
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

#[test]
fn any_m_losses_of_an_mds_code_are_recovered() {
    let codes = [
        "rs(1,1)",
        "rs(1,3)",
        "rs(2,2)",
        "rs(4,2)",
        "rs(6,3)",
        "rs(5,4)",
        "cauchy(1,1)",
        "cauchy(4,2)",
        "cauchy(6,3)",
        "cauchy(3,5)",
        "rdp(1)",
        "rdp(2)",
        "rdp(3)",
        "rdp(4)",
        "rdp(5)",
        "rdp(6)",
        "rdp(9)",
        "evenodd(1)",
        "evenodd(2)",
        "evenodd(3)",
        "evenodd(4)",
        "evenodd(5)",
        "evenodd(6)",
        "evenodd(8)",
        "rep(2)",
        "rep(5)",
    ];
    for text in codes {
        let code = code(text);
        let chunks = stripe(&code, 7, 1);
        assert_eq!(code.failures_survived(), code.m(), "{code}");
        for lost_count in 0..=code.m() {
            for lost in subsets(code.n(), lost_count) {
                let available = all_but(code.n(), &lost);
                assert!(code.is_sufficient(&available), "{code} without {lost:?}");
                check_rebuild(&code, &chunks, &available, &lost);
            }
        }
        for lost in subsets(code.n(), code.m() + 1) {
            let available = all_but(code.n(), &lost);
            assert!(!code.is_sufficient(&available), "{code} without {lost:?}");
            let data_lost: Vec<usize> = lost.into_iter().filter(|&c| c < code.k()).collect();
            if !data_lost.is_empty() {
                let refused = code.decode(&available, &data_lost);
                assert!(
                    matches!(refused, Err(CodeError::NotSufficient { .. })),
                    "{code}"
                );
            }
        }
    }
}

/// Losses that no coefficients could undo: more of the data of some groups than their own parities
/// and the global ones together have rows for.
fn lost_to_information_theory(lost: &[usize], k: usize, l: usize, g: usize) -> bool {
    assert_eq!(k % l, 0, "the test uses equal groups");
    let global_lost = lost.iter().filter(|&&chunk| chunk >= k + l).count();
    let beyond_local: usize = (0..l)
        .map(|group| {
            let in_group = |&&chunk: &&usize| chunk / (k / l) == group && chunk < k;
            let data = lost.iter().filter(in_group).count();
            let local_alive = usize::from(!lost.contains(&(k + group)));
            data.saturating_sub(local_alive)
        })
        .sum();
    beyond_local + global_lost > g
}

#[test]
fn an_lrc_recovers_any_g_plus_1_losses() {
    for (k, l, g) in [
        (4, 2, 1),
        (6, 2, 2),
        (6, 3, 3),
        (12, 2, 2),
        (7, 3, 2),
        (5, 2, 0),
        (8, 2, 4),
    ] {
        let code = Code::lrc(k, l, g).unwrap();
        let chunks = stripe(&code, 5, 2);
        for lost_count in 1..=g + 1 {
            for lost in subsets(code.n(), lost_count) {
                let available = all_but(code.n(), &lost);
                assert!(code.is_sufficient(&available), "{code} without {lost:?}");
                check_rebuild(&code, &chunks, &available, &lost);
            }
        }
        assert!(code.failures_survived() > g, "{code}");
    }
}

#[test]
fn an_lrc_with_two_globals_recovers_whatever_any_coefficients_could() {
    for (k, l, g) in [(12, 2, 2), (9, 3, 2), (8, 4, 2), (6, 2, 1), (6, 3, 1)] {
        let code = Code::lrc(k, l, g).unwrap();
        for lost_count in 0..=l + g {
            for lost in subsets(code.n(), lost_count) {
                let recoverable = !lost_to_information_theory(&lost, k, l, g);
                let available = all_but(code.n(), &lost);
                assert_eq!(
                    code.is_sufficient(&available),
                    recoverable,
                    "{code} loses {lost:?}"
                );
            }
        }
    }
}

#[test]
fn failures_survived_is_the_code_distance_less_one() {
    let codes = [
        "lrc(4,2,1)",
        "lrc(12,2,2)",
        "lrc(4,2,2)",
        "lrc(4,2,3)",
        "lrc(3,3,1)",
        "lrc(5,5,2)",
    ];
    for text in codes {
        let code = code(text);
        let survived = (1..=code.m())
            .take_while(|&lost_count| {
                let mut patterns = subsets(code.n(), lost_count).into_iter();
                patterns.all(|lost| code.is_sufficient(&all_but(code.n(), &lost)))
            })
            .count();
        assert_eq!(code.failures_survived(), survived, "{code}");
    }
}

#[test]
fn an_lrc_repairs_within_the_group_and_offers_a_global_repair_after() {
    let code = code("lrc(12,2,2)");
    let chunks = stripe(&code, 9, 3);
    for lost in 0..code.n() {
        let available = all_but(code.n(), &[lost]);
        let candidates = code.repair_equations(lost, &available).unwrap();
        let counts: Vec<usize> = candidates.iter().map(|c| c.helpers.len()).collect();
        let expected: &[usize] = match lost {
            0..12 => &[6, 12],
            12..14 => &[6],
            _ => &[12],
        };
        assert_eq!(counts, expected, "chunk {lost}");
        for candidate in &candidates {
            check_equations(&code, &chunks, &available, &[lost], candidate);
        }
    }
    let two_groups = code.decode(&all_but(16, &[0, 6]), &[0, 6]).unwrap();
    assert_eq!(two_groups.helpers, [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]);
}

#[test]
fn reed_solomon_uses_the_first_k_in_the_order_of_preference() {
    let code = code("rs(4,3)");
    let chunks = stripe(&code, 33, 4);
    for preference in [[6, 5, 4, 3, 2, 1], [2, 6, 1, 5, 3, 4], [1, 2, 3, 4, 5, 6]] {
        let candidates = code.repair_equations(0, &preference).unwrap();
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0].helpers, preference[..4]);
        check_equations(&code, &chunks, &preference, &[0], &candidates[0]);
        assert_eq!(code.decode(&preference, &[0]).unwrap(), candidates[0]);
    }
}

#[test]
fn array_codes_and_replication_offer_their_alternatives() {
    for text in ["rdp(4)", "evenodd(5)"] {
        let code = code(text);
        let k = code.k();
        let chunks = stripe(&code, 8, 5);
        let available = all_but(code.n(), &[1]);
        let candidates = code.repair_equations(1, &available).unwrap();
        assert_eq!(
            candidates.len(),
            2,
            "{code}: by the row parity, by the diagonal parity"
        );
        assert!(candidates[0].helpers.contains(&k) && candidates[1].helpers.contains(&(k + 1)));
        for candidate in &candidates {
            check_equations(&code, &chunks, &available, &[1], candidate);
        }
    }
    let candidates = code("rep(4)").repair_equations(1, &[3, 0, 2]).unwrap();
    let helpers: Vec<usize> = candidates.iter().flat_map(|c| c.helpers.clone()).collect();
    assert_eq!(helpers, [3, 0, 2]);
}

#[test]
fn an_available_chunk_is_its_own_helper_and_idle_helpers_are_left_out() {
    let code = code("rs(6,3)");
    let equations = code.decode(&[1, 2, 3, 4, 5, 6, 7, 8], &[8, 3]).unwrap();
    assert_eq!(equations.helpers, [3, 8]);
    assert_eq!(equations.coefficient(0, 0, 1, 0), 1);
    assert_eq!(equations.coefficient(0, 0, 0, 0), 0);
    let nothing = code.decode(&[], &[]).unwrap();
    assert!(nothing.helpers.is_empty() && nothing.outputs.is_empty());
}

#[test]
fn equations_name_the_sub_chunks_they_read() {
    let code = code("rdp(4)");
    let row_repair = code.decode(&all_but(6, &[0]), &[0]).unwrap();
    for position in 0..row_repair.helpers.len() {
        assert_eq!(row_repair.reads(position), [0, 1, 2, 3]);
    }
    let diagonal = code.decode(&[0, 1, 2, 3], &[5]).unwrap();
    let unread: Vec<usize> = (0..4)
        .map(|position| 4 - diagonal.reads(position).len())
        .collect();
    for (position, &unread) in unread.iter().enumerate() {
        let used = (0..4)
            .filter(|&row| (0..4).any(|out| diagonal.coefficient(0, out, position, row) != 0))
            .count();
        assert_eq!(4 - used, unread);
    }
}

#[test]
fn insufficient_sets_say_what_is_missing() {
    let refusal = |code: &Code, available: &[usize], wanted: &[usize]| {
        code.decode(available, wanted).unwrap_err().to_string()
    };
    let rs = code("rs(4,2)");
    assert_eq!(
        refusal(&rs, &[1, 2, 5], &[0, 3]),
        "chunks 0, 3 cannot be rebuilt from chunks 1, 2, 5: at least 1 more of chunks 0, 3, 4 are \
         needed"
    );
    assert_eq!(
        refusal(&rs, &[], &[0]),
        "chunk 0 cannot be rebuilt from no chunk: at least 1 more of chunks 0, 1, 2, 3, 4, 5 are \
         needed"
    );
    let lrc = code("lrc(4,2,1)");
    let error = lrc.decode(&[2, 3, 4, 5], &[0, 1]).unwrap_err();
    assert_eq!(
        error,
        CodeError::NotSufficient {
            wanted: vec![0, 1],
            available: vec![2, 3, 4, 5],
            missing: vec![0, 1, 6],
            missing_count: 1,
        }
    );
    let partly = lrc
        .decode(&[0, 1, 2, 3], &[4, 6])
        .map(|equations| equations.helpers);
    assert_eq!(partly, Ok(vec![0, 1, 2, 3]));
    assert_eq!(
        rs.decode(&[6], &[0]),
        Err(CodeError::NoSuchChunk { chunk: 6, n: 6 })
    );
    assert_eq!(
        rs.repair_equations(9, &[0]).unwrap_err().to_string(),
        "there is no chunk 9: this code's chunks are numbered 0 to 5"
    );
}

#[test]
fn chunks_that_do_not_fit_are_refused() {
    let code = code("rdp(4)");
    let mut parities = [[0; 8], [0; 8]];
    let [p, q] = &mut parities;
    let data: [&[u8]; 4] = [&[1; 8]; 4];
    let count = code.encode(&data[..3], &mut [p, q]);
    assert_eq!(
        count,
        Err(CodeError::ChunkCount {
            role: "data",
            needed: 4,
            given: 3
        })
    );
    let count = code.encode(&data, &mut [p]);
    assert_eq!(
        count,
        Err(CodeError::ChunkCount {
            role: "parity",
            needed: 2,
            given: 1
        })
    );
    let unequal = code.encode(&[&[1; 8], &[1; 8], &[1; 4], &[1; 8]], &mut [p, q]);
    assert_eq!(
        unequal,
        Err(CodeError::UnequalLengths { first: 8, other: 4 })
    );
    let short: [&[u8]; 4] = [&[1; 6]; 4];
    let misaligned = code.encode(&short, &mut [&mut p[..6], &mut q[..6]]);
    assert_eq!(
        misaligned,
        Err(CodeError::Misaligned {
            length: 6,
            alignment: 4
        })
    );
    let empty: [&[u8]; 4] = [&[]; 4];
    code.encode(&empty, &mut [&mut [], &mut []]).unwrap();

    let equations = code.decode(&[1, 2, 3, 4], &[0]).unwrap();
    let count = equations.apply(&data[..3], &mut [p]);
    assert_eq!(
        count,
        Err(CodeError::ChunkCount {
            role: "helper",
            needed: 4,
            given: 3
        })
    );
    let count = equations.apply(&data, &mut []);
    assert_eq!(
        count,
        Err(CodeError::ChunkCount {
            role: "output",
            needed: 1,
            given: 0
        })
    );
}

#[test]
fn generators_are_systematic_and_coefficients_are_theirs() {
    for text in [
        "rs(6,3)",
        "cauchy(3,2)",
        "rdp(5)",
        "evenodd(4)",
        "lrc(7,3,2)",
        "rep(3)",
    ] {
        let code = code(text);
        let w = code.sub_chunks();
        let width = code.k() * w;
        assert_eq!(code.chunk_alignment(), w);
        assert_eq!(code.generator().row_count(), code.n() * w);
        let upper: Vec<usize> = (0..width).collect();
        assert_eq!(
            code.generator().select_rows(&upper),
            Matrix::identity(width),
            "{code}"
        );
        for chunk in 0..code.n() {
            for (row, data_row) in (0..w).flat_map(|row| (0..w).map(move |other| (row, other))) {
                for data_chunk in 0..code.k() {
                    assert_eq!(
                        code.coefficient(chunk, row, data_chunk, data_row),
                        code.generator()
                            .get(chunk * w + row, data_chunk * w + data_row)
                    );
                }
            }
        }
    }
}

#[test]
fn the_widest_codes_survive_losses_of_m_chunks() {
    for (k, m) in [
        (254, 1),
        (251, 4),
        (240, 15),
        (200, 55),
        (128, 127),
        (1, 254),
    ] {
        for code in [
            Code::reed_solomon(k, m).unwrap(),
            Code::cauchy(k, m).unwrap(),
        ] {
            assert_eq!(code.n(), 255);
            let chunks = stripe(&code, 3, 6);
            for seed in 0..2 {
                let mut order: Vec<(u8, usize)> =
                    bytes(255, 77 + seed).into_iter().zip(0..255).collect();
                order.sort_unstable();
                let lost: Vec<usize> = order[..m].iter().map(|&(_, chunk)| chunk).collect();
                let available = all_but(255, &lost);
                check_rebuild(&code, &chunks, &available, &lost);
                assert!(!code.is_sufficient(&available[1..]), "{code}");
            }
        }
    }
}

/// A code of moderate size of any family.
fn any_code() -> impl Strategy<Value = Code> {
    prop_oneof![
        (1usize..20, 1usize..8).prop_map(|(k, m)| Code::reed_solomon(k, m)),
        (1usize..20, 1usize..8).prop_map(|(k, m)| Code::cauchy(k, m)),
        (1usize..12).prop_map(Code::rdp),
        (1usize..12).prop_map(Code::evenodd),
        (1usize..16, 1usize..5, 0usize..5).prop_map(|(k, l, g)| Code::lrc(k, l.min(k), g)),
        (2usize..8).prop_map(Code::replication),
    ]
    .prop_map(Result::unwrap)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A change of one data sub-chunk, carried to the parities by its delta, is what encoding the
    /// changed data anew would have given.
    #[test]
    fn delta_rows_agree_with_encoding_anew(
        code in any_code(), place in any::<prop::sample::Index>(), region in 1usize..40, seed: u64,
    ) {
        let w = code.sub_chunks();
        let place = place.index(code.k() * w);
        let (data_chunk, data_row) = (place / w, place % w);
        let mut chunks = stripe(&code, region, seed);
        let delta = bytes(region, seed ^ 99);
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

    /// Whatever set is available in whatever order: either the equations rebuild what is wanted, or
    /// the set is insufficient and the refusal says so.
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
            Ok(equations) => check_equations(&code, &content, available, lost, &equations),
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
    }
}
