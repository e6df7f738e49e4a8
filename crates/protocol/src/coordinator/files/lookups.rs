//! Look-ups: lists of files, and the layout of a part of a file.
//!
//! A file may have millions of stripes, so a layout describes a part of it, its *window*. Windows are aligned, so
//! that those of one file do not overlap.

use super::Files;
use crate::coordinator::core::Answer;
use crate::coordinator::pool_facts::Pools;
use crate::message::{FileLayout, InlineBytes, ask};
use crate::ticket::Operations;
use gabion_layout::{ByteRange, StripeRecord};
use gabion_meta::{
    FILE_BYTES_MAX, FilePart, FileRecord, KeyValue, Listing, Meta, MetaError, PoolRecord, Symlink,
};
use std::sync::Arc;

/// Most entries of a page of a list: one message holds them, whatever their names.
const LISTED_MAX: u64 = 1_000;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// A page of the files whose names have a prefix.
    pub(in crate::coordinator) async fn list(&self, page: ask::List) -> Answer<Listing> {
        let list = move |meta: &Meta<K>| list(meta, &page);
        Ok(self.core.with_meta(list).await?)
    }

    /// The file with a name, and its first window.
    pub(in crate::coordinator) async fn lookup(
        self: &Arc<Self>,
        name: String,
    ) -> Answer<Box<FileLayout>> {
        let this = Arc::clone(self);
        let look =
            move |meta: &Meta<K>| first_window(meta, &this.pools, &name, this.window_count());
        let layout = self.core.with_meta(look).await?;
        Ok(self.usable(layout))
    }

    /// The file that a put made, and the window that has the byte at an offset.
    pub(in crate::coordinator) async fn lookup_file(
        self: &Arc<Self>,
        asked: ask::LookupFile,
    ) -> Answer<Option<Box<FileLayout>>> {
        let ask::LookupFile { file, offset } = asked;
        let this = Arc::clone(self);
        let look = move |meta: &Meta<K>| {
            let file = meta.file_of(file)?;
            window_of(meta, &this.pools, (&file, offset), this.window_count())
        };
        match self.core.with_meta(look).await {
            Ok(layout) => Ok(Some(self.usable(layout))),
            Err(MetaError::FileGone(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A layout with the nodes, and with tickets for its stripes.
    fn usable(&self, layout: FileLayout) -> Box<FileLayout> {
        let nodes = self.nodes.statuses();
        let (put, operations) = (layout.file.put, Operations::OF_FILE);
        let tickets = self.tickets.grant(put, &layout.stripes, operations);
        Box::new(FileLayout {
            tickets,
            nodes,
            ..layout
        })
    }

    fn window_count(&self) -> u64 {
        self.core.options.window_stripe_count
    }
}

/// A page of a list.
pub(in crate::coordinator) fn list<K: KeyValue>(
    meta: &Meta<K>,
    page: &ask::List,
) -> Result<Listing, MetaError> {
    let limit = page.limit.clamp(1, LISTED_MAX) as usize;
    let (after, delimiter) = (page.after.as_deref(), page.delimiter.as_deref());
    meta.list(&page.prefix, after, delimiter, limit)
}

/// The file with a name, and its first window, without the nodes and tickets.
pub(in crate::coordinator) fn first_window<K: KeyValue>(
    meta: &Meta<K>,
    pools: &Pools,
    name: &str,
    stripe_count: u64,
) -> Result<FileLayout, MetaError> {
    loop {
        let file = meta.file(name)?;
        if let Some(Symlink { target }) = file.symlink {
            let name = name.to_owned();
            return Err(MetaError::IsASymlink { name, target });
        }
        match window_of(meta, pools, (&file, 0), stripe_count) {
            // Another file may have the name by now, or none.
            Err(MetaError::FileGone(_)) => {}
            Ok(layout) if layout.file.generation != file.generation => {}
            Ok(mut layout) => {
                layout.file.name = file.name;
                return Ok(layout);
            }
            failed => return failed,
        }
    }
}

/// The window of a file with the byte at an offset, without the nodes and tickets. A file keeps its put and its pool.
pub(in crate::coordinator) fn window_of<K: KeyValue>(
    meta: &Meta<K>,
    pools: &Pools,
    (file, offset): (&FileRecord, u64),
    stripe_count: u64,
) -> Result<FileLayout, MetaError> {
    let facts = pools.facts(meta, file.pool)?;
    let encoded = pools.encoded_of(meta, &facts)?;
    let (pool, encoded) = (facts.record.clone(), encoded.map(|e| e.record.clone()));
    let window = window_at(&pool, encoded.as_ref(), stripe_count, offset);
    let (file, part) = meta.layout_within(file.put, window)?;
    let FilePart {
        stripes,
        before,
        behind,
        shared,
        inline,
    } = part;
    let (offsets, stripes): (Vec<u64>, Vec<StripeRecord>) = stripes.into_iter().unzip();
    let may_append = |pool: &PoolRecord| pool.spec.append.is_some();
    let appending = if may_append(&pool) || encoded.as_ref().is_some_and(may_append) {
        meta.appending(&stripes)?
    } else {
        Vec::new()
    };
    let exclusive = meta.exclusive(file.put)?;
    let version = file.inline.map_or(0, |inline| inline.version);
    let inline = inline.map(|bytes| InlineBytes {
        version,
        bytes: bytes.into(),
    });
    Ok(FileLayout {
        file,
        pool,
        encoded,
        window,
        before,
        behind,
        stripes,
        offsets,
        appending,
        shared,
        inline,
        tickets: Vec::new(),
        nodes: Vec::new(),
        exclusive,
    })
}

/// The window of a file with the byte at an offset: as many whole segments as have at most `stripe_count` stripes,
/// or one.
fn window_at(
    pool: &PoolRecord,
    encoded: Option<&PoolRecord>,
    stripe_count: u64,
    offset: u64,
) -> ByteRange {
    let (segment_bytes, per_segment) = match encoded {
        // Until it is encoded, a segment is as many blocks as the code has data chunks.
        Some(encoded) => (encoded.spec.segment_bytes(), encoded.spec.k as u64),
        None => (pool.spec.segment_bytes(), 1),
    };
    let segment_count = (stripe_count / per_segment).max(1);
    let length = segment_bytes.saturating_mul(segment_count);
    let offset = offset.min(FILE_BYTES_MAX);
    let start = offset - offset % length;
    ByteRange::new(start, length.min(u64::MAX - start))
}
