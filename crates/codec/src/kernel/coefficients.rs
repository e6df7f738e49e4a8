//! A matrix of coefficients prepared for one back end, and its products with whole buffers.
//!
//! Preparation sorts the rows into bands. Rows with coefficients on the same sources share a band, as
//! many as fit the registers, so that one pass over the sources yields them all. A row of ones only
//! (a local parity, a row of an array code) is a band of its own that needs no multiplication. Zero
//! coefficients cost nothing in either.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::ptr;

use super::GROUP_MAX;
use super::backend::{Backend, OwnedTables};
use super::lanes::Pass;

/// Bytes of source data that stay cached while several passes read them: about half of a smaller
/// second-level cache.
const BLOCK_BUDGET_BYTES: usize = 256 * 1024;

/// Bytes of an update's source to take at a time if several passes read it: they stay in the
/// first-level cache beside as many of each output.
const UPDATE_BLOCK_BYTES: usize = 8 * 1024;

/// A matrix over GF(2^8) prepared for repeated multiplication with buffers.
///
/// Rows are outputs, columns are sources.
#[derive(Clone)]
pub struct Coefficients {
    row_count: usize,
    column_count: usize,
    /// The given matrix, row after row.
    elements: Vec<u8>,
    backend: Backend,
    /// Positions are rows in the order of their bands; this is the row at each position.
    rows: Vec<usize>,
    bands: Vec<Band>,
    /// Number of leading positions that belong to multiplying bands.
    multiplied_count: usize,
    /// For each column, the tables of the first `multiplied_count` positions.
    tables: OwnedTables,
}

/// Rows that are computed from the same columns.
#[derive(Clone)]
struct Band {
    /// Positions of the rows, at most [`GROUP_MAX`]; one position if the band only adds.
    positions: Range<usize>,
    /// Columns with coefficients that are not zero, ascending.
    columns: Vec<usize>,
    /// Whether there are coefficients other than one.
    multiplies: bool,
}

impl Coefficients {
    /// Prepares a matrix of `row_count` outputs and `column_count` sources, given row after row, for
    /// the fastest back end of this processor.
    ///
    /// # Panics
    /// Unless there are `row_count * column_count` elements.
    #[must_use]
    pub fn new(row_count: usize, column_count: usize, elements: &[u8]) -> Self {
        Self::prepare(
            Backend::detect(),
            row_count,
            column_count,
            elements.to_vec(),
        )
    }

    /// The same matrix prepared for another back end.
    ///
    /// # Panics
    /// If this processor does not support `backend`.
    #[must_use]
    pub fn with_backend(&self, backend: Backend) -> Self {
        Self::prepare(
            backend,
            self.row_count,
            self.column_count,
            self.elements.clone(),
        )
    }

    fn prepare(backend: Backend, row_count: usize, column_count: usize, elements: Vec<u8>) -> Self {
        assert!(
            backend.is_available(),
            "this processor does not support {backend}"
        );
        assert_eq!(
            elements.len(),
            row_count * column_count,
            "one element a row and column"
        );
        let (rows, bands) = bands(row_count, column_count, &elements);
        let multiplied_count = bands
            .iter()
            .filter(|band| band.multiplies)
            .map(|band| band.positions.len())
            .sum();
        let by_column = (0..column_count).flat_map(|column| {
            let multiplied: &[usize] = &rows[..multiplied_count];
            let elements = &elements;
            multiplied
                .iter()
                .map(move |row| elements[row * column_count + column])
        });
        let tables = OwnedTables::prepare(backend, by_column);
        Self {
            row_count,
            column_count,
            elements,
            backend,
            rows,
            bands,
            multiplied_count,
            tables,
        }
    }

