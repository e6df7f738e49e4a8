//! The x86-64 kernels: nibble shuffles on AVX2 and AVX-512, and bit-matrix products where the
//! processor has GFNI.
//!
//! A shuffle multiplies by looking both nibbles of each byte up in 16-entry tables. GFNI's own
//! product is fixed to the polynomial 0x11b; its affine instruction multiplies by any 8x8 bit
//! matrix, hence by any element of our field, with one instruction a vector.
#![allow(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "intrinsics only work inside their entry point"
)]

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi8, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_srli_epi16, _mm512_storeu_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::lanes::{self, Factors, Lanes, Pass};

/// Truth table of a three-way exclusive or.
const XOR3: i32 = 0x96;

/// The parts of [`Lanes`] that two back ends of one width share, by the intrinsics of this width.
macro_rules! vectors {
    ($vector:ty, $bytes:literal, $zero:ident, $load:ident, $store:ident, $xor:ident) => {
        type Vector = $vector;
        const BYTES: usize = $bytes;

        #[inline(always)]
        unsafe fn zero() -> $vector {
            // SAFETY: `Lanes` promises the features.
            unsafe { $zero() }
        }

        #[inline(always)]
        unsafe fn load(from: *const u8) -> $vector {
            // SAFETY: `Lanes` promises the features and a vector's readable bytes.
            unsafe { $load(from.cast()) }
        }

        #[inline(always)]
        unsafe fn store(to: *mut u8, vector: $vector) {
            // SAFETY: `Lanes` promises the features and a vector's writable bytes.
            unsafe { $store(to.cast(), vector) }
        }

        #[inline(always)]
        unsafe fn prefetch(from: *const u8) {
            // SAFETY: a prefetch of any address is harmless.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }

        #[inline(always)]
        unsafe fn xor(a: $vector, b: $vector) -> $vector {
            // SAFETY: `Lanes` promises the features.
            unsafe { $xor(a, b) }
        }
    };
}

/// The parts of [`Lanes`] that the two 256-bit back ends share.
macro_rules! vectors_256 {
    () => {
        vectors!(
            __m256i,
            32,
            _mm256_setzero_si256,
            _mm256_loadu_si256,
            _mm256_storeu_si256,
            _mm256_xor_si256
        );

        #[inline(always)]
        unsafe fn load_partial(from: *const u8, length: usize) -> __m256i {
            let mut bytes = [0u8; 32];
            // SAFETY: `Lanes` promises `length` readable bytes, fewer than a vector's 32.
            unsafe {
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length);
                Self::load(bytes.as_ptr())
            }
        }

        #[inline(always)]
        unsafe fn store_partial(to: *mut u8, length: usize, vector: __m256i) {
            let mut bytes = [0u8; 32];
            // SAFETY: `Lanes` promises `length` writable bytes, fewer than a vector's 32.
            unsafe {
                Self::store(bytes.as_mut_ptr(), vector);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, length);
            }
        }

        #[inline(always)]
        unsafe fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
            // SAFETY: `Lanes` promises the features.
            unsafe { _mm256_xor_si256(a, _mm256_xor_si256(b, c)) }
        }
    };
}

/// The parts of [`Lanes`] that the two 512-bit back ends share.
macro_rules! vectors_512 {
    () => {
        vectors!(
            __m512i,
            64,
            _mm512_setzero_si512,
            _mm512_loadu_si512,
            _mm512_storeu_si512,
            _mm512_xor_si512
        );

        #[inline(always)]
        unsafe fn load_partial(from: *const u8, length: usize) -> __m512i {
            // SAFETY: `Lanes` promises the features; bytes beyond `length` are masked and untouched.
            unsafe { _mm512_maskz_loadu_epi8((1u64 << length) - 1, from.cast()) }
        }

        #[inline(always)]
        unsafe fn store_partial(to: *mut u8, length: usize, vector: __m512i) {
            // SAFETY: as above.
            unsafe { _mm512_mask_storeu_epi8(to.cast(), (1u64 << length) - 1, vector) }
        }

        #[inline(always)]
        unsafe fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            // SAFETY: `Lanes` promises the features.
            unsafe { _mm512_ternarylogic_epi64::<XOR3>(a, b, c) }
        }
    };
}

