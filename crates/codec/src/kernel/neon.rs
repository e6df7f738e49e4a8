//! The aarch64 kernel: nibble shuffles by NEON table look-ups.
#![allow(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "intrinsics only work inside their entry point"
)]

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::lanes::{self, Factors, Lanes, Pass};

/// Nibble look-ups on 128 bits.
struct Neon;

impl Lanes for Neon {
    type Vector = uint8x16_t;
    type Split = [uint8x16_t; 2];
    type Table = [u8; 32];
    type Factor = [uint8x16_t; 2];
    const BYTES: usize = 16;
    const SUMS_FIT: bool = true;

    #[inline(always)]
    unsafe fn zero() -> uint8x16_t {
        // SAFETY: `Lanes` promises the features.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: `Lanes` promises the features and 16 readable bytes.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: uint8x16_t) {
        // SAFETY: `Lanes` promises the features and 16 writable bytes.
        unsafe { vst1q_u8(to, vector) }
    }

    #[inline(always)]
    unsafe fn load_partial(from: *const u8, length: usize) -> uint8x16_t {
        let mut bytes = [0u8; 16];
        // SAFETY: `Lanes` promises `length` readable bytes, fewer than a vector's 16.
        unsafe {
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length);
            Self::load(bytes.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store_partial(to: *mut u8, length: usize, vector: uint8x16_t) {
        let mut bytes = [0u8; 16];
        // SAFETY: `Lanes` promises `length` writable bytes, fewer than a vector's 16.
        unsafe {
            Self::store(bytes.as_mut_ptr(), vector);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, length);
        }
    }

    /// There is no stable intrinsic; the relevant processors prefetch these streams by themselves.
    #[inline(always)]
    unsafe fn prefetch(_from: *const u8) {}

    #[inline(always)]
    unsafe fn xor(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: `Lanes` promises the features.
        unsafe { veorq_u8(a, b) }
    }

    #[inline(always)]
    unsafe fn xor3(a: uint8x16_t, b: uint8x16_t, c: uint8x16_t) -> uint8x16_t {
        // SAFETY: `Lanes` promises the features.
        unsafe { veorq_u8(a, veorq_u8(b, c)) }
    }

    #[inline(always)]
    unsafe fn split(vector: uint8x16_t) -> [uint8x16_t; 2] {
        // SAFETY: `Lanes` promises the features.
        unsafe { [vandq_u8(vector, vdupq_n_u8(15)), vshrq_n_u8::<4>(vector)] }
    }

    #[inline(always)]
    unsafe fn factor(table: *const [u8; 32]) -> [uint8x16_t; 2] {
        let bytes: *const u8 = table.cast();
        // SAFETY: `Lanes` promises the features, and the table is two halves of 16 bytes.
        unsafe { [vld1q_u8(bytes), vld1q_u8(bytes.add(16))] }
    }

    #[inline(always)]
    unsafe fn multiply_add(
        sum: uint8x16_t,
        factor: [uint8x16_t; 2],
        source: [uint8x16_t; 2],
    ) -> uint8x16_t {
        // SAFETY: `Lanes` promises the features.
        unsafe {
            let low = vqtbl1q_u8(factor[0], source[0]);
            let high = vqtbl1q_u8(factor[1], source[1]);
            Self::xor3(sum, low, high)
        }
    }

    #[inline(always)]
    unsafe fn multiply_add_pair(
        sum: uint8x16_t,
        factors: [[uint8x16_t; 2]; 2],
        sources: [[uint8x16_t; 2]; 2],
    ) -> uint8x16_t {
        // SAFETY: `Lanes` promises the features.
        unsafe {
            let sum = Self::multiply_add(sum, factors[0], sources[0]);
            Self::multiply_add(sum, factors[1], sources[1])
        }
    }
}

/// Runs a multiplying pass.
///
/// # Safety
/// As for [`lanes::multiply`], with at most [`super::GROUP_MAX`] outputs.
#[target_feature(enable = "neon")]
pub(super) unsafe fn multiply(
    pass: &Pass<'_>,
    factors: &Factors<'_, [u8; 32]>,
    outputs: &[*mut u8],
) {
    // SAFETY: the caller guarantees `lanes::multiply`'s conditions, and this function has the
    // features.
    unsafe {
        match *outputs {
            [a] => lanes::multiply::<Neon, 1, 4>(pass, factors, &[a]),
            [a, b] => lanes::multiply::<Neon, 2, 4>(pass, factors, &[a, b]),
            [a, b, c] => lanes::multiply::<Neon, 3, 4>(pass, factors, &[a, b, c]),
            [a, b, c, d] => lanes::multiply::<Neon, 4, 4>(pass, factors, &[a, b, c, d]),
            [a, b, c, d, e] => lanes::multiply::<Neon, 5, 2>(pass, factors, &[a, b, c, d, e]),
            [a, b, c, d, e, f] => lanes::multiply::<Neon, 6, 2>(pass, factors, &[a, b, c, d, e, f]),
            _ => unreachable!("a group has 1 to 6 outputs"),
        }
    }
}

/// Runs an adding pass.
///
/// # Safety
/// As for [`lanes::add`].
#[target_feature(enable = "neon")]
pub(super) unsafe fn add(pass: &Pass<'_>, output: *mut u8) {
    // SAFETY: the caller guarantees `lanes::add`'s conditions, and this function has the features.
    unsafe { lanes::add::<Neon, 4>(pass, output) }
}
