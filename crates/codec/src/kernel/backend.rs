//! The back ends, their availability on this processor, and the dispatch to their entry points.
#![allow(unsafe_code)]

use std::fmt;

use super::lanes::{Factors, Pass};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::gf;

/// A set of instructions for the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// Table look-ups byte by byte, on any processor.
    Scalar,
    /// Nibble shuffles on 128 bits (aarch64).
    Neon,
    /// Nibble shuffles on 256 bits.
    Avx2,
    /// Bit-matrix products on 256 bits.
    GfniAvx2,
    /// Nibble shuffles on 512 bits.
    Avx512,
    /// Bit-matrix products on 512 bits.
    GfniAvx512,
}

impl Backend {
    /// All back ends, the slowest first.
    const ALL: [Self; 6] = [
        Self::Scalar,
        Self::Neon,
        Self::Avx2,
        Self::GfniAvx2,
        Self::Avx512,
        Self::GfniAvx512,
    ];

    /// The fastest back end that this processor supports. The standard library caches the
    /// detection, so a repeated call costs a few loads.
    #[must_use]
    pub fn detect() -> Self {
        let fastest = Self::ALL
            .into_iter()
            .rev()
            .find(|backend| backend.is_available());
        fastest.unwrap_or(Self::Scalar)
    }

    /// Every back end that this processor supports, the slowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|backend| backend.is_available())
            .collect()
    }

    /// Whether this processor supports the back end.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::GfniAvx2 => is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(target_arch = "x86_64")]
            Self::GfniAvx512 => {
                is_x86_feature_detected!("gfni")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
            }
            #[allow(
                unreachable_patterns,
                reason = "which variants remain depends on the target"
            )]
            _ => false,
        }
    }

    /// As [`super::add_assign`], on this back end.
    ///
    /// # Panics
    /// If the lengths differ, or the processor does not support this back end.
    pub fn add_assign(self, output: &mut [u8], source: &[u8]) {
        self.check(source, output);
        let pass = single(&source, true);
        // SAFETY: `check` has verified the processor and the lengths, and a borrowed output
        // overlaps nothing.
        unsafe { self.add(&pass, output.as_mut_ptr()) }
    }

    /// As [`super::mul_add`], on this back end.
    ///
    /// # Panics
    /// If the lengths differ, or the processor does not support this back end.
    pub fn mul_add(self, coefficient: u8, source: &[u8], output: &mut [u8]) {
        self.check(source, output);
        match coefficient {
            0 => {}
            1 => self.add_assign(output, source),
            _ => self.multiply_single(coefficient, &single(&source, true), output),
        }
    }

    /// As [`super::mul_slice`], on this back end.
    ///
    /// # Panics
    /// If the lengths differ, or the processor does not support this back end.
    pub fn mul_slice(self, coefficient: u8, source: &[u8], output: &mut [u8]) {
        self.check(source, output);
        match coefficient {
            0 => output.fill(0),
            1 => output.copy_from_slice(source),
            _ => self.multiply_single(coefficient, &single(&source, false), output),
        }
    }

    fn check(self, source: &[u8], output: &[u8]) {
        assert!(
            self.is_available(),
            "this processor does not support {self}"
        );
        assert_eq!(
            source.len(),
            output.len(),
            "source and output are of one length"
        );
    }

    fn multiply_single(self, coefficient: u8, pass: &Pass<'_>, output: &mut [u8]) {
        let tables = Tables::of_one(self, coefficient);
        // SAFETY: the callers have run `check`, which verifies the processor and the lengths; the
        // tables hold the one coefficient of the one output.
        unsafe { self.multiply(pass, tables, 1, &[output.as_mut_ptr()]) }
    }

    /// Runs a multiplying pass.
    ///
    /// # Safety
    /// The processor supports this back end; `tables` were prepared for it and hold, `stride`
    /// apart, the coefficients of `outputs` for each column of `pass`; sources and outputs are
    /// valid for `pass.end` bytes; no output overlaps a source or another output.
    ///
    /// # Panics
    /// If the tables belong to another back end, or there are more than [`super::GROUP_MAX`]
    /// outputs.
    // Inlined: measured, updates of 4 KiB gain 5 to 10 %.
    #[inline]
    pub(super) unsafe fn multiply(
        self,
        pass: &Pass<'_>,
        tables: Tables<'_>,
        stride: usize,
        outputs: &[*mut u8],
    ) {
        match (self, tables) {
            (Self::Scalar, Tables::Elements(tables)) => {
                for (row, &output) in outputs.iter().enumerate() {
                    // SAFETY: the caller guarantees `pass.end` bytes without other references.
                    let output = unsafe { std::slice::from_raw_parts_mut(output, pass.end) };
                    scalar::multiply(pass, &Factors { tables, stride }, row, output);
                }
            }
            #[cfg(target_arch = "aarch64")]
            (Self::Neon, Tables::Nibbles(tables)) => {
                // SAFETY: the caller guarantees the kernel's conditions.
                unsafe { neon::multiply(pass, &Factors { tables, stride }, outputs) }
            }
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, Tables::Nibbles(tables)) => {
                // SAFETY: the caller guarantees the kernel's conditions.
                unsafe { x86::multiply_avx2(pass, &Factors { tables, stride }, outputs) }
            }
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512, Tables::Nibbles(tables)) => {
                // SAFETY: the caller guarantees the kernel's conditions.
                unsafe { x86::multiply_avx512(pass, &Factors { tables, stride }, outputs) }
            }
            #[cfg(target_arch = "x86_64")]
            (Self::GfniAvx2, Tables::Affine(tables)) => {
                // SAFETY: the caller guarantees the kernel's conditions.
                unsafe { x86::multiply_gfni_avx2(pass, &Factors { tables, stride }, outputs) }
            }
            #[cfg(target_arch = "x86_64")]
            (Self::GfniAvx512, Tables::Affine(tables)) => {
                // SAFETY: the caller guarantees the kernel's conditions.
                unsafe { x86::multiply_gfni_avx512(pass, &Factors { tables, stride }, outputs) }
            }
            _ => unreachable!("{self} was given tables of another back end"),
        }
    }

    /// Runs an adding pass.
    ///
    /// # Safety
    /// The processor supports this back end; sources and output are valid for `pass.end` bytes; the
    /// output overlaps no source.
    pub(super) unsafe fn add(self, pass: &Pass<'_>, output: *mut u8) {
        match self {
            Self::Scalar => {
                // SAFETY: the caller guarantees `pass.end` bytes without other references.
                scalar::add(pass, unsafe {
                    std::slice::from_raw_parts_mut(output, pass.end)
                });
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the caller guarantees the kernel's conditions.
            Self::Neon => unsafe { neon::add(pass, output) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller guarantees the kernel's conditions; GFNI does not change
            // additions.
            Self::Avx2 | Self::GfniAvx2 => unsafe { x86::add_avx2(pass, output) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx512 | Self::GfniAvx512 => unsafe { x86::add_avx512(pass, output) },
            #[allow(
                unreachable_patterns,
                reason = "which variants remain depends on the target"
            )]
            _ => unreachable!("{self} is not a back end of this architecture"),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::GfniAvx2 => "gfni-avx2",
            Self::Avx512 => "avx512",
            Self::GfniAvx512 => "gfni-avx512",
        })
    }
}