/// Two products as two sums, for back ends that gain nothing from pairs.
macro_rules! pair_in_turn {
    () => {
        #[inline(always)]
        unsafe fn multiply_add_pair(
            sum: Self::Vector,
            factors: [Self::Factor; 2],
            sources: [Self::Split; 2],
        ) -> Self::Vector {
            // SAFETY: `Lanes` promises the features.
            unsafe {
                let sum = Self::multiply_add(sum, factors[0], sources[0]);
                Self::multiply_add(sum, factors[1], sources[1])
            }
        }
    };
}

/// Products by nibble shuffles, by the intrinsics of a width.
macro_rules! nibble_shuffles {
    ($vector:ty, $set:ident, $and:ident, $shift:ident, $broadcast:ident, $shuffle:ident) => {
        type Split = [$vector; 2];
        type Table = [u8; 32];
        type Factor = [$vector; 2];

        #[inline(always)]
        unsafe fn split(vector: $vector) -> [$vector; 2] {
            // SAFETY: `Lanes` promises the features.
            unsafe {
                let low_nibbles = $set(15);
                let low = $and(vector, low_nibbles);
                let high = $and($shift::<4>(vector), low_nibbles);
                [low, high]
            }
        }

        #[inline(always)]
        unsafe fn factor(table: *const [u8; 32]) -> [$vector; 2] {
            let halves: *const __m128i = table.cast();
            // SAFETY: `Lanes` promises the features, and the table is two halves of 16 bytes.
            unsafe {
                let low = $broadcast(_mm_loadu_si128(halves));
                let high = $broadcast(_mm_loadu_si128(halves.add(1)));
                [low, high]
            }
        }

        #[inline(always)]
        unsafe fn multiply_add(
            sum: $vector,
            factor: [$vector; 2],
            source: [$vector; 2],
        ) -> $vector {
            // SAFETY: `Lanes` promises the features.
            unsafe {
                let low = $shuffle(factor[0], source[0]);
                let high = $shuffle(factor[1], source[1]);
                Self::xor3(sum, low, high)
            }
        }
    };
}

/// Products by bit matrices, by the intrinsics of a width.
macro_rules! bit_matrices {
    ($vector:ty, $set:ident, $affine:ident) => {
        type Split = $vector;
        type Table = u64;
        type Factor = $vector;
        const SUMS_FIT: bool = true;

        #[inline(always)]
        unsafe fn split(vector: $vector) -> $vector {
            vector
        }

        #[inline(always)]
        unsafe fn factor(table: *const u64) -> $vector {
            // SAFETY: `Lanes` promises the features and a readable table.
            unsafe { $set((*table).cast_signed()) }
        }

        #[inline(always)]
        unsafe fn multiply_add(sum: $vector, factor: $vector, source: $vector) -> $vector {
            // SAFETY: `Lanes` promises the features.
            unsafe { Self::xor(sum, $affine::<0>(source, factor)) }
        }
    };
}

/// Nibble shuffles on 256 bits.
struct Avx2;

impl Lanes for Avx2 {
    vectors_256!();
    pair_in_turn!();
    nibble_shuffles!(
        __m256i,
        _mm256_set1_epi8,
        _mm256_and_si256,
        _mm256_srli_epi16,
        _mm256_broadcastsi128_si256,
        _mm256_shuffle_epi8
    );
    const SUMS_FIT: bool = false;
}

/// Nibble shuffles on 512 bits.
struct Avx512;

impl Lanes for Avx512 {
    vectors_512!();
    pair_in_turn!();
    nibble_shuffles!(
        __m512i,
        _mm512_set1_epi8,
        _mm512_and_si512,
        _mm512_srli_epi16,
        _mm512_broadcast_i32x4,
        _mm512_shuffle_epi8
    );
    const SUMS_FIT: bool = true;
}

/// Bit-matrix products on 256 bits.
struct GfniAvx2;

