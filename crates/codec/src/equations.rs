//! Equations: some chunks of a stripe as linear combinations of others.
//!
//! Decoding, repair and degraded reads all evaluate equations. [`crate::Code`] derives them;
//! planners read their coefficients to spread the work over nodes, and [`Equations::apply`]
//! evaluates them in one place.

use std::sync::OnceLock;

use crate::error::CodeError;
use crate::kernel::Coefficients;
use crate::matrix::Matrix;
use crate::regions;

/// `outputs[o]`'s sub-chunk r is the sum, over all helpers h and their sub-chunks s, of
/// `coefficient(o, r, h, s)` times `helpers[h]`'s sub-chunk s.
#[derive(Debug, Clone)]
pub struct Equations {
    /// The computed chunks, in the order of the request.
    pub outputs: Vec<usize>,
    /// The chunks that they are computed from, in the caller's order of preference. Each
    /// contributes to some output.
    pub helpers: Vec<usize>,
    sub_chunks: usize,
    /// `outputs * sub_chunks` rows, `helpers * sub_chunks` columns.
    matrix: Matrix,
    /// `matrix` prepared for the kernels, on first use.
    prepared: OnceLock<Coefficients>,
}

impl Equations {
    /// Reduces a solution in terms of `candidates` to those that it uses. `solution` has a row for
    /// each sub-chunk of the outputs and a column for each of the candidates'.
    pub(crate) fn new(
        outputs: &[usize],
        candidates: &[usize],
        sub_chunks: usize,
        solution: &Matrix,
    ) -> Self {
        let columns_of = |position: usize| position * sub_chunks..(position + 1) * sub_chunks;
        let used: Vec<usize> = (0..candidates.len())
            .filter(|&position| {
                (0..solution.row_count()).any(|row| {
                    solution.row(row)[columns_of(position)]
                        .iter()
                        .any(|&c| c != 0)
                })
            })
            .collect();
        let mut matrix = Matrix::zeros(solution.row_count(), used.len() * sub_chunks);
        for row in 0..solution.row_count() {
            let kept = used.iter().flat_map(|&position| columns_of(position));
            for (to, from) in kept.enumerate() {
                matrix.set(row, to, solution.get(row, from));
            }
        }
        Self {
            outputs: outputs.to_vec(),
            helpers: used.iter().map(|&position| candidates[position]).collect(),
            sub_chunks,
            matrix,
            prepared: OnceLock::new(),
        }
    }

    /// Sub-chunks of a chunk.
    #[must_use]
    pub fn sub_chunks(&self) -> usize {
        self.sub_chunks
    }

    /// The factor of sub-chunk `helper_row` of the helper at `helper_position` in sub-chunk
    /// `output_row` of the output at `output_position`.
    ///
    /// # Panics
    /// If a position or row does not exist.
    #[must_use]
    pub fn coefficient(
        &self,
        output_position: usize,
        output_row: usize,
        helper_position: usize,
        helper_row: usize,
    ) -> u8 {
        let w = self.sub_chunks;
        assert!(output_row < w && helper_row < w, "rows are below {w}");
        self.matrix.get(
            output_position * w + output_row,
            helper_position * w + helper_row,
        )
    }

    /// The sub-chunks of the helper at `helper_position` that are read, ascending: all of them for
    /// k helpers of an MDS code.
    ///
    /// # Panics
    /// If there is no such helper.
    #[must_use]
    pub fn reads(&self, helper_position: usize) -> Vec<usize> {
        assert!(
            helper_position < self.helpers.len(),
            "helper {helper_position}"
        );
        let first = helper_position * self.sub_chunks;
        (0..self.sub_chunks)
            .filter(|helper_row| {
                let column = first + helper_row;
                (0..self.matrix.row_count()).any(|row| self.matrix.get(row, column) != 0)
            })
            .collect()
    }

    /// Computes the outputs from whole helper chunks, both in the order of
    /// [`Equations::outputs`] and [`Equations::helpers`].
    ///
    /// # Errors
    /// [`CodeError::ChunkCount`] when the number of chunks is wrong, [`CodeError::UnequalLengths`]
    /// or [`CodeError::Misaligned`] when their lengths do not fit.
    pub fn apply(&self, helpers: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), CodeError> {
        let w = self.sub_chunks;
        regions::check_count("helper", self.matrix.column_count() / w, helpers.len())?;
        regions::check_count("output", self.matrix.row_count() / w, outputs.len())?;
        let prepared = self.prepared.get_or_init(|| {
            let (rows, columns) = (self.matrix.row_count(), self.matrix.column_count());
            Coefficients::new(rows, columns, self.matrix.elements())
        });
        regions::combine(prepared, w, helpers, outputs)
    }
}

impl PartialEq for Equations {
    /// Equal equations, whether or not they have been prepared for use.
    fn eq(&self, other: &Self) -> bool {
        self.outputs == other.outputs
            && self.helpers == other.helpers
            && self.sub_chunks == other.sub_chunks
            && self.matrix == other.matrix
    }
}

impl Eq for Equations {}

#[cfg(test)]
mod tests {
    use super::*;

    /// One output with two sub-chunks, out of three candidates with two each: the first contributes
    /// its sub-chunk 1 only, the second nothing.
    fn partial() -> Equations {
        let solution = Matrix::from_elements(2, 6, vec![0, 3, 0, 0, 1, 0, 0, 5, 0, 0, 0, 7]);
        Equations::new(&[9], &[4, 2, 8], 2, &solution.unwrap())
    }

    #[test]
    fn idle_candidates_are_dropped_and_partial_helpers_say_what_is_read() {
        let equations = partial();
        assert_eq!(equations.helpers, [4, 8]);
        assert_eq!(equations.reads(0), [1]);
        assert_eq!(equations.reads(1), [0, 1]);
        assert_eq!(equations.coefficient(0, 1, 0, 1), 5);
        assert_eq!(equations.coefficient(0, 1, 1, 0), 0);
        assert_eq!(equations.coefficient(0, 1, 1, 1), 7);
    }

    #[test]
    fn equality_does_not_depend_on_use() {
        let (fresh, used) = (partial(), partial());
        let mut output = [0; 4];
        used.apply(&[&[0, 0, 1, 1], &[2, 3, 0, 1]], &mut [&mut output])
            .unwrap();
        assert_eq!(output, [3 ^ 2, 3 ^ 3, 5, 5 ^ 7]);
        assert_eq!(fresh, used);
    }
}
