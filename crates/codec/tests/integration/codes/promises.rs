//! The guarantees of each family: exhaustively over erasure patterns for small sizes, by random
//! patterns for the widest codes.

use gabion_codec::{Code, CodeError, Matrix};

use crate::codes::{all_but, bytes, check_rebuild, code, stripe, subsets};

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
        "polynomial(6,3)",
        "polynomial(3,5)",
        "powers(1,3)",
        "powers(6,1)",
        "powers(7,2)",
        "powers(9,3)",
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
        "rotated(1,2,2)",
        "rotated(4,2,2)",
        "rotated(6,3,4)",
        "rotated(5,2,8)",
        "rotated(4,4,4)",
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

/// Losses that no coefficients can recover: in some groups, more lost data than rows of their own
/// parities and the global ones together.
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
fn an_lrc_with_two_globals_recovers_every_recoverable_pattern() {
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
fn generators_are_systematic_and_coefficients_are_theirs() {
    for text in [
        "rs(6,3)",
        "cauchy(3,2)",
        "rdp(5)",
        "evenodd(4)",
        "lrc(7,3,2)",
        "rotated(3,2,4)",
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
