//! Replacements: they make a write that spans stripes one atomic change. The client writes new
//! stripes beside the old ones, and the commit puts them into the file in one transaction.
//!
//! A replacement is a put whose stripes go into an existing file; it is touched, expires and is
//! aborted like any put. From before the client reads the old stripes until the commit, no other
//! client may update them, so the coordinator holds their leases. The commit checks the leases: any
//! other holder since has a higher epoch. A replacement of an earlier run of the coordinator is
//! valid as long as there is none.

use crate::displaced::{check_held, discard};
use crate::error::MetaError;
use crate::extents::displaced_extents;
use crate::files::file_of;
use crate::kv::KeyValue;
use crate::meta::Meta;
use crate::pending::surviving_stripes;
use crate::pools::{left_out_max, pool};
use crate::predecessors::check_alone;
use crate::puts::{Put, check_nodes, check_not_committed, end_committed, put_record, reserve};
use crate::records::{Displaced, Extent, Placement, PutId, PutTarget, ReplacementRecord};
use crate::schema::{EXTENTS, PENDING, PREDECESSORS, REPLACEMENTS, STRIPES};
use crate::stripe_rows::{index_stripe, live_stripe};
use gabion_layout::{NodeId, StripeRecord};
use std::collections::BTreeSet;

impl<K: KeyValue> Meta<K> {
    /// Begins to replace stripes of the file that the put `file` made, whatever its name, in the file's order: the new
    /// stripes have their chunk sizes and lie on `nodes`, one set each. The coordinator holds the
    /// leases of the old stripes under the given epochs and has settled them.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::UnknownStripe`] when a
    /// stripe is not the file's or out of order; [`MetaError::LeaseLost`]; [`MetaError::Held`] while nodes
    /// may serve stripes that one of them has replaced;
    /// [`MetaError::Placement`], [`MetaError::UnknownNode`] and [`MetaError::NodeFailed`] as for a
    /// put; [`MetaError::IdsExhausted`].
    ///
    /// # Panics
    /// Unless there is one set of nodes for each stripe.
    pub fn begin_replacement(
        &self,
        file: PutId,
        displaced: &[Displaced],
        nodes: &[Vec<NodeId>],
        now_ms: u64,
    ) -> Result<Put, MetaError> {
        assert_eq!(
            displaced.len(),
            nodes.len(),
            "one set of nodes for each stripe"
        );
        self.change(|txn| {
            file_of(txn, file)?;
            displaced_extents(txn, file, displaced)?;
            let mut placements = Vec::with_capacity(displaced.len());
            for (old, nodes) in displaced.iter().zip(nodes) {
                check_held(txn, *old)?;
                check_alone(txn, *old, self.incarnation())?;
                let replaced = live_stripe(txn, old.stripe)?;
                let place = Placement {
                    chunk_bytes: replaced.chunk_bytes,
                    nodes: nodes.clone(),
                };
                placements.push((replaced.pool, place));
            }
            let mut failed = BTreeSet::new();
            for (pool_id, place) in &placements {
                let (pool, place) = (pool(txn, *pool_id)?, std::slice::from_ref(place));
                failed.append(&mut check_nodes(
                    txn,
                    &pool.spec,
                    place,
                    left_out_max(&pool),
                )?);
            }
            let placements: Vec<_> = placements
                .iter()
                .map(|(pool, place)| (*pool, place))
                .collect();
            let put = reserve(txn, PutTarget::Stripes(file), &placements, &failed, now_ms)?;
            let displaced = displaced.to_vec();
            REPLACEMENTS.put(txn, &put.id, &ReplacementRecord { file, displaced })?;
            Ok(put)
        })
    }

    /// Replaces the old stripes by the new ones. The old ones become garbage, and their leases end. No node
    /// becomes the primary of a new one while the old one may be served.
    /// The caller guarantees that every new chunk is durable on its node. After an error the
    /// replacement remains open, but can only be aborted.
    ///
    /// The file's identity stays: its [`FileRecord::put`](crate::FileRecord::put) does not change.
    ///
    /// # Errors
    /// [`MetaError::CommittedBefore`] when a commit with a lost answer is repeated, until 65,536
    /// more puts have begun; [`MetaError::UnknownPut`]; [`MetaError::FileGone`];
    /// [`MetaError::UnknownStripe`] when an old stripe no longer
    /// belongs to the file; [`MetaError::LeaseLost`] when it may have been updated since; [`MetaError::PutLost`].
    pub fn commit_replacement(&self, put: PutId) -> Result<Vec<StripeRecord>, MetaError> {
        self.change(|txn| {
            check_not_committed(txn, put)?;
            let record = REPLACEMENTS.get(txn, &put)?;
            let record = record.ok_or(MetaError::UnknownPut(put))?;
            let put_row = put_record(txn, put)?;
            let stripes = surviving_stripes(txn, &put_row)?;
            let file = file_of(txn, record.file)?;
            let extents = displaced_extents(txn, file.put, &record.displaced)?;
            if stripes.len() != extents.len() {
                let reason = format!("{} stripes are to replace others", stripes.len());
                return Err(REPLACEMENTS.contradiction(&put, reason));
            }
            for ((new, old), (_, (offset, extent))) in
                stripes.iter().zip(&record.displaced).zip(extents)
            {
                check_held(txn, *old)?;
                discard(txn, old.stripe)?;
                PENDING.delete(txn, &new.id)?;
                STRIPES.put(txn, &new.id, new)?;
                index_stripe(txn, new)?;
                PREDECESSORS.put(txn, &new.id, &vec![old.stripe])?;
                let stripe = new.id;
                EXTENTS.put(txn, &(file.put, offset), &Extent { stripe, ..extent })?;
            }
            REPLACEMENTS.delete(txn, &put)?;
            end_committed(txn, put)?;
            Ok(stripes)
        })
    }
}