    /// Number of outputs.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Number of sources.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.column_count
    }

    /// The back end of the preparation.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Overwrites the outputs with the matrix times the sources. Chunks may be of any length and
    /// alignment.
    ///
    /// # Panics
    /// Unless there is one source a column and one output a row, all of one length.
    pub fn combine(&self, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run(sources, outputs, false);
    }

    /// Adds the matrix times the sources to the outputs.
    ///
    /// # Panics
    /// Unless there is one source a column and one output a row, all of one length.
    pub fn combine_add(&self, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run(sources, outputs, true);
    }

    /// Adds one source's part to all outputs, each times its coefficient of `column`: the effect of
    /// a data delta on the parities. The source is read from memory once for all outputs.
    ///
    /// # Panics
    /// Unless `column` exists and there is one output a row, all as long as the source.
    pub fn update(&self, column: usize, source: &[u8], outputs: &mut [&mut [u8]]) {
        assert!(
            column < self.column_count,
            "column {column} of {}",
            self.column_count
        );
        let length = source.len();
        self.check(length, outputs);
        let sources = [source];
        let block = if self.is_one_pass() {
            length
        } else {
            UPDATE_BLOCK_BYTES
        };
        let mut start = 0;
        while start < length {
            let end = length.min(start + block);
            let pass = Pass {
                sources: &sources,
                columns: &[0],
                start,
                end,
                accumulate: true,
            };
            for band in &self.bands {
                if self.uses(band, column) {
                    self.run_band(band, column, &pass, outputs);
                }
            }
            start = end;
        }
    }

    fn run(&self, sources: &[&[u8]], outputs: &mut [&mut [u8]], accumulate: bool) {
        assert_eq!(sources.len(), self.column_count, "one source a column");
        let length = match (sources.first(), outputs.first()) {
            (Some(source), _) => source.len(),
            (None, Some(output)) => output.len(),
            (None, None) => return,
        };
        assert!(
            sources.iter().all(|source| source.len() == length),
            "sources of one length"
        );
        self.check(length, outputs);
        let block = self.block_bytes(length);
        let mut start = 0;
        while start < length {
            let end = length.min(start + block);
            for band in &self.bands {
                let pass = Pass {
                    sources,
                    columns: &band.columns,
                    start,
                    end,
                    accumulate,
                };
                self.run_band(band, 0, &pass, outputs);
            }
            start = end;
        }
    }

    /// Whether one pass over the sources yields all outputs.
    fn is_one_pass(&self) -> bool {
        self.bands.len() == 1
    }

    /// Whether a band's rows have coefficients of a column: their columns are the same, so the first row
    /// tells.
    fn uses(&self, band: &Band, column: usize) -> bool {
        let row = self.rows[band.positions.start];
        self.elements[row * self.column_count + column] != 0
    }

    /// Bytes of each source to take at a time: everything if one pass suffices, and otherwise as
    /// much as stays cached from one pass to the next.
    fn block_bytes(&self, length: usize) -> usize {
        if self.is_one_pass() {
            return length;
        }
        let share = BLOCK_BUDGET_BYTES / (self.column_count + self.row_count).max(1);
        share.max(1).next_multiple_of(1024)
    }

    /// Checks the number and the lengths of the outputs.
    fn check(&self, length: usize, outputs: &[&mut [u8]]) {
        assert_eq!(outputs.len(), self.row_count, "one output a row");
        assert!(
            outputs.iter().all(|output| output.len() == length),
            "outputs of one length"
        );
    }

    /// Runs one band's pass; `first_column` is the column that the pass numbers 0.
    #[inline]
    fn run_band(
        &self,
        band: &Band,
        first_column: usize,
        pass: &Pass<'_>,
        outputs: &mut [&mut [u8]],
    ) {
        let rows = &self.rows[band.positions.clone()];
        if !band.multiplies {
            for &row in rows {
                // SAFETY: `prepare` has verified the processor, `run` and `update` the lengths, and
                // outputs are borrowed mutably, so that none overlaps another slice.
                unsafe { self.backend.add(pass, outputs[row].as_mut_ptr()) }
            }
            return;
        }
        let mut addresses = [ptr::null_mut(); GROUP_MAX];
        for (address, &row) in addresses.iter_mut().zip(rows) {
            *address = outputs[row].as_mut_ptr();
        }
        let stride = self.multiplied_count;
        let tables = self
            .tables
            .from(first_column * stride + band.positions.start);
        let addresses = &addresses[..rows.len()];
        // SAFETY: as above; for each column of the pass the tables hold, `stride` apart, those of
        // all positions, hence of this band's.
        unsafe { self.backend.multiply(pass, tables, stride, addresses) }
    }
}

impl PartialEq for Coefficients {
    /// Equal matrices on equal back ends: everything else follows from these.
    fn eq(&self, other: &Self) -> bool {
        self.column_count == other.column_count
            && self.row_count == other.row_count
            && self.backend == other.backend
            && self.elements == other.elements
    }
}

impl Eq for Coefficients {}

impl fmt::Debug for Coefficients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Coefficients")
            .field("row_count", &self.row_count)
            .field("column_count", &self.column_count)
            .field("backend", &self.backend)
            .field("elements", &self.elements)
            .finish_non_exhaustive()
    }
}

/// Sorts the rows into bands, multiplying bands first. Also returns the rows in the order of their
/// positions.
fn bands(row_count: usize, column_count: usize, elements: &[u8]) -> (Vec<usize>, Vec<Band>) {
    let mut multiplied: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    let mut added: Vec<(Vec<usize>, usize)> = Vec::new();
    for row in 0..row_count {
        let coefficients = &elements[row * column_count..][..column_count];
        let columns: Vec<usize> = (0..column_count)
            .filter(|&column| coefficients[column] != 0)
            .collect();
        if coefficients.iter().all(|&coefficient| coefficient <= 1) {
            added.push((columns, row));
        } else if let Some(band) = multiplied.iter_mut().find(|band| band.0 == columns) {
            band.1.push(row);
        } else {
            multiplied.push((columns, vec![row]));
        }
    }
    // A row of ones needs no pass of its own if other rows use the same sources anyway.
    added.retain(|(columns, row)| {
        let band = multiplied.iter_mut().find(|band| band.0 == *columns);
        let alone = band.is_none();
        if let Some(band) = band {
            band.1.push(*row);
        }
        alone
    });
    let mut rows = Vec::with_capacity(row_count);
    let mut bands = Vec::with_capacity(multiplied.len() + added.len());
    let multiplied = multiplied
        .into_iter()
        .map(|(columns, rows)| (columns, rows, true));
    let added = added
        .into_iter()
        .map(|(columns, row)| (columns, vec![row], false));
    for (columns, band_rows, multiplies) in multiplied.chain(added) {
        // Bands of even size: seven rows are four and three, not six and one.
        let band_count = band_rows.len().div_ceil(GROUP_MAX);
        for band_rows in band_rows.chunks(band_rows.len().div_ceil(band_count)) {
            let first = rows.len();
            rows.extend(band_rows);
            bands.push(Band {
                positions: first..rows.len(),
                columns: columns.clone(),
                multiplies,
            });
        }
    }
    (rows, bands)
}
