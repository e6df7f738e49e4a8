//! Matrices over GF(2^8): products, inverses, ranks and selections of rows.
//!
//! They hold coefficients, at most a few hundred a side, and are never applied to chunk data here;
//! [`crate::kernel::Coefficients`] does that.

use std::fmt;

use crate::error::CodeError;
use crate::gf;

/// A dense matrix of field elements, stored row after row.
#[derive(Clone, PartialEq, Eq)]
pub struct Matrix {
    row_count: usize,
    column_count: usize,
    /// Invariant: holds `row_count * column_count` elements.
    elements: Vec<u8>,
}

impl Matrix {
    /// A matrix of zeros.
    #[must_use]
    pub fn zeros(row_count: usize, column_count: usize) -> Self {
        Self {
            row_count,
            column_count,
            elements: vec![0; row_count * column_count],
        }
    }

    /// The identity of `size` rows and columns.
    #[must_use]
    pub fn identity(size: usize) -> Self {
        let mut identity = Self::zeros(size, size);
        for index in 0..size {
            identity.set(index, index, 1);
        }
        identity
    }

    /// A matrix of the given elements, row after row.
    ///
    /// # Errors
    /// [`CodeError::Shape`] unless there are `row_count * column_count` elements.
    pub fn from_elements(
        row_count: usize,
        column_count: usize,
        elements: Vec<u8>,
    ) -> Result<Self, CodeError> {
        if elements.len() != row_count * column_count {
            return Err(CodeError::Shape {
                needed: format!("{} elements", row_count * column_count),
                given: format!("{} elements", elements.len()),
            });
        }
        Ok(Self {
            row_count,
            column_count,
            elements,
        })
    }

    /// Number of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.column_count
    }

    /// All elements, row after row.
    #[must_use]
    pub fn elements(&self) -> &[u8] {
        &self.elements
    }

    /// One row.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u8] {
        &self.elements[row * self.column_count..][..self.column_count]
    }

    /// One element.
    ///
    /// # Panics
    /// If there is no such row or column.
    #[must_use]
    pub fn get(&self, row: usize, column: usize) -> u8 {
        self.row(row)[column]
    }

    /// Replaces one element.
    ///
    /// # Panics
    /// If there is no such row or column.
    pub fn set(&mut self, row: usize, column: usize, value: u8) {
        self.row_mut(row)[column] = value;
    }

    /// The product `self * right`.
    ///
    /// # Errors
    /// [`CodeError::Shape`] unless `right` has as many rows as `self` has columns.
    pub fn multiply(&self, right: &Self) -> Result<Self, CodeError> {
        if self.column_count != right.row_count {
            return Err(CodeError::Shape {
                needed: format!("a factor of {} rows", self.column_count),
                given: format!("{} rows", right.row_count),
            });
        }
        let mut product = Self::zeros(self.row_count, right.column_count);
        for row in 0..self.row_count {
            for (inner, &coefficient) in self.row(row).iter().enumerate() {
                add_multiple(product.row_mut(row), coefficient, right.row(inner));
            }
        }
        Ok(product)
    }

    /// The inverse, by Gauss-Jordan elimination beside an identity.
    ///
    /// # Errors
    /// [`CodeError::Shape`] unless the matrix is square, [`CodeError::Singular`] when it has no
    /// inverse.
    pub fn invert(&self) -> Result<Self, CodeError> {
        let size = self.row_count;
        if size != self.column_count {
            return Err(CodeError::Shape {
                needed: "a square matrix".to_owned(),
                given: format!("{size} rows and {} columns", self.column_count),
            });
        }
        let mut work = Self::zeros(size, 2 * size);
        for row in 0..size {
            work.row_mut(row)[..size].copy_from_slice(self.row(row));
            work.set(row, size + row, 1);
        }
        let rank = work.eliminate_columns(0, 0..size).len();
        if rank < size {
            return Err(CodeError::Singular { size, rank });
        }
        let mut inverse = Self::zeros(size, size);
        for row in 0..size {
            inverse.row_mut(row).copy_from_slice(&work.row(row)[size..]);
        }
        Ok(inverse)
    }

    /// The number of linearly independent rows.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.clone()
            .eliminate_columns(0, 0..self.column_count)
            .len()
    }

    /// The named rows, in the order named.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn select_rows(&self, rows: &[usize]) -> Self {
        let mut elements = Vec::with_capacity(rows.len() * self.column_count);
        for &row in rows {
            elements.extend_from_slice(self.row(row));
        }
        Self {
            row_count: rows.len(),
            column_count: self.column_count,
            elements,
        }
    }

    /// Reduces `columns`, in order, to unit columns where they are independent of the rows above
    /// `done_count` and of each other, and returns the pivot columns: the first of them has its 1
    /// in row `done_count`, the next in the row below, and so on. Every other column of the matrix
    /// takes part in the row operations.
    pub(crate) fn eliminate_columns(
        &mut self,
        done_count: usize,
        columns: std::ops::Range<usize>,
    ) -> Vec<usize> {
        let mut pivots = Vec::new();
        for column in columns {
            let target = done_count + pivots.len();
            let Some(source) = (target..self.row_count).find(|&row| self.get(row, column) != 0)
            else {
                continue;
            };
            self.swap_rows(target, source);
            let pivot = self.get(target, column);
            if pivot != 1 {
                scale(self.row_mut(target), gf::invert(pivot));
            }
            for row in 0..self.row_count {
                let coefficient = self.get(row, column);
                if row != target && coefficient != 0 {
                    let (row, pivot_row) = self.row_pair_mut(row, target);
                    add_multiple(row, coefficient, pivot_row);
                }
            }
            pivots.push(column);
        }
        pivots
    }

    fn row_mut(&mut self, row: usize) -> &mut [u8] {
        &mut self.elements[row * self.column_count..][..self.column_count]
    }

    /// Row `first` to write and row `second` to read; they must differ.
    fn row_pair_mut(&mut self, first: usize, second: usize) -> (&mut [u8], &[u8]) {
        assert_ne!(first, second, "a row pair needs two rows");
        let width = self.column_count;
        let (above, below) = self.elements.split_at_mut(first.max(second) * width);
        let upper = &mut above[first.min(second) * width..][..width];
        let lower = &mut below[..width];
        if first < second {
            (upper, lower)
        } else {
            (lower, upper)
        }
    }

    fn swap_rows(&mut self, first: usize, second: usize) {
        if first != second {
            let width = self.column_count;
            let (above, below) = self.elements.split_at_mut(first.max(second) * width);
            above[first.min(second) * width..][..width].swap_with_slice(&mut below[..width]);
        }
    }
}

