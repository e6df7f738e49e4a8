//! Inline files: small files whose bytes are in the metadata.

use super::Files;
use super::puts::Begun;
use crate::coordinator::core::Answer;
use crate::coordinator::pool_facts::PoolFacts;
use crate::message::{Cause, Denial, InlineWritten, WholeFile, ask};
use gabion_meta::{Existing, InlineWrite, KeyValue, Meta, MetaError, NewAttributes, RelativePath};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Stores a whole file inline. Waits for the disk.
    pub(super) fn store_inline(
        &self,
        meta: &Meta<K>,
        new: &(RelativePath, Existing, NewAttributes),
        facts: Arc<PoolFacts>,
        (size_bytes, whole): (u64, &WholeFile),
    ) -> Result<Begun, MetaError> {
        let found_bytes = whole.bytes.len() as u64;
        if found_bytes != size_bytes {
            let denial = Denial::new(
                Cause::Invalid,
                format!("the request has {found_bytes} bytes of a file of {size_bytes}"),
            );
            return Ok(Begun::Rejected(denial.into()));
        }
        let (pool, created_ms) = (facts.record.id, self.core.lifetime_ms());
        let (put, file) = meta.with_room(self.core.options.discarded_count, || {
            meta.put_inline(new.clone(), pool, &whole.bytes, (whole.number, created_ms))
        })?;
        let file = file.map(Box::new);
        Ok(Begun::Stored { put, file, facts })
    }

    /// Changes bytes of an inline file.
    pub(in crate::coordinator) async fn write_inline(
        self: &Arc<Self>,
        asked: ask::WriteInline,
    ) -> Answer<InlineWritten> {
        let write = move |meta: &Meta<K>| {
            let write = InlineWrite {
                version: asked.version,
                offset: asked.offset,
                bytes: &asked.bytes,
                token: asked.token,
                number: asked.number,
            };
            match meta.write_inline(asked.file, &write) {
                // The quota may have room when a late copy of the request arrives, and the client takes the answer as
                // final.
                Err(MetaError::Quota(_)) if meta.refuse(asked.number)? => {
                    meta.write_inline(asked.file, &write)
                }
                written => written,
            }
        };
        match self.core.with_meta(write).await {
            Ok(file) => Ok(InlineWritten::Made(file.map(Box::new))),
            // With a new layout, the client may succeed or learn the reason.
            Err(MetaError::FileChanged(_) | MetaError::Superseded { .. }) => {
                Ok(InlineWritten::NotMade)
            }
            Err(error) => Err(error.into()),
        }
    }
}
