//! A code: its generator matrix, and the operations that follow from the matrix alone.
//!
//! Chunk i of a stripe has w sub-chunks, rows `i * w` to `i * w + w - 1` of the generator; columns
//! are the sub-chunks of the data chunks. The upper part is the identity. [`Family`] fills the
//! rest.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::equations::Equations;
use crate::error::CodeError;
use crate::families::Family;
use crate::kernel::Coefficients;
use crate::matrix::Matrix;
use crate::regions;
use crate::rotated;

/// Most failure patterns of one size that are tried, to find how many failures a code survives
/// beyond its construction's guarantee.
const PATTERNS_MAX: usize = 20_000;

/// An erasure code. Cheap to clone, immutable, and equal to any code of the same family and
/// parameters.
///
/// Chunks are numbered 0 to n-1: k data chunks, then m parity chunks (an LRC's local ones first).
#[derive(Clone)]
pub struct Code {
    inner: Arc<Inner>,
}

struct Inner {
    family: Family,
    generator: Matrix,
    /// The parity rows prepared for the kernels, on first use.
    encoder: OnceLock<Coefficients>,
    failures_survived: OnceLock<usize>,
}

/// A parity sub-chunk affected by a change of a data sub-chunk: its delta is `coefficient` times
/// the data's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaTarget {
    /// The parity chunk's number in the stripe, from k to n-1.
    pub chunk: usize,
    /// The sub-chunk within it.
    pub row: usize,
    /// Never 0.
    pub coefficient: u8,
}

