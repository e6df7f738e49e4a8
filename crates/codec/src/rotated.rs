//! Rotated Reed-Solomon codes: parities use some data chunks one row further, so that the equations
//! of several parities overlap and a lost chunk is repaired from fewer bytes.
//!
//! After Khan et al., "Rethinking Erasure Codes for Cloud File Systems", FAST '12, which `ECPipe`
//! evaluates in section 6.1; the coefficients and the proof are ours. Several lost chunks are
//! decoded as in any code.

use crate::code::Code;
use crate::gf;
use crate::matrix::Matrix;

/// Most combinations of a parity for each lost row that are tried.
pub(crate) const CHOICES_MAX: usize = 4096;

/// Whether the family allows `m` parity chunks with `r` rows each: `r` is a power of two, and all
/// ways to repair a chunk can be tried.
pub(crate) fn allows(m: usize, r: usize) -> bool {
    let choices = u32::try_from(r).ok().and_then(|r| m.checked_pow(r));
    r >= 2 && r.is_power_of_two() && choices.is_some_and(|count| count <= CHOICES_MAX)
}

/// The parity rows of a scalar MDS code, spread over `r` rows: row b of parity j adds up row b + 1
/// (of `r`, in a circle) of the first `k * j / m` data chunks, and row b of the others.
///
/// Any k chunks suffice whenever that holds for the scalar code and `r` is a power of two. Rotating
/// rows is multiplication with x modulo `x^r - 1`, so the rows of a chunk are one element of that
/// ring, and a square part of the generator has a determinant in it. In characteristic 2 the ring's
/// modulus is `(x - 1)^r`: an element is invertible exactly if it does not vanish at x = 1, and
/// there all rotations are 1 and the determinant is the scalar code's.
pub(crate) fn parities(scalar: &Matrix, r: usize) -> Matrix {
    let (m, k) = (scalar.row_count(), scalar.column_count());
    let mut rows = Matrix::zeros(m * r, k * r);
    for parity in 0..m {
        for data in 0..k {
            let ahead = usize::from(data < k * parity / m);
            for row in 0..r {
                let element = scalar.get(parity, data);
                rows.set(parity * r + row, data * r + (row + ahead) % r, element);
            }
        }
    }
    rows
}

/// A way to repair one row: a parity row without other sub-chunks of the lost chunk.
#[derive(Clone, Debug)]
struct Choice {
    /// The parity's row of the generator.
    parity_row: usize,
    /// All sub-chunks that it reads, as rows of the generator.
    needed: Vec<usize>,
}

/// The repair of data chunk `lost` that reads the fewest sub-chunks, as a solution in terms of all
/// `helpers`: a row for each of the lost rows, a column for each sub-chunk of the helpers. None if
/// `lost` is not a data chunk or another data chunk is missing.
pub(crate) fn fewest_reads(code: &Code, lost: usize, helpers: &[usize]) -> Option<Matrix> {
    let (k, w) = (code.k(), code.sub_chunks());
    let is_here = |chunk: usize| chunk == lost || helpers.contains(&chunk);
    if lost >= k || !(0..k).all(is_here) {
        return None;
    }
    let choices: Vec<Vec<Choice>> = (0..w).map(|row| ways(code, lost, row, helpers)).collect();
    let mut search = Search {
        choices: &choices,
        readers: vec![0; code.n() * w],
        read_count: 0,
        chosen: Vec::with_capacity(w),
        best: None,
    };
    search.go_on();
    let (_, best) = search.best?;
    let mut solution = Matrix::zeros(w, helpers.len() * w);
    for (row, &choice) in best.iter().enumerate() {
        let Choice { parity_row, needed } = &choices[row][choice];
        let generator = code.generator().row(*parity_row);
        let scale = gf::invert(generator[lost * w + row]);
        for &sub_chunk in needed {
            let at = helpers.iter().position(|&helper| helper == sub_chunk / w)?;
            let element = if sub_chunk == *parity_row {
                1
            } else {
                generator[sub_chunk]
            };
            solution.set(row, at * w + sub_chunk % w, gf::multiply(scale, element));
        }
    }
    Some(solution)
}

/// The parity rows of `helpers` from which row `row` of chunk `lost` can be computed, in the order
/// of `helpers`.
fn ways(code: &Code, lost: usize, row: usize, helpers: &[usize]) -> Vec<Choice> {
    let w = code.sub_chunks();
    let parities = helpers.iter().filter(|&&helper| helper >= code.k());
    let rows = parities.flat_map(|&parity| parity * w..(parity + 1) * w);
    let way = |parity_row: usize| {
        let generator = code.generator().row(parity_row);
        let own = &generator[lost * w..(lost + 1) * w];
        let is_alone = own
            .iter()
            .enumerate()
            .all(|(at, &e)| (e != 0) == (at == row));
        let data = (0..generator.len()).filter(|&at| generator[at] != 0 && at / w != lost);
        is_alone.then(|| Choice {
            parity_row,
            needed: data.chain([parity_row]).collect(),
        })
    };
    rows.filter_map(way).collect()
}

/// Tries all choices, and prunes those that read no less than the best so far.
struct Search<'a> {
    /// For each lost row.
    choices: &'a [Vec<Choice>],
    /// Number of the chosen equations that read each sub-chunk of the stripe.
    readers: Vec<u32>,
    /// Number of sub-chunks that any of them reads.
    read_count: usize,
    /// Numbers of the choices for the first rows.
    chosen: Vec<usize>,
    best: Option<(usize, Vec<usize>)>,
}

impl Search<'_> {
    fn go_on(&mut self) {
        if self
            .best
            .as_ref()
            .is_some_and(|(best, _)| *best <= self.read_count)
        {
            return;
        }
        let choices = self.choices;
        let Some(ways) = choices.get(self.chosen.len()) else {
            self.best = Some((self.read_count, self.chosen.clone()));
            return;
        };
        for (number, way) in ways.iter().enumerate() {
            for &sub_chunk in &way.needed {
                self.read_count += usize::from(self.readers[sub_chunk] == 0);
                self.readers[sub_chunk] += 1;
            }
            self.chosen.push(number);
            self.go_on();
            self.chosen.pop();
            for &sub_chunk in &way.needed {
                self.readers[sub_chunk] -= 1;
                self.read_count -= usize::from(self.readers[sub_chunk] == 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_moved_round_for_the_first_chunks_of_later_parities() {
        let scalar = Matrix::from_elements(2, 2, vec![1, 1, 2, 3]).unwrap();
        #[rustfmt::skip]
        let expected = vec![
            1, 0, 1, 0,
            0, 1, 0, 1,
            0, 2, 3, 0,
            2, 0, 0, 3,
        ];
        assert_eq!(parities(&scalar, 2).elements(), expected);
    }

    #[test]
    fn parameters_that_could_not_be_searched_are_refused() {
        assert!(allows(4, 2) && allows(8, 4) && allows(64, 2) && allows(2, 8));
        assert!(!allows(4, 3) && !allows(4, 1) && !allows(9, 4) && !allows(4, usize::MAX));
    }
}
