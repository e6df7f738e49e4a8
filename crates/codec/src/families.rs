//! The code families: the allowed parameters and the generator matrix of each.
//!
//! Every construction here comes with a proof of its guarantee; the tests check the guarantees
//! exhaustively for small sizes. [`crate::Code`] uses the matrices.

use crate::error::CodeError;
use crate::gf;
use crate::matrix::Matrix;
use crate::rotated;

/// The most chunks a stripe of any code has.
const CHUNKS_MAX: usize = 255;

/// The most sub-chunks of an array code's chunk plus one, a prime: beyond it, the generator matrix,
/// which grows with the fourth power, becomes too large to keep.
const ARRAY_PRIME_MAX: usize = 31;

/// The most rows that the data chunks of a rotated code have together, for the same reason.
const ROTATED_ROWS_MAX: usize = 512;

/// A code family with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Reed-Solomon, systematic, derived from a Vandermonde matrix. MDS.
    ReedSolomon {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// Reed-Solomon with a Cauchy matrix for its parities. MDS.
    Cauchy {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// Reed-Solomon by division by a generator polynomial with the roots 1, 2, 4, ..., as Hadoop's
    /// codec `rs-legacy` has it. MDS.
    Polynomial {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// Parities of a plain sum, of powers of 2 and of powers of 4, up to `m` of them, as QFS has them
    /// (Ovsiannikov et al., VLDB 2013). MDS with m up to 3.
    Powers {
        /// Data chunks.
        k: usize,
        /// Parity chunks, at most 3.
        m: usize,
    },
    /// Row-diagonal parity (Corbett et al., FAST '04), shortened to k data chunks. MDS with m = 2.
    Rdp {
        /// Data chunks.
        k: usize,
    },
    /// EVENODD (Blaum et al., 1995), shortened to k data chunks. MDS with m = 2.
    EvenOdd {
        /// Data chunks.
        k: usize,
    },
    /// Local reconstruction code: each of `l` groups of data has a parity of its own, all data
    /// together has `g` more. Chunk order: data, local parities, global parities.
    Lrc {
        /// Data chunks.
        k: usize,
        /// Groups, each with one local parity.
        l: usize,
        /// Global parities.
        g: usize,
    },
    /// Rotated Reed-Solomon (Khan et al., FAST '12) with `r` rows a chunk: later parities use some
    /// of the data one row further, so that repairs read less. MDS.
    Rotated {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
        /// Rows of a chunk.
        r: usize,
    },
    /// `n` copies of one chunk.
    Replication {
        /// Copies.
        n: usize,
    },
}

impl Family {
    /// Data chunks.
    pub(crate) fn k(self) -> usize {
        match self {
            Self::ReedSolomon { k, .. }
            | Self::Cauchy { k, .. }
            | Self::Polynomial { k, .. }
            | Self::Powers { k, .. }
            | Self::Rdp { k }
            | Self::EvenOdd { k }
            | Self::Lrc { k, .. }
            | Self::Rotated { k, .. } => k,
            Self::Replication { .. } => 1,
        }
    }

    /// Parity chunks.
    pub(crate) fn m(self) -> usize {
        match self {
            Self::ReedSolomon { m, .. }
            | Self::Cauchy { m, .. }
            | Self::Polynomial { m, .. }
            | Self::Powers { m, .. }
            | Self::Rotated { m, .. } => m,
            Self::Rdp { .. } | Self::EvenOdd { .. } => 2,
            Self::Lrc { l, g, .. } => l + g,
            Self::Replication { n } => n - 1,
        }
    }

    /// Whether any k chunks determine all others.
    pub(crate) fn is_mds(self) -> bool {
        !matches!(self, Self::Lrc { .. })
    }

    /// The set of chunks that determine each other and include `chunk`, if the family has a set
    /// smaller than k chunks.
    pub(crate) fn local_group(self, chunk: usize) -> Option<Vec<usize>> {
        let Self::Lrc { k, l, .. } = self else {
            return None;
        };
        (0..l).find_map(|group| {
            let data = lrc_group(k, l, group);
            let parity = k + group;
            (data.contains(&chunk) || chunk == parity).then(|| data.chain([parity]).collect())
        })
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`CodeError::UnsupportedParameters`].
    pub(crate) fn validate(self) -> Result<(), CodeError> {
        let (supported, allowed) = match self {
            Self::ReedSolomon { k, m } | Self::Cauchy { k, m } | Self::Polynomial { k, m } => (
                k >= 1 && m >= 1 && k.saturating_add(m) <= CHUNKS_MAX,
                "k and m must be at least 1, and k + m at most 255",
            ),
            Self::Powers { k, m } => (
                k >= 1 && (1..=3).contains(&m) && k.saturating_add(m) <= CHUNKS_MAX,
                "k must be at least 1, m at least 1 and at most 3, and k + m at most 255",
            ),
            Self::Rdp { k } => (
                (1..ARRAY_PRIME_MAX).contains(&k),
                "k must be at least 1 and at most 30",
            ),
            Self::EvenOdd { k } => (
                (1..=ARRAY_PRIME_MAX).contains(&k),
                "k must be at least 1 and at most 31",
            ),
            Self::Lrc { k, l, g } => (
                l >= 1 && l <= k && k.saturating_add(l).saturating_add(g) <= CHUNKS_MAX,
                "l must be at least 1 and at most k, and k + l + g at most 255",
            ),
            Self::Rotated { k, m, r } => (
                k >= 1
                    && m >= 1
                    && k.saturating_mul(r) <= ROTATED_ROWS_MAX
                    && k.saturating_add(m) <= CHUNKS_MAX
                    && rotated::allows(m, r),
                "k and m must be at least 1, r a power of two from 2, m to the power of r at most \
                 4096, k * r at most 512, and k + m at most 255",
            ),
            Self::Replication { n } => (
                (2..=CHUNKS_MAX).contains(&n),
                "n must be at least 2 and at most 255",
            ),
        };
        if supported {
            return Ok(());
        }
        Err(CodeError::UnsupportedParameters {
            code: self.to_string(),
            allowed,
        })
    }

    /// The rows of the generator below its identity, for valid parameters.
    pub(crate) fn parity_rows(self) -> Matrix {
        match self {
            Self::ReedSolomon { k, m } => vandermonde_parities(k, m),
            Self::Cauchy { k, m } => cauchy_parities(k, m),
            Self::Polynomial { k, m } => polynomial_parities(k, m),
            Self::Powers { k, m } => filled(m, k, |row, column| gf::power_of_two(row * column)),
            Self::Rdp { k } => rdp_parities(k),
            Self::EvenOdd { k } => evenodd_parities(k),
            Self::Lrc { k, l, g } => lrc_parities(k, l, g),
            Self::Rotated { k, m, r } => rotated::parities(&plain_sum_first(k, m), r),
            Self::Replication { n } => filled(n - 1, 1, |_, _| 1),
        }
    }
}

fn filled(row_count: usize, column_count: usize, element: impl Fn(usize, usize) -> u8) -> Matrix {
    let mut matrix = Matrix::zeros(row_count, column_count);
    for row in 0..row_count {
        for column in 0..column_count {
            matrix.set(row, column, element(row, column));
        }
    }
    matrix
}

/// The parity rows of V * T^-1, where V is the Vandermonde matrix of the points 0, 1, ..., n-1 (row
/// i holds the powers of i) and T its upper k rows.
///
/// Any k rows of V are a Vandermonde matrix of distinct points, hence regular, and a product with
/// T^-1 leaves them so: the code is MDS for every n up to 256. (Powers of 2 placed under an identity
/// without this step are not.) Row i of the product evaluates at point i the polynomial that
/// interpolates the data at points 0..k, so its elements are Lagrange's, which need no inversion:
/// `N_i / ((i - j) * w_j)` with `N_i` the product of all `i - l`, and `w_j` of all `j - l`, `l != j`.
fn vandermonde_parities(k: usize, m: usize) -> Matrix {
    let difference = |a: usize, b: usize| (a ^ b) as u8;
    let product_except = |point: usize, except: Option<usize>| {
        let others = (0..k).filter(|&other| Some(other) != except);
        others.fold(1, |product, other| {
            gf::multiply(product, difference(point, other))
        })
    };
    let weights: Vec<u8> = (0..k).map(|j| product_except(j, Some(j))).collect();
    let numerators: Vec<u8> = (k..k + m).map(|i| product_except(i, None)).collect();
    filled(m, k, |row, j| {
        gf::divide(
            numerators[row],
            gf::multiply(difference(k + row, j), weights[j]),
        )
    })
}

/// The Cauchy matrix of the points k..k+m against 0..k. Every square part of a Cauchy matrix is
/// regular, which under an identity means MDS.
fn cauchy_parities(k: usize, m: usize) -> Matrix {
    filled(m, k, |row, column| gf::invert(((k + row) ^ column) as u8))
}

/// Parity p is the coefficient of `x^p` in the remainder of `sum of data_j * x^(m + j)` by the generator
/// polynomial, the product of all `x - 2^i`, `i < m`. A word of the code is a multiple of that
/// polynomial with at most 255 coefficients, so it has more than m of them or none (BCH bound): the code
/// is MDS, and so is each shorter one.
fn polynomial_parities(k: usize, m: usize) -> Matrix {
    let mut generator = vec![1];
    for root in (0..m).map(gf::power_of_two) {
        // Times x - root, lowest coefficient first.
        generator.insert(0, 0);
        for at in 0..generator.len() - 1 {
            generator[at] ^= gf::multiply(root, generator[at + 1]);
        }
    }
    // The remainder of x^m is the generator without its leading 1; times x and reduced again for each column.
    let mut remainder = generator[..m].to_vec();
    let mut parities = Matrix::zeros(m, k);
    for column in 0..k {
        for (row, &element) in remainder.iter().enumerate() {
            parities.set(row, column, element);
        }
        remainder.insert(0, 0);
        let carry = remainder.pop().unwrap_or(0);
        for (element, &factor) in remainder.iter_mut().zip(&generator) {
            *element ^= gf::multiply(carry, factor);
        }
    }
    parities
}

/// The Cauchy matrix with each column divided by its first element. The first parity is then a plain
/// sum, and every square part is still regular.
fn plain_sum_first(k: usize, m: usize) -> Matrix {
    let mds = cauchy_parities(k, m);
    filled(m, k, |row, column| {
        gf::divide(mds.get(row, column), mds.get(0, column))
    })
}

/// Data chunks of one of the `l` groups: consecutive, the first groups larger by one where k is not
/// a multiple of l.
fn lrc_group(k: usize, l: usize, group: usize) -> std::ops::Range<usize> {
    let (size, larger) = (k / l, k % l);
    let start = group * size + group.min(larger);
    start..start + size + usize::from(group < larger)
}

/// Local parities, then global parities.
///
/// A pyramid code (Huang et al., 2007): an MDS code with g + 1 parities, the first of which is a
/// plain sum and is split into one sum a group. While all local parities are available they add up
/// to that first parity, so g + 1 failures of other chunks are recovered as in the MDS code; each
/// failed local parity costs at most the first parity, which leaves g for at most g other failures.
/// Hence any g + 1 failures are recoverable, and by the Singleton-like bound for locality no code
/// of this shape does better when a group has more than g chunks of data.
///
/// If the field allows, the global rows are chosen so that every pattern is recoverable that is
/// recoverable with any coefficients; see [`lrc_points`].
fn lrc_parities(k: usize, l: usize, g: usize) -> Matrix {
    let points = if g <= 2 { lrc_points(k, l) } else { None };
    let globals = if let Some(points) = points {
        filled(g, k, |row, column| match row {
            0 => points[column],
            _ => gf::multiply(points[column], points[column]),
        })
    } else {
        let mds = plain_sum_first(k, g + 1);
        filled(g, k, |row, column| mds.get(row + 1, column))
    };
    filled(l + g, k, |row, column| {
        if row < l {
            u8::from(lrc_group(k, l, row).contains(&column))
        } else {
            globals.get(row - l, column)
        }
    })
}

/// Points a for global rows a and a^2 with which an LRC of g <= 2 is maximally recoverable, or
/// nothing if there are too many groups, or too large ones, for the field.
///
/// With the rows 1, a, a^2 every square part is regular while the points are distinct and nonzero
/// (squaring permutes the field), as the pyramid construction requires. Beyond that, the patterns
/// to recover are two failures more than local parities recover: three in one group is a
/// Vandermonde matrix of three points; two in each of two groups has the determinant `s * t * (s +
/// t)`, s and t being the sums of the two points in each group. Points of one group are taken from
/// one multiple of the subfield GF(16), which is closed under addition; multiples of it by
/// different powers of 2 below 17 intersect in 0 alone, so s and t are never equal.
fn lrc_points(k: usize, l: usize) -> Option<Vec<u8>> {
    const SUBFIELDS: usize = 17;
    const UNITS: usize = 15;
    if l > SUBFIELDS || k.div_ceil(l) > UNITS {
        return None;
    }
    let groups = (0..l).flat_map(|group| {
        let size = lrc_group(k, l, group).len();
        (0..size).map(move |place| gf::power_of_two(group + SUBFIELDS * place))
    });
    Some(groups.collect())
}

/// The smallest prime that is at least `at_least`, itself at least 2.
fn smallest_prime_from(at_least: usize) -> usize {
    let is_prime = |n: usize| (2..n).all(|divisor| !n.is_multiple_of(divisor));
    // Bertrand's postulate: there is a prime between any number and its double.
    (at_least..2 * at_least)
        .find(|&n| is_prime(n))
        .expect("Bertrand's postulate holds")
}

/// RDP's prime: the data chunks and the row parity are p columns together.
fn rdp_prime(k: usize) -> usize {
    smallest_prime_from(k + 1)
}

/// EVENODD's prime: the data chunks are p columns. It must be odd, since with p = 2 both parities
/// are the same.
fn evenodd_prime(k: usize) -> usize {
    smallest_prime_from(k.max(3))
}

/// RDP: the first parity is the exclusive or of each row, the second that of each diagonal over data
/// and row parity, the diagonal p - 1 being left out.
///
/// Column c of the p-1 by p array is data chunk c, columns k..p-1 are imaginary zeros, and column
/// p-1 is the row parity; cell (r, c) lies on diagonal (r + c) mod p.
fn rdp_parities(k: usize) -> Matrix {
    let p = rdp_prime(k);
    let w = p - 1;
    let mut rows = Matrix::zeros(2 * w, k * w);
    let mut flip = |row: usize, column: usize| {
        let flipped = rows.get(row, column) ^ 1;
        rows.set(row, column, flipped);
    };
    for data_chunk in 0..k {
        for row in 0..w {
            let column = data_chunk * w + row;
            flip(row, column);
            let diagonal = (row + data_chunk) % p;
            if diagonal < w {
                flip(w + diagonal, column);
            }
            // The same bit again, as part of the row parity's cell.
            let diagonal = (row + p - 1) % p;
            if diagonal < w {
                flip(w + diagonal, column);
            }
        }
    }
    rows
}

/// EVENODD: the first parity is the exclusive or of each row, the second that of each diagonal over
/// the data alone plus that of diagonal p - 1.
fn evenodd_parities(k: usize) -> Matrix {
    let p = evenodd_prime(k);
    let w = p - 1;
    let mut rows = Matrix::zeros(2 * w, k * w);
    for data_chunk in 0..k {
        for row in 0..w {
            let column = data_chunk * w + row;
            rows.set(row, column, 1);
            let diagonal = (row + data_chunk) % p;
            if diagonal < w {
                rows.set(w + diagonal, column, 1);
            } else {
                (0..w).for_each(|adjusted| rows.set(w + adjusted, column, 1));
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reed_solomon_is_the_vandermonde_matrix_made_systematic() {
        for (k, m) in [(1, 3), (4, 2), (6, 3), (10, 4), (40, 20)] {
            let powers = filled(k + m, k, |row, exponent| {
                (0..exponent).fold(1, |power, _| gf::multiply(power, row as u8))
            });
            let upper: Vec<usize> = (0..k).collect();
            let inverse = powers.select_rows(&upper).invert().unwrap();
            let lower: Vec<usize> = (k..k + m).collect();
            let parities = powers.select_rows(&lower).multiply(&inverse).unwrap();
            assert_eq!(vandermonde_parities(k, m), parities, "rs({k},{m})");
        }
    }

    #[test]
    fn lrc_groups_partition_the_data() {
        for (k, l) in [(12, 2), (13, 3), (5, 5), (7, 1)] {
            let chunks: Vec<usize> = (0..l).flat_map(|group| lrc_group(k, l, group)).collect();
            assert_eq!(chunks, (0..k).collect::<Vec<_>>(), "k {k}, l {l}");
        }
    }
}
