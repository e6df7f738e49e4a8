//! Inline files: small files whose bytes are in the metadata.

use super::Files;
use crate::coordinator::core::Answer;
use crate::coordinator::pool_facts::PoolFacts;
use crate::message::{Cause, CoordinatorReply, Denial, InlineWritten, WholeFile, ask};
use gabion_meta::{Existing, InlineWrite, KeyValue, Meta, MetaError, NewAttributes, RelativePath};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Stores a whole file inline.
    pub(super) async fn put_inline(
        self: &Arc<Self>,
        (at, existing, attributes): (RelativePath, Existing, NewAttributes),
        facts: &PoolFacts,
        (size_bytes, whole): (u64, WholeFile),
    ) -> Answer {
        let found_bytes = whole.bytes.len() as u64;
        if found_bytes != size_bytes {
            return Err(Denial::new(
                Cause::Invalid,
                format!("the request has {found_bytes} bytes of a file of {size_bytes}"),
            ));
        }
        let (pool, created_ms) = (facts.record.id, self.core.lifetime_ms());
        let limit = self.core.options.discarded_count;
        let store = move |meta: &Meta<K>| {
            meta.with_room(limit, || {
                let new = (at.clone(), existing, attributes);
                meta.put_inline(new, pool, &whole.bytes, (whole.number, created_ms))
            })
        };
        let (put, file) = self.core.with_meta(store).await?;
        // The stripes of the file that it has replaced are garbage.
        self.leftovers.wake();
        let (file, pool) = (file.map(Box::new), Box::new(facts.record.clone()));
        Ok(CoordinatorReply::Stored { put, file, pool })
    }

    /// Changes bytes of an inline file.
    pub(in crate::coordinator) async fn write_inline(
        self: &Arc<Self>,
        asked: ask::WriteInline,
    ) -> Answer {
        let write = move |meta: &Meta<K>| {
            let write = InlineWrite {
                version: asked.version,
                offset: asked.offset,
                bytes: &asked.bytes,
                token: asked.token,
                number: asked.number,
            };
            match meta.write_inline(asked.file, &write) {
                // The quota may have room when a late copy of the request arrives, and the client takes the answer as final.
                Err(MetaError::Quota(_)) if meta.refuse(asked.number)? => {
                    meta.write_inline(asked.file, &write)
                }
                written => written,
            }
        };
        match self.core.with_meta(write).await {
            Ok(file) => {
                let file = file.map(Box::new);
                Ok(CoordinatorReply::InlineWritten(InlineWritten::Made(file)))
            }
            // With a new layout, the client may succeed or learn the reason.
            Err(MetaError::FileChanged(_) | MetaError::Superseded { .. }) => {
                Ok(CoordinatorReply::InlineWritten(InlineWritten::NotMade))
            }
            Err(error) => Err(error.into()),
        }
    }
}
