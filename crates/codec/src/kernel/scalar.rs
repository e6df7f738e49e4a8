//! The kernel for any processor: one table look-up a byte and coefficient.
//!
//! It is the reference for all other back ends in the tests, so it is written to be evident rather
//! than fast.

use super::lanes::{Factors, Pass};
use crate::gf;

/// Computes `output (+)= sum of coefficient * source` over `pass`, with the coefficients of row `row`
/// of `factors`, whose tables are the coefficients themselves.
pub(super) fn multiply(pass: &Pass<'_>, factors: &Factors<'_, u8>, row: usize, output: &mut [u8]) {
    let output = &mut output[pass.start..pass.end];
    if !pass.accumulate {
        output.fill(0);
    }
    for &column in pass.columns {
        let coefficient = factors.tables[column * factors.stride + row];
        let products = &gf::PRODUCTS[usize::from(coefficient)];
        let source = &pass.sources[column][pass.start..pass.end];
        for (out, &byte) in output.iter_mut().zip(source) {
            *out ^= products[usize::from(byte)];
        }
    }
}

/// Computes `output (+)= sum of the sources` over `pass`.
pub(super) fn add(pass: &Pass<'_>, output: &mut [u8]) {
    let output = &mut output[pass.start..pass.end];
    if !pass.accumulate {
        output.fill(0);
    }
    for &column in pass.columns {
        let source = &pass.sources[column][pass.start..pass.end];
        output
            .iter_mut()
            .zip(source)
            .for_each(|(out, &byte)| *out ^= byte);
    }
}
