//! The loop of every vector kernel, generic over the vectors.
//!
//! A back end defines how a vector is loaded, split and multiplied ([`Lanes`]); this file defines
//! the order: all outputs of a group stay in registers during one pass over the sources. Everything
//! here is `inline(always)` and free of closures, so that it is compiled inside the back end's
//! entry point, with that entry point's processor features.
#![allow(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "intrinsics only work inside their entry point"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "loops over registers unroll; iterators may not"
)]

/// Distance of the prefetches ahead of the loads, in bytes. Measured: the processor's own
/// prefetchers lose track of a dozen streams at once.
const PREFETCH_BYTES: usize = 1024;

/// One pass over some sources.
pub(super) struct Pass<'a> {
    /// All sources of the operation; each holds at least `end` bytes.
    pub(super) sources: &'a [&'a [u8]],
    /// The sources that take part.
    pub(super) columns: &'a [usize],
    /// First byte to compute.
    pub(super) start: usize,
    /// End of the bytes to compute.
    pub(super) end: usize,
    /// Whether the outputs are added to instead of overwritten.
    pub(super) accumulate: bool,
}

/// The coefficients of one group of outputs, as a back end prepared them.
pub(super) struct Factors<'a, T> {
    /// The tables of column `c` for the outputs of the group begin at `c * stride`.
    pub(super) tables: &'a [T],
    /// Distance between the tables of neighbouring columns.
    pub(super) stride: usize,
}

/// A vector unit.
///
/// # Safety
/// Every method may only run on a processor with the implementing back end's features. Pointers
/// need no alignment, and must be valid for [`Lanes::BYTES`], or for `length` bytes where given.
pub(super) trait Lanes {
    /// A register.
    type Vector: Copy;
    /// A source vector in the form for multiplication.
    type Split: Copy;
    /// The prepared form of a coefficient in memory.
    type Table: 'static;
    /// A coefficient's table in registers.
    type Factor: Copy;
    /// Bytes of a register.
    const BYTES: usize;
    /// Whether the registers hold a group's sums beside its coefficients.
    const SUMS_FIT: bool;

