//! Changes in memory over the rows of a file, as one ordered map.

use crate::error::MetaError;
use crate::kv::Row;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::{Peekable, Rev};
use std::ops::Bound;

/// Changes by key: a row's new value, or none if it is removed.
pub(crate) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A change, as a layer has it.
type Change<'c> = (&'c Vec<u8>, &'c Option<Vec<u8>>);

/// The first `limit` rows with `start <= key < end` of layers of changes, the uppermost first, over the file's `rows`
/// of this range.
///
/// # Errors
/// That of a row of the file.
pub(crate) fn scan<'c>(
    layers: impl Iterator<Item = &'c Changes>,
    rows: impl Iterator<Item = Result<Row, MetaError>>,
    (start, end): (&[u8], &[u8]),
    limit: usize,
) -> Result<Vec<Row>, MetaError> {
    let layers = layers.map(|layer| range(layer, start, end).peekable());
    let mut merge = Merge {
        layers: layers.collect(),
        rows: rows.peekable(),
        is_first: |a, b| a < b,
    };
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = merge.next()?
    {
        found.push(row);
    }
    Ok(found)
}

/// The last row of the range. The file's `rows` come from its end.
///
/// # Errors
/// That of a row of the file.
pub(crate) fn last<'c>(
    layers: impl Iterator<Item = &'c Changes>,
    rows: impl Iterator<Item = Result<Row, MetaError>>,
    (start, end): (&[u8], &[u8]),
) -> Result<Option<Row>, MetaError> {
    let layers = layers.map(|layer| range(layer, start, end).rev().peekable());
    let mut merge: Merge<Rev<Range<'_, _, _>>, _> = Merge {
        layers: layers.collect(),
        rows: rows.peekable(),
        is_first: |a, b| a > b,
    };
    merge.next()
}

fn range<'c>(layer: &'c Changes, start: &[u8], end: &[u8]) -> Range<'c, Vec<u8>, Option<Vec<u8>>> {
    layer.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
}

/// Rows of several sources, each in the same order. The uppermost layer with a key has its row.
struct Merge<L: Iterator, R: Iterator> {
    layers: Vec<Peekable<L>>,
    rows: Peekable<R>,
    is_first: fn(&[u8], &[u8]) -> bool,
}

impl<'c, L, R> Merge<L, R>
where
    L: Iterator<Item = Change<'c>>,
    R: Iterator<Item = Result<Row, MetaError>>,
{
    fn next(&mut self) -> Result<Option<Row>, MetaError> {
        loop {
            let Some(key) = self.first_key()? else {
                return Ok(None);
            };
            let mut value = None;
            for layer in &mut self.layers {
                if let Some((_, change)) = layer.next_if(|(of, _)| **of == key) {
                    value = value.or(Some(change.clone()));
                }
            }
            let row = self
                .rows
                .next_if(|row| matches!(row, Ok((of, _)) if *of == key));
            let of_file = row.transpose()?.map(|(_, value)| value);
            if let Some(value) = value.unwrap_or(of_file) {
                return Ok(Some((key, value)));
            }
        }
    }

    /// The next key of all sources.
    fn first_key(&mut self) -> Result<Option<Vec<u8>>, MetaError> {
        let mut first: Option<&[u8]> = match self.rows.peek() {
            None => None,
            Some(Ok((key, _))) => Some(key),
            Some(Err(error)) => return Err(error.clone()),
        };
        for layer in &mut self.layers {
            if let Some((key, _)) = layer.peek()
                && first.is_none_or(|first| (self.is_first)(key, first))
            {
                first = Some(key);
            }
        }
        Ok(first.map(<[u8]>::to_vec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(all: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<Result<Row, MetaError>> {
        let rows = all.iter();
        rows.map(|(key, value)| Ok((key.clone(), value.clone())))
            .collect()
    }

    proptest! {
        #[test]
        fn layers_look_like_the_map_with_all_changes(
            file in prop::collection::btree_map(prop::collection::vec(0..3u8, 1..3), prop::collection::vec(0..9u8, 1), 0..9),
            lower in prop::collection::btree_map(prop::collection::vec(0..3u8, 1..3), prop::option::of(prop::collection::vec(10..19u8, 1)), 0..9),
            upper in prop::collection::btree_map(prop::collection::vec(0..3u8, 1..3), prop::option::of(prop::collection::vec(20..29u8, 1)), 0..9),
            limit in 0..12usize,
            (start, end) in (prop::collection::vec(0..3u8, 0..3), prop::collection::vec(0..3u8, 0..3)),
        ) {
            prop_assume!(start < end);
            let mut expected = file.clone();
            for (key, change) in lower.iter().chain(&upper) {
                match change {
                    Some(value) => expected.insert(key.clone(), value.clone()),
                    None => expected.remove(key),
                };
            }
            expected.retain(|key, _| start <= *key && *key < end);
            let of_file = || rows(&file).into_iter().filter(|row| {
                row.as_ref().is_ok_and(|(key, _)| start <= *key && *key < end)
            });
            let layers = || [&upper, &lower].into_iter();
            let found = scan(layers(), of_file(), (&start, &end), limit).unwrap();
            let all: Vec<Row> = expected.into_iter().collect();
            prop_assert_eq!(&found[..], &all[..limit.min(all.len())]);
            let found = last(layers(), of_file().rev(), (&start, &end)).unwrap();
            prop_assert_eq!(found, all.last().cloned());
        }
    }
}