impl fmt::Debug for Matrix {
    /// Rows of hexadecimal elements, one a line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "Matrix {}x{}", self.row_count, self.column_count)?;
        for row in 0..self.row_count {
            writeln!(formatter, "{:02x?}", self.row(row))?;
        }
        Ok(())
    }
}

/// `output += coefficient * row`, for rows too short for a kernel's preparation.
fn add_multiple(output: &mut [u8], coefficient: u8, row: &[u8]) {
    match coefficient {
        0 => {}
        1 => output
            .iter_mut()
            .zip(row)
            .for_each(|(out, &element)| *out ^= element),
        _ => {
            let products = &gf::PRODUCTS[usize::from(coefficient)];
            for (out, &element) in output.iter_mut().zip(row) {
                *out ^= products[usize::from(element)];
            }
        }
    }
}

fn scale(row: &mut [u8], coefficient: u8) {
    let products = &gf::PRODUCTS[usize::from(coefficient)];
    for element in row {
        *element = products[usize::from(*element)];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn square_matrix() -> impl Strategy<Value = Matrix> {
        (1usize..12).prop_flat_map(|size| {
            proptest::collection::vec(any::<u8>(), size * size)
                .prop_map(move |elements| Matrix::from_elements(size, size, elements).unwrap())
        })
    }

    proptest! {
        #[test]
        fn an_inverse_multiplies_to_the_identity(matrix in square_matrix()) {
            let size = matrix.row_count();
            match matrix.invert() {
                Ok(inverse) => {
                    prop_assert_eq!(matrix.multiply(&inverse).unwrap(), Matrix::identity(size));
                    prop_assert_eq!(inverse.multiply(&matrix).unwrap(), Matrix::identity(size));
                    prop_assert_eq!(matrix.rank(), size);
                }
                Err(CodeError::Singular { rank, .. }) => prop_assert_eq!(rank, matrix.rank()),
                Err(other) => prop_assert!(false, "unexpected {other}"),
            }
        }

        #[test]
        fn a_repeated_row_makes_a_matrix_singular(matrix in square_matrix()) {
            let size = matrix.row_count();
            prop_assume!(size > 1);
            let mut rows: Vec<usize> = (0..size).collect();
            rows[0] = size - 1;
            let repeated = matrix.select_rows(&rows);
            prop_assert!(repeated.rank() < size);
            let singular = matches!(repeated.invert(), Err(CodeError::Singular { .. }));
            prop_assert!(singular);
        }
    }

    #[test]
    fn mismatched_shapes_are_errors() {
        let wide = Matrix::zeros(2, 3);
        assert!(matches!(wide.invert(), Err(CodeError::Shape { .. })));
        assert!(matches!(wide.multiply(&wide), Err(CodeError::Shape { .. })));
        assert!(matches!(
            Matrix::from_elements(2, 2, vec![1; 3]),
            Err(CodeError::Shape { .. })
        ));
    }
}
