//! Look-ups: lists of files, and the layout of a part of a file.
//!
//! A file may have millions of stripes, so a layout describes a part of it, its *window*. Windows are aligned, so
//! that those of one file do not overlap.

use super::Files;
use crate::coordinator::core::Answer;
use crate::message::{CoordinatorReply, FileLayout, InlineBytes, ask};
use crate::ticket::Operations;
use gabion_layout::{ByteRange, StripeRecord};
use gabion_meta::{
    FILE_BYTES_MAX, FilePart, FileRecord, KeyValue, Meta, MetaError, PoolRecord, Symlink,
};
use std::sync::Arc;

/// Most entries of a page of a list: one message holds them, whatever their names.
const LISTED_MAX: u64 = 1_000;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// A page of the files whose names have a prefix.
    pub(in crate::coordinator) async fn list(&self, page: ask::List) -> Answer {
        let ask::List {
            prefix,
            after,
            delimiter,
            limit,
        } = page;
        let limit = limit.clamp(1, LISTED_MAX) as usize;
        let list =
            move |meta: &Meta<K>| meta.list(&prefix, after.as_deref(), delimiter.as_deref(), limit);
        Ok(CoordinatorReply::Listing(self.core.with_meta(list).await?))
    }

    /// The file with a name, and its first window.
    pub(in crate::coordinator) async fn lookup(self: &Arc<Self>, name: String) -> Answer {
        let this = Arc::clone(self);
        let look = move |meta: &Meta<K>| {
            loop {
                let file = meta.file(&name)?;
                if let Some(Symlink { target }) = file.symlink {
                    let name = name.clone();
                    return Err(MetaError::IsASymlink { name, target });
                }
                match this.window(meta, &file, 0) {
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
        };
        let layout = self.core.with_meta(look).await?;
        Ok(CoordinatorReply::File(Box::new(self.usable(layout))))
    }

    /// The file that a put made, and the window that has the byte at an offset.
    pub(in crate::coordinator) async fn lookup_file(
        self: &Arc<Self>,
        asked: ask::LookupFile,
    ) -> Answer {
        let ask::LookupFile { file, offset } = asked;
        let this = Arc::clone(self);
        let look = move |meta: &Meta<K>| this.window(meta, &meta.file_of(file)?, offset);
        match self.core.with_meta(look).await {
            Ok(layout) => Ok(CoordinatorReply::File(Box::new(self.usable(layout)))),
            Err(MetaError::FileGone(_)) => Ok(CoordinatorReply::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// A layout with the nodes, and with tickets for its stripes.
    fn usable(&self, layout: FileLayout) -> FileLayout {
        let nodes = self.nodes.statuses();
        let (put, operations) = (layout.file.put, Operations::OF_FILE);
        let tickets = self.tickets.grant(put, &layout.stripes, operations);
        FileLayout {
            tickets,
            nodes,
            ..layout
        }
    }

    /// The window of a file with the byte at an offset, without the nodes and tickets. A file keeps its put and its pool.
    fn window(
        &self,
        meta: &Meta<K>,
        file: &FileRecord,
        offset: u64,
    ) -> Result<FileLayout, MetaError> {
        let facts = self.pools.facts(meta, file.pool)?;
        let encoded = self.pools.encoded_of(meta, &facts)?;
        let (pool, encoded) = (facts.record.clone(), encoded.map(|e| e.record.clone()));
        let count = self.core.options.window_stripe_count;
        let window = window_at(&pool, encoded.as_ref(), count, offset);
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