impl Lanes for GfniAvx2 {
    vectors_256!();
    pair_in_turn!();
    bit_matrices!(__m256i, _mm256_set1_epi64x, _mm256_gf2p8affine_epi64_epi8);
}

/// Bit-matrix products on 512 bits.
struct GfniAvx512;

impl Lanes for GfniAvx512 {
    vectors_512!();
    bit_matrices!(__m512i, _mm512_set1_epi64, _mm512_gf2p8affine_epi64_epi8);

    #[inline(always)]
    unsafe fn multiply_add_pair(
        sum: __m512i,
        factors: [__m512i; 2],
        sources: [__m512i; 2],
    ) -> __m512i {
        // SAFETY: `Lanes` promises the features.
        unsafe {
            let first = _mm512_gf2p8affine_epi64_epi8::<0>(sources[0], factors[0]);
            let second = _mm512_gf2p8affine_epi64_epi8::<0>(sources[1], factors[1]);
            Self::xor3(sum, first, second)
        }
    }
}

/// Defines a back end's multiplying entry point, compiled with its features. For each number of
/// outputs, the loop is unrolled as far as the registers allow without spilling.
macro_rules! multiply_entry {
    ($name:ident, $lanes:ty, $table:ty, $features:literal,
     [$u1:literal, $u2:literal, $u3:literal, $u4:literal, $u5:literal, $u6:literal]) => {
        /// Runs a multiplying pass.
        ///
        /// # Safety
        /// As for [`lanes::multiply`], with at most [`super::GROUP_MAX`] outputs.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(
            pass: &Pass<'_>,
            factors: &Factors<'_, $table>,
            outputs: &[*mut u8],
        ) {
            // SAFETY: the caller guarantees `lanes::multiply`'s conditions, and this function has
            // the features.
            unsafe {
                match *outputs {
                    [a] => lanes::multiply::<$lanes, 1, $u1>(pass, factors, &[a]),
                    [a, b] => lanes::multiply::<$lanes, 2, $u2>(pass, factors, &[a, b]),
                    [a, b, c] => lanes::multiply::<$lanes, 3, $u3>(pass, factors, &[a, b, c]),
                    [a, b, c, d] => {
                        lanes::multiply::<$lanes, 4, $u4>(pass, factors, &[a, b, c, d]);
                    }
                    [a, b, c, d, e] => {
                        lanes::multiply::<$lanes, 5, $u5>(pass, factors, &[a, b, c, d, e]);
                    }
                    [a, b, c, d, e, f] => {
                        lanes::multiply::<$lanes, 6, $u6>(pass, factors, &[a, b, c, d, e, f]);
                    }
                    _ => unreachable!("a group has 1 to 6 outputs"),
                }
            }
        }
    };
}

multiply_entry!(multiply_avx2, Avx2, [u8; 32], "avx2", [2, 2, 2, 2, 1, 1]);
multiply_entry!(
    multiply_avx512,
    Avx512,
    [u8; 32],
    "avx512f,avx512bw",
    [4, 4, 4, 4, 2, 2]
);
multiply_entry!(
    multiply_gfni_avx2,
    GfniAvx2,
    u64,
    "avx2,gfni",
    [4, 4, 2, 2, 2, 1]
);
multiply_entry!(
    multiply_gfni_avx512,
    GfniAvx512,
    u64,
    "avx512f,avx512bw,gfni",
    [4, 4, 4, 4, 2, 2]
);

/// Runs an adding pass on 256 bits.
///
/// # Safety
/// As for [`lanes::add`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn add_avx2(pass: &Pass<'_>, output: *mut u8) {
    // SAFETY: the caller guarantees `lanes::add`'s conditions, and this function has the features.
    unsafe { lanes::add::<Avx2, 4>(pass, output) }
}

/// Runs an adding pass on 512 bits.
///
/// # Safety
/// As for [`lanes::add`].
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn add_avx512(pass: &Pass<'_>, output: *mut u8) {
    // SAFETY: the caller guarantees `lanes::add`'s conditions, and this function has the features.
    unsafe { lanes::add::<Avx512, 4>(pass, output) }
}