    unsafe fn zero() -> Self::Vector;
    unsafe fn load(from: *const u8) -> Self::Vector;
    unsafe fn store(to: *mut u8, vector: Self::Vector);
    unsafe fn load_partial(from: *const u8, length: usize) -> Self::Vector;
    unsafe fn store_partial(to: *mut u8, length: usize, vector: Self::Vector);
    unsafe fn prefetch(from: *const u8);
    unsafe fn xor(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn xor3(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    unsafe fn split(vector: Self::Vector) -> Self::Split;
    unsafe fn factor(table: *const Self::Table) -> Self::Factor;
    /// `sum + factor * source`.
    unsafe fn multiply_add(
        sum: Self::Vector,
        factor: Self::Factor,
        source: Self::Split,
    ) -> Self::Vector;
    /// `sum + factors[0] * sources[0] + factors[1] * sources[1]`.
    unsafe fn multiply_add_pair(
        sum: Self::Vector,
        factors: [Self::Factor; 2],
        sources: [Self::Split; 2],
    ) -> Self::Vector;
}

/// The bytes of a step: whole vectors, or the last bytes of a buffer.
trait Access<L: Lanes> {
    unsafe fn load(&self, from: *const u8) -> L::Vector;
    unsafe fn store(&self, to: *mut u8, vector: L::Vector);
}

struct Whole;

impl<L: Lanes> Access<L> for Whole {
    #[inline(always)]
    unsafe fn load(&self, from: *const u8) -> L::Vector {
        // SAFETY: the caller guarantees `Lanes`'s conditions.
        unsafe { L::load(from) }
    }

    #[inline(always)]
    unsafe fn store(&self, to: *mut u8, vector: L::Vector) {
        // SAFETY: as above.
        unsafe { L::store(to, vector) }
    }
}

/// The last `.0` bytes, fewer than a vector.
struct Partial(usize);

impl<L: Lanes> Access<L> for Partial {
    #[inline(always)]
    unsafe fn load(&self, from: *const u8) -> L::Vector {
        // SAFETY: the caller guarantees `Lanes`'s conditions, for `self.0` bytes.
        unsafe { L::load_partial(from, self.0) }
    }

    #[inline(always)]
    unsafe fn store(&self, to: *mut u8, vector: L::Vector) {
        // SAFETY: as above.
        unsafe { L::store_partial(to, self.0, vector) }
    }
}

/// Multiplies: `outputs[r] (+)= sum over columns c of coefficient(r, c) * sources[c]`, for `R`
/// outputs at once and `U` vectors of each a step.
///
/// # Safety
/// The processor has the features of `L`; the sources of `pass.columns` and the outputs are valid
/// for `pass.end` bytes, the outputs overlap nothing, and the tables hold `R` coefficients for each
/// column.
#[inline(always)]
pub(super) unsafe fn multiply<L: Lanes, const R: usize, const U: usize>(
    pass: &Pass<'_>,
    factors: &Factors<'_, L::Table>,
    outputs: &[*mut u8; R],
) {
    if let &[column] = pass.columns {
        // SAFETY: the caller guarantees the same.
        unsafe {
            if pass.accumulate {
                multiply_single::<L, R, true>(pass, column, factors, outputs);
            } else {
                multiply_single::<L, R, false>(pass, column, factors, outputs);
            }
        }
        return;
    }
    let mut at = pass.start;
    // SAFETY: `at` plus the bytes that each step touches stays at or below `pass.end`.
    unsafe {
        while at + U * L::BYTES <= pass.end {
            multiply_step::<L, Whole, R, U>(pass, factors, outputs, at, &Whole);
            at += U * L::BYTES;
        }
        while at + L::BYTES <= pass.end {
            multiply_step::<L, Whole, R, 1>(pass, factors, outputs, at, &Whole);
            at += L::BYTES;
        }
        if at < pass.end {
            multiply_step::<L, Partial, R, 1>(pass, factors, outputs, at, &Partial(pass.end - at));
        }
    }
}

/// Adds: `output (+)= sum of the sources of pass.columns`, without multiplying.
///
/// # Safety
/// As for [`multiply`], without tables.
#[inline(always)]
pub(super) unsafe fn add<L: Lanes, const U: usize>(pass: &Pass<'_>, output: *mut u8) {
    let mut at = pass.start;
    // SAFETY: `at` plus the bytes that each step touches stays at or below `pass.end`.
    unsafe {
        while at + U * L::BYTES <= pass.end {
            add_step::<L, Whole, U>(pass, output, at, &Whole);
            at += U * L::BYTES;
        }
        while at + L::BYTES <= pass.end {
            add_step::<L, Whole, 1>(pass, output, at, &Whole);
            at += L::BYTES;
        }
        if at < pass.end {
            add_step::<L, Partial, 1>(pass, output, at, &Partial(pass.end - at));
        }
    }
}

/// One step of [`multiply`]: `U` vectors of each output, from byte `at` on. Sources are taken in pairs,
/// for which some back ends have a cheaper sum.
///
/// # Safety
/// As for [`multiply`], and `at` plus the step's bytes is at most `pass.end`.
#[inline(always)]
unsafe fn multiply_step<L: Lanes, A: Access<L>, const R: usize, const U: usize>(
    pass: &Pass<'_>,
    factors: &Factors<'_, L::Table>,
    outputs: &[*mut u8; R],
    at: usize,
    access: &A,
) {
    // SAFETY: the caller's guarantee covers every address formed here; prefetches may use any.
    unsafe {
        let mut sums = [[L::zero(); U]; R];
        if pass.accumulate {
            for row in 0..R {
                for lane in 0..U {
                    sums[row][lane] = access.load(outputs[row].add(at + lane * L::BYTES));
                }
            }
        }
        let mut pairs = pass.columns.chunks_exact(2);
        for pair in &mut pairs {
            let first = load_source::<L, A, U>(pass, pair[0], at, access);
            let second = load_source::<L, A, U>(pass, pair[1], at, access);
            let first_table = factors.tables.as_ptr().add(pair[0] * factors.stride);
            let second_table = factors.tables.as_ptr().add(pair[1] * factors.stride);
            for row in 0..R {
                let pair = [
                    L::factor(first_table.add(row)),
                    L::factor(second_table.add(row)),
                ];
                for lane in 0..U {
                    let sources = [first[lane], second[lane]];
                    sums[row][lane] = L::multiply_add_pair(sums[row][lane], pair, sources);
                }
            }
        }
        if let &[column] = pairs.remainder() {
            let source = load_source::<L, A, U>(pass, column, at, access);
            let table = factors.tables.as_ptr().add(column * factors.stride);
            for row in 0..R {
                let factor = L::factor(table.add(row));
                for lane in 0..U {
                    sums[row][lane] = L::multiply_add(sums[row][lane], factor, source[lane]);
                }
            }
        }
        for row in 0..R {
            for lane in 0..U {
                access.store(outputs[row].add(at + lane * L::BYTES), sums[row][lane]);
            }
        }
    }
}

/// [`multiply`] for one source, as in an update: the coefficients stay in registers throughout, and
/// the loads and stores of the outputs limit the speed, so that the loop has nothing else.
/// `ACCUMULATE` is `pass.accumulate`, a constant because the compiler keeps a variable's branch in the
/// loop. Measured, prefetches gain only between the sizes of the second- and the third-level cache
/// and cost time below and above: the processor follows these few streams by itself.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_single<L: Lanes, const R: usize, const ACCUMULATE: bool>(
    pass: &Pass<'_>,
    column: usize,
    factors: &Factors<'_, L::Table>,
    outputs: &[*mut u8; R],
) {
    let (outputs, end) = (*outputs, pass.end);
    let source = pass.sources[column].as_ptr();
    let tables = &factors.tables[column * factors.stride..][..R];
    // SAFETY: `at` plus the bytes that each step touches stays at or below `end`.
    unsafe {
        let mut coefficients = [L::factor(&raw const tables[0]); R];
        for row in 1..R {
            coefficients[row] = L::factor(&raw const tables[row]);
        }
        let mut at = pass.start;
        while at + L::BYTES <= end {
            single_step::<L, Whole, R, ACCUMULATE>(source, &coefficients, &outputs, at, &Whole);
            at += L::BYTES;
        }
        if at < end {
            let tail = Partial(end - at);
            single_step::<L, Partial, R, ACCUMULATE>(source, &coefficients, &outputs, at, &tail);
        }
    }
}

/// One step of [`multiply_single`]: one vector of each output.
///
/// # Safety
/// As for [`multiply_step`].
#[inline(always)]
unsafe fn single_step<L: Lanes, A: Access<L>, const R: usize, const ACCUMULATE: bool>(
    source: *const u8,
    coefficients: &[L::Factor; R],
    outputs: &[*mut u8; R],
    at: usize,
    access: &A,
) {
    // SAFETY: the caller's guarantee covers every address formed here.
    unsafe {
        let split = L::split(access.load(source.add(at)));
        if !L::SUMS_FIT {
            for row in 0..R {
                let output = outputs[row].add(at);
                let sum = if ACCUMULATE {
                    access.load(output)
                } else {
                    L::zero()
                };
                access.store(output, L::multiply_add(sum, coefficients[row], split));
            }
            return;
        }
        // All loads before the first store: measured, the outputs' streams disturb each other less.
        let mut sums = [L::zero(); R];
        if ACCUMULATE {
            for row in 0..R {
                sums[row] = access.load(outputs[row].add(at));
            }
        }
        for row in 0..R {
            sums[row] = L::multiply_add(sums[row], coefficients[row], split);
        }
        for row in 0..R {
            access.store(outputs[row].add(at), sums[row]);
        }
    }
}

/// Loads `U` vectors of a source for multiplication, and prefetches.
///
/// # Safety
/// As for [`multiply_step`].
#[inline(always)]
unsafe fn load_source<L: Lanes, A: Access<L>, const U: usize>(
    pass: &Pass<'_>,
    column: usize,
    at: usize,
    access: &A,
) -> [L::Split; U] {
    // SAFETY: the caller's guarantee covers the loads; the prefetch may use any address.
    unsafe {
        let source = pass.sources.get_unchecked(column).as_ptr().add(at);
        let mut split = [L::split(L::zero()); U];
        for lane in 0..U {
            split[lane] = L::split(access.load(source.add(lane * L::BYTES)));
            L::prefetch(source.wrapping_add(lane * L::BYTES + PREFETCH_BYTES));
        }
        split
    }
}

/// One step of [`add`].
///
/// # Safety
/// As for [`multiply_step`].
#[inline(always)]
unsafe fn add_step<L: Lanes, A: Access<L>, const U: usize>(
    pass: &Pass<'_>,
    output: *mut u8,
    at: usize,
    access: &A,
) {
    // SAFETY: the caller's guarantee covers every address formed here; prefetches may use any.
    unsafe {
        let mut sums = [L::zero(); U];
        if pass.accumulate {
            for lane in 0..U {
                sums[lane] = access.load(output.add(at + lane * L::BYTES));
            }
        }
        let mut pairs = pass.columns.chunks_exact(2);
        for pair in &mut pairs {
            let first = pass.sources.get_unchecked(pair[0]).as_ptr().add(at);
            let second = pass.sources.get_unchecked(pair[1]).as_ptr().add(at);
            for lane in 0..U {
                let offset = lane * L::BYTES;
                let (a, b) = (
                    access.load(first.add(offset)),
                    access.load(second.add(offset)),
                );
                sums[lane] = L::xor3(sums[lane], a, b);
            }
        }
        if let &[column] = pairs.remainder() {
            let source = pass.sources.get_unchecked(column).as_ptr().add(at);
            for lane in 0..U {
                let vector = access.load(source.add(lane * L::BYTES));
                sums[lane] = L::xor(sums[lane], vector);
            }
        }
        for lane in 0..U {
            access.store(output.add(at + lane * L::BYTES), sums[lane]);
        }
    }
}
