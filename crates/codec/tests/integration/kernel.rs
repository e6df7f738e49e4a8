//! Every back end against byte-by-byte arithmetic from the field's own product, over random
//! matrices, lengths and alignments.

use gabion_codec::gf;
use gabion_codec::kernel::{Backend, Coefficients};
use proptest::prelude::*;

/// A matrix, a length and alignments, from few numbers so that failures shrink well.
#[derive(Debug, Clone)]
struct Case {
    row_count: usize,
    column_count: usize,
    elements: Vec<u8>,
    length: usize,
    offset: usize,
    seed: u64,
}

/// Coefficients with zeros and ones common enough for every kind of band to appear.
fn element() -> impl Strategy<Value = u8> {
    prop_oneof![2 => any::<u8>(), 1 => Just(0), 1 => Just(1)]
}

fn elements(count: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), count),
        2 => proptest::collection::vec(element(), count),
        1 => proptest::collection::vec(0u8..2, count),
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0),
        Just(1),
        1usize..70,
        250usize..270,
        500usize..1300,
        60_000usize..60_300,
    ]
}

fn case() -> impl Strategy<Value = Case> {
    (1usize..15, 1usize..19, length(), 0usize..64, any::<u64>()).prop_flat_map(
        |(row_count, column_count, length, offset, seed)| {
            elements(row_count * column_count).prop_map(move |elements| Case {
                row_count,
                column_count,
                elements,
                length,
                offset,
                seed,
            })
        },
    )
}

/// Buffers of `length` arbitrary bytes, each beginning at another alignment, with guards around.
struct Buffers {
    storage: Vec<Vec<u8>>,
    offset: usize,
    length: usize,
}

const GUARD: u8 = 0xA5;

impl Buffers {
    fn arbitrary(count: usize, case: &Case, salt: u64) -> Self {
        let mut state = case.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut byte = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888);
            (state >> 33) as u8
        };
        let storage = (0..count)
            .map(|number| {
                let start = case.offset + number;
                let mut bytes = vec![GUARD; start + case.length + 64];
                bytes[start..start + case.length].fill_with(&mut byte);
                bytes
            })
            .collect();
        Self {
            storage,
            offset: case.offset,
            length: case.length,
        }
    }

    fn slices(&self) -> Vec<&[u8]> {
        let numbered = self.storage.iter().enumerate();
        numbered
            .map(|(number, bytes)| &bytes[self.offset + number..][..self.length])
            .collect()
    }

    fn slices_mut(&mut self) -> Vec<&mut [u8]> {
        let (offset, length) = (self.offset, self.length);
        let numbered = self.storage.iter_mut().enumerate();
        numbered
            .map(|(number, bytes)| &mut bytes[offset + number..][..length])
            .collect()
    }

    fn guards_hold(&self) -> bool {
        self.storage.iter().enumerate().all(|(number, bytes)| {
            let start = self.offset + number;
            bytes[..start]
                .iter()
                .chain(&bytes[start + self.length..])
                .all(|&byte| byte == GUARD)
        })
    }
}

