//! Sums and products of whole buffers over GF(2^8), on the fastest instructions of the processor.
//!
//! One safe interface covers all of them: buffers of any length and alignment, any coefficients.
//! [`Coefficients`] is a matrix prepared for one back end; the functions [`add_assign`],
//! [`mul_add`] and [`mul_slice`] take single coefficients.
//!
//! [`crate::Matrix`] has the matrices of codes. No function here allocates in proportion to the
//! data or runs threads.

mod backend;
mod coefficients;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use backend::Backend;
pub use coefficients::Coefficients;

/// The most outputs that any back end computes in one pass: more do not fit its registers.
const GROUP_MAX: usize = 6;

/// Adds `source` to `output`, byte by byte.
///
/// # Panics
/// If the lengths differ.
pub fn add_assign(output: &mut [u8], source: &[u8]) {
    Backend::detect().add_assign(output, source);
}

/// Adds `coefficient * source` to `output`.
///
/// # Panics
/// If the lengths differ.
pub fn mul_add(coefficient: u8, source: &[u8], output: &mut [u8]) {
    Backend::detect().mul_add(coefficient, source, output);
}

/// Overwrites `output` with `coefficient * source`.
///
/// # Panics
/// If the lengths differ.
pub fn mul_slice(coefficient: u8, source: &[u8], output: &mut [u8]) {
    Backend::detect().mul_slice(coefficient, source, output);
}
