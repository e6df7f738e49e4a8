//! The helpers of equations, their order, and the error if there are too few.

use gabion_codec::{Code, CodeError, Equations};

use crate::codes::{all_but, check_equations, code, stripe};

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

/// Sub-chunks that equations read.
fn read_count(equations: &Equations) -> usize {
    let helpers = 0..equations.helpers.len();
    helpers.map(|helper| equations.reads(helper).len()).sum()
}

#[test]
fn a_rotated_code_repairs_data_from_fewer_bytes_than_k_chunks_have() {
    // `ECPipe`, section 6.1, counts nine chunks for (16,12). Two parities whose rows overlap in
    // half of the data read 7.5: of 11 other data chunks 5.5 at least twice, and of 2 parities a
    // half each.
    for (text, data_reads) in [
        ("rotated(12,4,2)", [15; 12].as_slice()),
        ("rotated(12,4,4)", &[30; 12]),
        ("rotated(6,3,4)", &[16; 6]),
        ("rotated(6,2,2)", &[9; 6]),
        ("rotated(10,4,4)", &[24, 24, 26, 26, 26, 24, 24, 26, 26, 26]),
    ] {
        let code = code(text);
        let chunks = stripe(&code, 3, 8);
        for lost in 0..code.n() {
            let available = all_but(code.n(), &[lost]);
            let candidates = code.repair_equations(lost, &available).unwrap();
            let whole_count = code.k() * code.sub_chunks();
            let expected = data_reads.get(lost).copied().unwrap_or(whole_count);
            assert_eq!(read_count(&candidates[0]), expected, "{code}: chunk {lost}");
            for candidate in &candidates {
                check_equations(&code, &chunks, &available, &[lost], candidate);
            }
            assert_eq!(candidates.last().unwrap().helpers.len(), code.k());
        }
    }
}

#[test]
fn a_rotated_code_with_more_losses_is_decoded_from_k_chunks() {
    let code = code("rotated(6,3,2)");
    let chunks = stripe(&code, 3, 9);
    let available = all_but(code.n(), &[0, 4]);
    let candidates = code.repair_equations(0, &available).unwrap();
    assert_eq!(candidates.len(), 1);
    assert_eq!(candidates[0].helpers.len(), 6);
    check_equations(&code, &chunks, &available, &[0], &candidates[0]);
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
fn insufficient_sets_report_the_missing_chunks() {
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
