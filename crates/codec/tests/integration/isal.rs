//! Byte equality with ISA-L for the same matrices, on every back end.

#[path = "oracle/isal.rs"]
mod oracle;

use gabion_codec::kernel::{Backend, Coefficients};
use gabion_codec::{Code, gf};
use oracle::{Encoder, Isal};

/// Deterministic bytes, without a pattern that a wrong kernel could preserve.
fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (seed * 37) as u8)
        .collect()
}

#[test]
fn the_field_is_isal_s() {
    let Some(isal) = Isal::load() else { return };
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(gf::multiply(a, b), isal.multiply(a, b), "{a} * {b}");
        }
    }
}

#[test]
fn the_cauchy_matrix_is_isal_s() {
    let Some(isal) = Isal::load() else { return };
    for (k, m) in [(1, 1), (6, 3), (10, 4), (12, 4), (200, 55)] {
        let code = Code::cauchy(k, m).unwrap();
        assert_eq!(
            code.generator().elements(),
            isal.cauchy_matrix(k + m, k),
            "{code}"
        );
    }
}

#[test]
fn parities_are_isal_s_byte_for_byte() {
    let Some(isal) = Isal::load() else { return };
    let codes = [
        "rs(6,3)",
        "rs(10,4)",
        "rs(12,4)",
        "rs(3,1)",
        "rs(5,2)",
        "rs(20,5)",
        "rs(17,6)",
        "rs(9,7)",
        "rs(4,13)",
        "cauchy(12,4)",
        "lrc(12,2,2)",
        "rep(3)",
    ];
    for text in codes {
        let code: Code = text.parse().unwrap();
        let (k, m) = (code.k(), code.m());
        let elements = &code.generator().elements()[k * k..];
        let mut tables = isal.tables(Encoder::Chosen, m, k, elements);
        let prepared = Coefficients::new(m, k, elements);
        for length in [64, 1000, 4096, 65_536 + 17] {
            let data: Vec<Vec<u8>> = (0..k).map(|chunk| bytes(length, chunk)).collect();
            let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut expected = vec![vec![0; length]; m];
            let mut outputs: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
            isal.encode(&mut tables, &sources, &mut outputs);
            let mut parities = vec![vec![0xEE; length]; m];
            let mut outputs: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
            code.encode(&sources, &mut outputs).unwrap();
            assert_eq!(parities, expected, "{code}, {length} bytes");
            for backend in Backend::available() {
                let mut parities = vec![vec![0xEE; length]; m];
                let mut outputs: Vec<&mut [u8]> =
                    parities.iter_mut().map(Vec::as_mut_slice).collect();
                prepared
                    .with_backend(backend)
                    .combine(&sources, &mut outputs);
                assert_eq!(parities, expected, "{code}, {length} bytes, {backend}");

                let mut updated = expected.clone();
                let mut outputs: Vec<&mut [u8]> =
                    updated.iter_mut().map(Vec::as_mut_slice).collect();
                let delta = bytes(length, 91);
                isal.update(&mut tables, k - 1, &delta, &mut outputs);
                let mut outputs: Vec<&mut [u8]> =
                    parities.iter_mut().map(Vec::as_mut_slice).collect();
                prepared
                    .with_backend(backend)
                    .update(k - 1, &delta, &mut outputs);
                assert_eq!(
                    parities, updated,
                    "{code} update, {length} bytes, {backend}"
                );
            }
        }
    }
}