impl Code {
    /// Builds the code of a family.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] when the family does not allow its parameters.
    pub fn new(family: Family) -> Result<Self, CodeError> {
        family.validate()?;
        let parities = family.parity_rows();
        let width = parities.column_count();
        let mut elements = Matrix::identity(width).elements().to_vec();
        elements.extend_from_slice(parities.elements());
        let generator = Matrix::from_elements(width + parities.row_count(), width, elements)?;
        let inner = Inner {
            family,
            generator,
            encoder: OnceLock::new(),
            failures_survived: OnceLock::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Reed-Solomon, systematic, derived from a Vandermonde matrix: any k of k + m chunks suffice.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] unless k and m are at least 1 and k + m at most 255.
    pub fn reed_solomon(k: usize, m: usize) -> Result<Self, CodeError> {
        Self::new(Family::ReedSolomon { k, m })
    }

    /// Reed-Solomon with a Cauchy matrix: any k of k + m chunks suffice.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] unless k and m are at least 1 and k + m at most 255.
    pub fn cauchy(k: usize, m: usize) -> Result<Self, CodeError> {
        Self::new(Family::Cauchy { k, m })
    }

    /// RDP on the smallest prime p that is at least k + 1, with p - 1 sub-chunks a chunk: any k of
    /// k + 2 chunks suffice, and all arithmetic is exclusive or.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] unless k is 1 to 30.
    pub fn rdp(k: usize) -> Result<Self, CodeError> {
        Self::new(Family::Rdp { k })
    }

    /// EVENODD on the smallest odd prime p that is at least k, with p - 1 sub-chunks a chunk: any k
    /// of k + 2 chunks suffice, and all arithmetic is exclusive or.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] unless k is 1 to 31.
    pub fn evenodd(k: usize) -> Result<Self, CodeError> {
        Self::new(Family::EvenOdd { k })
    }

    /// A local reconstruction code of k data chunks in l groups of equal or nearly equal size, one
    /// local parity a group and g global parities: any g + 1 failures are recoverable, a single one
    /// within its group.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] unless l is 1 to k and k + l + g at most 255.
    pub fn lrc(k: usize, l: usize, g: usize) -> Result<Self, CodeError> {
        Self::new(Family::Lrc { k, l, g })
    }

    /// Rotated Reed-Solomon with r sub-chunks a chunk: any k of k + m chunks suffice, and the repair
    /// of one data chunk reads less than k of them.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] unless r is a power of two, k and m are at least 1, and
    /// they are small enough for all repairs to be tried.
    pub fn rotated(k: usize, m: usize, r: usize) -> Result<Self, CodeError> {
        Self::new(Family::Rotated { k, m, r })
    }

    /// n copies.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`] unless n is 2 to 255.
    pub fn replication(n: usize) -> Result<Self, CodeError> {
        Self::new(Family::Replication { n })
    }

    /// The family and its parameters.
    #[must_use]
    pub fn family(&self) -> Family {
        self.inner.family
    }

    /// Chunks of a stripe.
    #[must_use]
    pub fn n(&self) -> usize {
        self.k() + self.m()
    }

    /// Data chunks of a stripe.
    #[must_use]
    pub fn k(&self) -> usize {
        self.inner.family.k()
    }

    /// Parity chunks of a stripe.
    #[must_use]
    pub fn m(&self) -> usize {
        self.inner.family.m()
    }

    /// Sub-chunks of a chunk.
    #[must_use]
    pub fn sub_chunks(&self) -> usize {
        self.inner.generator.column_count() / self.k()
    }

    /// The unit of a chunk's length in bytes.
    #[must_use]
    pub fn chunk_alignment(&self) -> usize {
        self.sub_chunks()
    }

    /// The generator: `n * sub_chunks` rows, `k * sub_chunks` columns.
    #[must_use]
    pub fn generator(&self) -> &Matrix {
        &self.inner.generator
    }

    /// The factor of sub-chunk `data_row` of data chunk `data_chunk` in sub-chunk `row` of `chunk`.
    ///
    /// # Panics
    /// If a chunk or sub-chunk does not exist.
    #[must_use]
    pub fn coefficient(&self, chunk: usize, row: usize, data_chunk: usize, data_row: usize) -> u8 {
        let w = self.sub_chunks();
        assert!(row < w && data_row < w, "sub-chunks are numbered below {w}");
        self.inner
            .generator
            .get(chunk * w + row, data_chunk * w + data_row)
    }

    /// Computes all parity chunks of a stripe from its data chunks.
    ///
    /// # Errors
    /// [`CodeError::ChunkCount`] unless there are k data and m parity chunks,
    /// [`CodeError::UnequalLengths`] unless all are of one length, and [`CodeError::Misaligned`]
    /// unless it is a multiple of [`Code::chunk_alignment`].
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodeError> {
        regions::check_count("data", self.k(), data.len())?;
        regions::check_count("parity", self.m(), parity.len())?;
        let encoder = self.inner.encoder.get_or_init(|| {
            let width = self.inner.generator.column_count();
            let parity_elements = &self.inner.generator.elements()[width * width..];
            Coefficients::new(self.m() * self.sub_chunks(), width, parity_elements)
        });
        regions::combine(encoder, self.sub_chunks(), data, parity)
    }

    /// Whether the available chunks determine the whole stripe. Repeated and invalid numbers are
    /// ignored.
    #[must_use]
    pub fn is_sufficient(&self, available: &[usize]) -> bool {
        let mut seen = vec![false; self.n()];
        for &chunk in available {
            if let Some(seen) = seen.get_mut(chunk) {
                *seen = true;
            }
        }
        let chunks: Vec<usize> = (0..self.n()).filter(|&chunk| seen[chunk]).collect();
        if self.inner.family.is_mds() || chunks.len() < self.k() {
            return chunks.len() >= self.k();
        }
        self.inner
            .generator
            .select_rows(&self.rows_of(&chunks))
            .rank()
            == self.inner.generator.column_count()
    }

    /// The equations that compute the `wanted` chunks from available ones.
    ///
    /// Helpers are chosen in the caller's order of `available`: each independent one is added until
    /// they suffice, and those that contribute nothing are left out. Two rules precede that order:
    /// a wanted chunk that is available is its own helper, and the local groups of an LRC's wanted
    /// chunks are tried first. Repeated numbers in `available` are ignored.
    ///
    /// # Errors
    /// [`CodeError::NotSufficient`] when the available chunks do not determine the wanted ones,
    /// [`CodeError::NoSuchChunk`] when a number is not below n.
    pub fn decode(&self, available: &[usize], wanted: &[usize]) -> Result<Equations, CodeError> {
        self.check_chunks(available)?;
        self.check_chunks(wanted)?;
        let family = self.inner.family;
        let local = wanted
            .iter()
            .filter_map(|&chunk| family.local_group(chunk))
            .flatten();
        let preferred: Vec<usize> = wanted.iter().copied().chain(local).collect();
        let (first, rest): (Vec<usize>, Vec<usize>) = available
            .iter()
            .partition(|chunk| preferred.contains(chunk));
        let (own, local): (Vec<usize>, Vec<usize>) =
            first.iter().partition(|chunk| wanted.contains(chunk));
        self.solve(&distinct([own, local, rest].concat()), wanted)
    }

    /// Candidate equations for the repair of one chunk, those with the fewest helpers first.
    ///
    /// For Reed-Solomon codes there is one candidate, from the first k chunks of `available`: the
    /// caller's order expresses the preference. An LRC offers its local group before a global
    /// repair, replication each copy in the caller's order, and an array code both parities'
    /// equations. For a rotated code's data chunk the first candidate is the one that reads the fewest
    /// sub-chunks, which is of more helpers than k. `lost` itself is ignored in `available`.
    ///
    /// # Errors
    /// [`CodeError::NotSufficient`] when the available chunks do not determine the lost one,
    /// [`CodeError::NoSuchChunk`] when a number is not below n.
    pub fn repair_equations(
        &self,
        lost: usize,
        available: &[usize],
    ) -> Result<Vec<Equations>, CodeError> {
        let helpers: Vec<usize> = available
            .iter()
            .copied()
            .filter(|&chunk| chunk != lost)
            .collect();
        let mut candidates = vec![self.decode(&helpers, &[lost])?];
        for avoided in self.avoidable(lost, &helpers) {
            let others: Vec<usize> = helpers
                .iter()
                .copied()
                .filter(|chunk| !avoided.contains(chunk))
                .collect();
            if let Ok(candidate) = self.solve(&distinct(others), &[lost])
                && !candidates.contains(&candidate)
            {
                candidates.push(candidate);
            }
        }
        candidates.sort_by_key(|candidate| candidate.helpers.len());
        if matches!(self.inner.family, Family::Rotated { .. }) {
            let order = distinct(helpers);
            if let Some(solution) = rotated::fewest_reads(self, lost, &order) {
                let candidate = Equations::new(&[lost], &order, self.sub_chunks(), &solution);
                candidates.insert(0, candidate);
            }
        }
        Ok(candidates)
    }

    /// The parity sub-chunks that change when sub-chunk `data_row` of data chunk `data_chunk` does,
    /// in the order of parity chunks and rows.
    ///
    /// # Panics
    /// If the data chunk or sub-chunk does not exist.
    #[must_use]
    pub fn delta_rows(&self, data_chunk: usize, data_row: usize) -> Vec<DeltaTarget> {
        assert!(
            data_chunk < self.k(),
            "data chunks are numbered below {}",
            self.k()
        );
        let w = self.sub_chunks();
        let parity_rows =
            (self.k()..self.n()).flat_map(|chunk| (0..w).map(move |row| (chunk, row)));
        parity_rows
            .map(|(chunk, row)| {
                let coefficient = self.coefficient(chunk, row, data_chunk, data_row);
                DeltaTarget {
                    chunk,
                    row,
                    coefficient,
                }
            })
            .filter(|target| target.coefficient != 0)
            .collect()
    }

    /// The largest f such that the loss of any f chunks is recoverable.
    ///
    /// m for MDS codes and replication. g + 1 for an LRC with a group of more than g data chunks.
    /// Other LRCs have groups so small that they may survive more. For them, patterns of g + 2 and
    /// more failures are tried one by one while there are at most some thousands; for larger codes
    /// the result is a lower bound.
    #[must_use]
    pub fn failures_survived(&self) -> usize {
        *self
            .inner
            .failures_survived
            .get_or_init(|| match self.inner.family {
                Family::Lrc { k, l, g } if k.div_ceil(l) > g => g + 1,
                Family::Lrc { g, .. } => {
                    let mut survived = g + 1;
                    while survived < self.m() && self.survives_all_patterns_of(survived + 1) {
                        survived += 1;
                    }
                    survived
                }
                _ => self.m(),
            })
    }

    /// Whether every loss of `failure_count` chunks is recoverable; false if there are too many
    /// patterns to try.
    fn survives_all_patterns_of(&self, failure_count: usize) -> bool {
        let n = self.n();
        let patterns = (0..failure_count).try_fold(1usize, |product, place| {
            Some(product.checked_mul(n - place)? / (place + 1))
        });
        if patterns.is_none_or(|count| count > PATTERNS_MAX) {
            return false;
        }
        let mut lost: Vec<usize> = (0..failure_count).collect();
        loop {
            let alive: Vec<usize> = (0..n).filter(|chunk| !lost.contains(chunk)).collect();
            if !self.is_sufficient(&alive) {
                return false;
            }
            // The next pattern in lexicographic order: advance the last place that can.
            let Some(place) = (0..failure_count)
                .rev()
                .find(|&place| lost[place] < n - failure_count + place)
            else {
                return true;
            };
            let advanced = lost[place] + 1;
            for (offset, chunk) in lost[place..].iter_mut().enumerate() {
                *chunk = advanced + offset;
            }
        }
    }

    /// Sets of helpers whose absence leads to another useful repair of `lost`.
    fn avoidable(&self, lost: usize, helpers: &[usize]) -> Vec<Vec<usize>> {
        match self.inner.family {
            Family::Lrc { k, l, .. } => {
                let group = self.inner.family.local_group(lost).unwrap_or_default();
                vec![
                    group
                        .into_iter()
                        .filter(|chunk| (k..k + l).contains(chunk))
                        .collect(),
                ]
            }
            Family::Rdp { k } | Family::EvenOdd { k } => vec![vec![k], vec![k + 1]],
            Family::Replication { .. } => (1..helpers.len())
                .map(|first| helpers[..first].to_vec())
                .collect(),
            Family::ReedSolomon { .. }
            | Family::Cauchy { .. }
            | Family::Polynomial { .. }
            | Family::Powers { .. }
            | Family::Rotated { .. } => Vec::new(),
        }
    }

    /// Expresses the wanted chunks by those of `order`; earlier ones are preferred.
    ///
    /// One Gauss-Jordan elimination of the transposed generator, a column for each sub-chunk of
    /// `order` and then of `wanted`: pivots are found from left to right, so that they are the first
    /// independent sub-chunks, and the columns of `wanted` end up holding their coefficients. Data
    /// chunks are unit columns and cost nothing, so the work is that of the parities in use.
    fn solve(&self, order: &[usize], wanted: &[usize]) -> Result<Equations, CodeError> {
        let w = self.sub_chunks();
        let generator = &self.inner.generator;
        let target_start = order.len() * w;
        let rows = self.rows_of(&[order, wanted].concat());
        let mut system = Matrix::zeros(generator.column_count(), rows.len());
        for (column, &row) in rows.iter().enumerate() {
            for (equation, &element) in generator.row(row).iter().enumerate() {
                if element != 0 {
                    system.set(equation, column, element);
                }
            }
        }
        let mut pivots = Vec::new();
        let is_open = |system: &Matrix, rank: usize| {
            (rank..system.row_count()).any(|row| {
                system.row(row)[target_start..]
                    .iter()
                    .any(|&element| element != 0)
            })
        };
        let mut position = 0;
        while position < order.len() && is_open(&system, pivots.len()) {
            let columns = position * w..(position + 1) * w;
            pivots.extend(system.eliminate_columns(pivots.len(), columns));
            position += 1;
        }
        if is_open(&system, pivots.len()) {
            return Err(self.shortfall(system, pivots.len(), order, wanted));
        }
        let mut solution = Matrix::zeros(wanted.len() * w, target_start);
        for (row, &pivot) in pivots.iter().enumerate() {
            for output in 0..solution.row_count() {
                solution.set(output, pivot, system.get(row, target_start + output));
            }
        }
        Ok(Equations::new(wanted, order, w, &solution))
    }

    /// Reports the shortfall, given a system whose first `rank` rows are all that `order` yields.
    fn shortfall(
        &self,
        mut system: Matrix,
        rank: usize,
        order: &[usize],
        wanted: &[usize],
    ) -> CodeError {
        let w = self.sub_chunks();
        let target_start = order.len() * w;
        let undetermined = wanted.iter().enumerate().filter(|(position, _)| {
            let columns = target_start + position * w..target_start + (position + 1) * w;
            (rank..system.row_count()).any(|row| {
                system.row(row)[columns.clone()]
                    .iter()
                    .any(|&element| element != 0)
            })
        });
        let undetermined = undetermined.map(|(_, &chunk)| chunk).collect();
        let columns = target_start..system.column_count();
        let missing_count = system.eliminate_columns(rank, columns).len().div_ceil(w);
        let mut available = order.to_vec();
        available.sort_unstable();
        CodeError::NotSufficient {
            wanted: undetermined,
            missing: (0..self.n())
                .filter(|chunk| !available.contains(chunk))
                .collect(),
            available,
            missing_count,
        }
    }

    /// The generator's rows of the given chunks.
    fn rows_of(&self, chunks: &[usize]) -> Vec<usize> {
        let w = self.sub_chunks();
        chunks
            .iter()
            .flat_map(|chunk| chunk * w..(chunk + 1) * w)
            .collect()
    }

    fn check_chunks(&self, chunks: &[usize]) -> Result<(), CodeError> {
        match chunks.iter().find(|&&chunk| chunk >= self.n()) {
            Some(&chunk) => Err(CodeError::NoSuchChunk { chunk, n: self.n() }),
            None => Ok(()),
        }
    }
}

impl PartialEq for Code {
    /// A family and its parameters determine everything else.
    fn eq(&self, other: &Self) -> bool {
        self.inner.family == other.inner.family
    }
}

impl Eq for Code {}

impl fmt::Debug for Code {
    /// The text form: a generator of some thousand elements is useless in a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Code({self})")
    }
}

/// The chunks without repetitions, in the order of their first occurrence.
fn distinct(mut chunks: Vec<usize>) -> Vec<usize> {
    let mut seen = [false; 256];
    chunks.retain(|&chunk| !std::mem::replace(&mut seen[chunk], true));
    chunks
}