/// The definition: `base + sum of coefficient * source`.
fn expected(case: &Case, sources: &[&[u8]], base: Option<&[u8]>, row: usize) -> Vec<u8> {
    (0..case.length)
        .map(|at| {
            let start = base.map_or(0, |base| base[at]);
            sources
                .iter()
                .enumerate()
                .fold(start, |sum, (column, source)| {
                    sum ^ gf::multiply(case.elements[row * case.column_count + column], source[at])
                })
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_back_end_combines_as_defined(case in case()) {
        let prepared = Coefficients::new(case.row_count, case.column_count, &case.elements);
        let sources = Buffers::arbitrary(case.column_count, &case, 1);
        let sources = sources.slices();
        let before = Buffers::arbitrary(case.row_count, &case, 2);
        for backend in Backend::available() {
            let prepared = prepared.with_backend(backend);
            for accumulate in [false, true] {
                let mut outputs = Buffers::arbitrary(case.row_count, &case, 2);
                if accumulate {
                    prepared.combine_add(&sources, &mut outputs.slices_mut());
                } else {
                    prepared.combine(&sources, &mut outputs.slices_mut());
                }
                for row in 0..case.row_count {
                    let base = accumulate.then(|| before.slices()[row]);
                    prop_assert!(
                        outputs.slices()[row] == expected(&case, &sources, base, row),
                        "{} row {} accumulate {}", backend, row, accumulate
                    );
                }
                prop_assert!(outputs.guards_hold(), "{} wrote outside its outputs", backend);
            }
        }
    }

    #[test]
    fn updating_by_each_source_in_turn_is_combining(case in case()) {
        let prepared = Coefficients::new(case.row_count, case.column_count, &case.elements);
        let sources = Buffers::arbitrary(case.column_count, &case, 1);
        let sources = sources.slices();
        for backend in Backend::available() {
            let prepared = prepared.with_backend(backend);
            let mut outputs = Buffers::arbitrary(case.row_count, &case, 3);
            outputs.slices_mut().iter_mut().for_each(|output| output.fill(0));
            for (column, source) in sources.iter().enumerate() {
                prepared.update(column, source, &mut outputs.slices_mut());
            }
            for row in 0..case.row_count {
                prop_assert!(
                    outputs.slices()[row] == expected(&case, &sources, None, row),
                    "{} row {}", backend, row
                );
            }
            prop_assert!(outputs.guards_hold(), "{} wrote outside its outputs", backend);
        }
    }

    #[test]
    fn single_coefficients_multiply_and_add(case in case(), coefficient in element()) {
        let sources = Buffers::arbitrary(1, &case, 1);
        let source = sources.slices()[0];
        let before = Buffers::arbitrary(1, &case, 2);
        let single = Case { row_count: 1, column_count: 1, elements: vec![coefficient], ..case };
        for backend in Backend::available() {
            let mut output = Buffers::arbitrary(1, &single, 2);
            backend.mul_add(coefficient, source, output.slices_mut()[0]);
            let sum = expected(&single, &[source], Some(before.slices()[0]), 0);
            prop_assert!(output.slices()[0] == sum, "{} mul_add {}", backend, coefficient);
            prop_assert!(output.guards_hold(), "{} mul_add", backend);

            backend.mul_slice(coefficient, source, output.slices_mut()[0]);
            let product = expected(&single, &[source], None, 0);
            prop_assert!(output.slices()[0] == product, "{} mul_slice {}", backend, coefficient);

            backend.add_assign(output.slices_mut()[0], source);
            let plus_one = Case { elements: vec![coefficient ^ 1], ..single.clone() };
            let sum = expected(&plus_one, &[source], None, 0);
            prop_assert!(output.slices()[0] == sum, "{} add_assign", backend);
            prop_assert!(output.guards_hold(), "{} add_assign", backend);
        }
    }
}

#[test]
fn every_product_is_right_on_every_back_end() {
    let source: Vec<u8> = (0..=255).collect();
    for backend in Backend::available() {
        for coefficient in 0..=255 {
            let mut output = vec![0; 256];
            backend.mul_slice(coefficient, &source, &mut output);
            let expected: Vec<u8> = source
                .iter()
                .map(|&byte| gf::multiply(coefficient, byte))
                .collect();
            assert_eq!(output, expected, "{backend} times {coefficient}");
        }
    }
}

#[test]
fn the_fastest_back_end_is_chosen_and_the_scalar_one_is_always_there() {
    let available = Backend::available();
    assert_eq!(available.first(), Some(&Backend::Scalar));
    assert_eq!(available.last(), Some(&Backend::detect()));
}

#[test]
fn a_sum_of_no_sources_is_zero() {
    let mut output = [7; 100];
    let nothing = Coefficients::new(1, 0, &[]);
    nothing.combine_add(&[], &mut [&mut output]);
    assert_eq!(output, [7; 100]);
    nothing.combine(&[], &mut [&mut output]);
    assert_eq!(output, [0; 100]);
}

#[test]
#[should_panic(expected = "sources of one length")]
fn sources_of_different_lengths_are_refused() {
    let mut output = [0; 8];
    Coefficients::new(1, 2, &[2, 3]).combine(&[&[0; 8], &[0; 7]], &mut [&mut output]);
}

#[test]
#[should_panic(expected = "outputs of one length")]
fn an_output_that_is_too_short_is_refused() {
    let mut output = [0; 7];
    Coefficients::new(1, 1, &[2]).combine(&[&[0; 8]], &mut [&mut output]);
}

#[test]
#[should_panic(expected = "of one length")]
fn a_single_source_that_is_too_short_is_refused() {
    gabion_codec::kernel::mul_add(2, &[0; 7], &mut [0; 8]);
}
