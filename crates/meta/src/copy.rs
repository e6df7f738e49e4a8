//! Copies of all metadata from one store to another, whatever their engines.

use crate::error::MetaError;
use crate::kv::{KeyValue, Row};
use crate::meta::{check_format, require_blank};
use crate::schema::{CLUSTER, FORMATS};
use crate::table::hexadecimal;
use gabion_layout::ClusterId;

/// Rows of a page, which is one transaction.
const PAGE: usize = 4096;
/// The keys of the rows without which a store holds no cluster: the format's and the cluster's.
const HEAD: (&[u8], &[u8]) = (&[0], &[2]);
/// The keys of all others.
const BODY: (&[u8], &[u8]) = (&[2], &[u8::MAX]);

/// The result of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The cluster.
    pub cluster: ClusterId,
    /// Number of rows.
    pub row_count: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Copies all rows to an empty store, and compares both row by row at the end. The rows that make it a cluster's come
/// last: a copy that is cut short opens as no cluster and is no store for a new one. The caller ensures that nothing
/// changes either store during the copy.
///
/// # Errors
/// [`MetaError::NoCluster`], [`MetaError::NewerFormat`] or [`MetaError::OlderFormat`] for a source that this program
/// does not read; [`MetaError::NotBlank`] for a target with rows; [`MetaError::CopyDiffers`]; errors of either store.
pub fn copy_rows(from: &impl KeyValue, to: &impl KeyValue) -> Result<Copied, MetaError> {
    let cluster = from.read(|txn| {
        check_format(FORMATS.get(txn, &())?)?;
        CLUSTER.get(txn, &())?.ok_or(MetaError::NoCluster)
    })?;
    to.read(require_blank)?;
    let mut copied = Copied {
        cluster,
        row_count: 0,
        bytes: 0,
    };
    for range in [BODY, HEAD] {
        each_page(from, range, |page| {
            to.write(|txn| {
                let mut rows = page.iter();
                rows.try_for_each(|(key, value)| txn.put(key, value))
            })?;
            copied.row_count += page.len() as u64;
            let bytes = page.iter().map(|(key, value)| key.len() + value.len());
            copied.bytes += bytes.sum::<usize>() as u64;
            Ok(())
        })?;
    }
    compare(from, to)?;
    Ok(copied)
}

/// Refuses a copy that differs from its source.
fn compare(from: &impl KeyValue, to: &impl KeyValue) -> Result<(), MetaError> {
    let mut behind = vec![0];
    loop {
        let ours = from.read(|txn| txn.scan(&behind, BODY.1, PAGE))?;
        let theirs = to.read(|txn| txn.scan(&behind, BODY.1, PAGE))?;
        if ours != theirs {
            let differs = ours.iter().zip(&theirs).find(|(our, their)| our != their);
            let longer = ours.get(theirs.len()).or(theirs.get(ours.len()));
            let key = differs.map(|(our, _)| our).or(longer).map(|(key, _)| key);
            let key = hexadecimal(key.map_or(&[], Vec::as_slice));
            return Err(MetaError::CopyDiffers { key });
        }
        let Some((last, _)) = ours.last() else {
            return Ok(());
        };
        behind = [last.as_slice(), &[0]].concat();
    }
}

/// Visits the rows of a range page by page.
fn each_page(
    store: &impl KeyValue,
    (start, end): (&[u8], &[u8]),
    mut visit: impl FnMut(&[Row]) -> Result<(), MetaError>,
) -> Result<(), MetaError> {
    let mut start = start.to_vec();
    loop {
        let page = store.read(|txn| txn.scan(&start, end, PAGE))?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        start = [last.as_slice(), &[0]].concat();
        visit(&page)?;
    }
}
