//! The meaning of a value: a linear combination of the stripe's old and new data rows.
//!
//! Old parity rows are not symbols of their own: the code gives them as sums of old data rows, so
//! two values are equal exactly when their expressions are.

use gabion_codec::{Code, gf};
use gabion_layout::ChunkIndex;

/// A data row before or after the plan. The packed order is: version, chunk, row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Symbol(u32);

impl Symbol {
    pub(crate) fn old(chunk: usize, row: usize) -> Self {
        Self((chunk as u32) << 16 | row as u32)
    }

    pub(crate) fn new(chunk: usize, row: usize) -> Self {
        Self(1 << 31 | (chunk as u32) << 16 | row as u32)
    }

    pub(crate) fn describe(self) -> String {
        let version = if self.0 >> 31 == 1 { "new" } else { "old" };
        format!("{version}({},{})", self.0 >> 16 & 0x7fff, self.0 & 0xffff)
    }
}

/// A sum of coefficient times symbol. Invariant: sorted by symbol, no coefficient is 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Expression(Vec<(Symbol, u8)>);

impl Expression {
    pub(crate) fn of(symbol: Symbol) -> Self {
        Self(vec![(symbol, 1)])
    }

    /// The sum of coefficient times expression. All symbols are collected before they are sorted,
    /// so the work grows with the summands' length and not with their number times the sum.
    pub(crate) fn sum<'a>(terms: impl Iterator<Item = (u8, &'a Self)>) -> Self {
        let mut all = Vec::new();
        for (coefficient, expression) in terms {
            let scaled = |&(symbol, c): &(Symbol, u8)| (symbol, gf::multiply(coefficient, c));
            all.extend(expression.0.iter().map(scaled));
        }
        all.sort_unstable_by_key(|&(symbol, _)| symbol);
        all.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 ^= next.1;
            }
            is_same
        });
        all.retain(|&(_, coefficient)| coefficient != 0);
        Self(all)
    }

    /// Number of symbols in it.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A stored row of a chunk, data or parity, before the plan.
    pub(crate) fn stored(code: &Code, chunk: ChunkIndex, row: usize) -> Self {
        Self::row(code, chunk, row, Symbol::old)
    }

    /// A row of a chunk, data or parity, in the stripe of new data only.
    pub(crate) fn encoded(code: &Code, chunk: ChunkIndex, row: usize) -> Self {
        Self::row(code, chunk, row, Symbol::new)
    }

    fn row(code: &Code, chunk: ChunkIndex, row: usize, symbol: fn(usize, usize) -> Symbol) -> Self {
        if chunk.at() < code.k() {
            return Self::of(symbol(chunk.at(), row));
        }
        let mut terms = Vec::with_capacity(code.k());
        for data in 0..code.k() {
            for data_row in 0..code.sub_chunks() {
                let coefficient = code.coefficient(chunk.at(), row, data, data_row);
                if coefficient != 0 {
                    terms.push((symbol(data, data_row), coefficient));
                }
            }
        }
        Self(terms)
    }

    /// Adds another expression. Adding it twice removes it.
    pub(crate) fn add(&mut self, other: &Self) {
        *self = Self::sum([(1, &*self), (1, other)].into_iter());
    }

    pub(crate) fn describe(&self) -> String {
        if self.0.is_empty() {
            return "0".to_owned();
        }
        let terms: Vec<String> = self
            .0
            .iter()
            .map(|(symbol, c)| format!("{c}*{}", symbol.describe()))
            .collect();
        terms.join(" + ")
    }
}