/// The pass from one source, over its whole length.
fn single<'a>(source: &'a &'a [u8], accumulate: bool) -> Pass<'a> {
    let sources = std::slice::from_ref(source);
    Pass {
        sources,
        columns: &[0],
        start: 0,
        end: source.len(),
        accumulate,
    }
}

/// Coefficients in a back end's form, owned or borrowed elsewhere.
#[derive(Clone, Copy)]
pub(super) enum Tables<'a> {
    /// The coefficients themselves.
    Elements(&'a [u8]),
    /// Products with all low and all high nibbles.
    Nibbles(&'a [[u8; 32]]),
    /// Bit matrices.
    Affine(&'a [u64]),
}

impl Tables<'static> {
    /// The table of one coefficient, which is a constant of the program.
    fn of_one(backend: Backend, coefficient: u8) -> Self {
        let at = usize::from(coefficient);
        match backend {
            Backend::Scalar => Self::Elements(std::slice::from_ref(&gf::PRODUCTS[1][at])),
            Backend::Neon | Backend::Avx2 | Backend::Avx512 => {
                Self::Nibbles(std::slice::from_ref(&gf::NIBBLES[at]))
            }
            Backend::GfniAvx2 | Backend::GfniAvx512 => {
                Self::Affine(std::slice::from_ref(&gf::AFFINE[at]))
            }
        }
    }
}

/// [`Tables`] that own their contents.
#[derive(Clone)]
pub(super) enum OwnedTables {
    Elements(Vec<u8>),
    Nibbles(Vec<[u8; 32]>),
    Affine(Vec<u64>),
}

impl OwnedTables {
    /// Prepares coefficients for `backend`, in the order given.
    pub(super) fn prepare(backend: Backend, coefficients: impl Iterator<Item = u8>) -> Self {
        let places = coefficients.map(usize::from);
        match backend {
            Backend::Scalar => Self::Elements(places.map(|at| at as u8).collect()),
            Backend::Neon | Backend::Avx2 | Backend::Avx512 => {
                Self::Nibbles(places.map(|at| gf::NIBBLES[at]).collect())
            }
            Backend::GfniAvx2 | Backend::GfniAvx512 => {
                Self::Affine(places.map(|at| gf::AFFINE[at]).collect())
            }
        }
    }

    /// The tables from number `first` on.
    pub(super) fn from(&self, first: usize) -> Tables<'_> {
        match self {
            Self::Elements(tables) => Tables::Elements(&tables[first..]),
            Self::Nibbles(tables) => Tables::Nibbles(&tables[first..]),
            Self::Affine(tables) => Tables::Affine(&tables[first..]),
        }
    }
}
