//! The inventory that a node reports when it joins, and the decisions that it then makes durable:
//! both cover many stripes at a time, so that neither needs a sync for each stripe.

use crate::error::StoreError;
use crate::index::Stripe;
use crate::records::record::{StripeState, UpdateStamp};
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, Generation, Sequence, StripeId};

/// A stripe of which the store holds chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldStripe {
    /// The stripe.
    pub stripe: StripeId,
    /// Its chunks here, each with its generation, in their order. Chunks with a damaged header are
    /// left out.
    pub chunks: Vec<(ChunkIndex, Generation)>,
    /// The store's state above the mark.
    pub state: StripeState,
}

/// Some stripes in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldPage {
    /// The stripes.
    pub stripes: Vec<HeldStripe>,
    /// The last stripe examined; none if no stripe follows.
    pub upto: Option<StripeId>,
}

/// The decision about updates of a stripe that the store had left undecided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The stripe.
    pub stripe: StripeId,
    /// Earlier epochs are refused from now on, and their records that are not in `stands` are
    /// dropped.
    pub epoch: Epoch,
    /// Earlier generations are refused from now on.
    pub generation: Generation,
    /// Records above the mark that stand, in order.
    pub stands: Vec<(Epoch, Sequence)>,
}

impl Store {
    /// Number of chunks here, with those with damaged headers.
    pub fn chunk_count(&self) -> u64 {
        let state = self.shared.lock();
        state.index.chunks().count() as u64
    }

    /// Stripes behind `after`, until they have `limit` chunks and unsettled records between them.
    /// The reported state is durable; one sync covers all.
    ///
    /// # Errors
    /// [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn held_page(&self, after: Option<StripeId>, limit: usize) -> Result<HeldPage, StoreError> {
        let mut page = HeldPage::default();
        let (mut last, mut count) = (after, 0);
        loop {
            let next = self.shared.lock().index.stripe_behind(last);
            let Some(stripe) = next else { break };
            if count >= limit {
                page.upto = last;
                break;
            }
            last = Some(stripe);
            if let Some(held) = self.held_stripe(stripe)? {
                count += held.chunks.len() + held.state.records.len();
                page.stripes.push(held);
            }
        }
        self.shared
            .sync_held(page.stripes.iter().map(|held| held.stripe))?;
        Ok(page)
    }

    /// Like [`Store::held_page`] for the given stripes; stripes that are not here are left out.
    ///
    /// # Errors
    /// As [`Store::held_page`].
    pub fn held_stripes(&self, stripes: &[StripeId]) -> Result<Vec<HeldStripe>, StoreError> {
        let held = stripes.iter().map(|&stripe| self.held_stripe(stripe));
        let held: Vec<HeldStripe> = held
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        self.shared.sync_held(held.iter().map(|held| held.stripe))?;
        Ok(held)
    }

    fn held_stripe(&self, stripe: StripeId) -> Result<Option<HeldStripe>, StoreError> {
        let mut state = self.shared.lock();
        let found = match state.held(stripe) {
            Ok(found) => found,
            // It was removed after the listing.
            Err(StoreError::NoSuchStripe { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let ids = state.index.stripe(stripe);
        let ids = ids.map_or_else(Vec::new, |known| known.chunk_ids(stripe).collect());
        let mut chunks = Vec::with_capacity(ids.len());
        for chunk in ids {
            match state.header(chunk) {
                Ok(header) => chunks.push((chunk.index, header.spec.generation)),
                Err(StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(HeldStripe {
            stripe,
            chunks,
            state: found,
        }))
    }

    /// Makes decisions durable that the others took while this store was away, with one journal
    /// sync for all. Stripes that are not here are skipped. Returns the chunks that the decisions
    /// have cost, because dropped records could not be taken out of their reserves: their headers are
    /// damaged now.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], [`StoreError::Io`] and [`StoreError::Failed`]; some of the
    /// decisions may be durable then, and may have cost chunks.
    pub fn adopt_decisions(&self, decisions: &[Decision]) -> Result<Vec<ChunkId>, StoreError> {
        let (mut needed_lsn, mut chunks) = (0, Vec::new());
        for decision in decisions {
            if let Some((epoch, dropped)) = self.shared.fence_off(decision)? {
                let last = decision.stands.last().map(|&(_, sequence)| sequence);
                let mark = last.unwrap_or_default();
                let stripe = decision.stripe;
                let resolved = self.shared.resolve(stripe, epoch, mark, &dropped)?;
                needed_lsn = needed_lsn.max(resolved.lsn);
                chunks.extend(resolved.lost);
            }
        }
        self.shared.sync(needed_lsn)?;
        Ok(chunks)
    }
}

impl Shared {
    /// Makes the reported state of stripes durable.
    pub(crate) fn sync_held(
        &self,
        stripes: impl IntoIterator<Item = StripeId>,
    ) -> Result<(), StoreError> {
        let (needed_lsn, reserve_ends) = {
            let state = self.lock();
            let stripes = stripes.into_iter();
            let ends = stripes.flat_map(|stripe| state.reserve_ends(stripe));
            (state.journal.needed_lsn(), ends.collect::<Vec<_>>())
        };
        self.sync(needed_lsn)?;
        for (chunk, end_lsn) in reserve_ends {
            self.sync_reserve(chunk, end_lsn)?;
        }
        Ok(())
    }

    /// Refuses, not yet durably, everything before a decision, and returns the records that it
    /// drops. None if its stripe is not here.
    fn fence_off(&self, decision: &Decision) -> Result<Option<(Epoch, Vec<Sequence>)>, StoreError> {
        let Decision {
            stripe,
            epoch,
            generation,
            stands,
        } = decision;
        let mut state = self.lock();
        self.check_latch()?;
        let known = match state.held(*stripe) {
            Ok(known) => known,
            // The chunk was obsolete.
            Err(StoreError::NoSuchStripe { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // A later term may have fenced this node since, without reaching a decision.
        let own_epoch = known.epoch.max(*epoch);
        let own_generation = known.generation.max(*generation);
        self.promise(&mut state, *stripe, own_epoch, own_generation)?;
        // Records that arrived after the report are of a past term, and are dropped too.
        let stands = |stamp: &UpdateStamp| stands.contains(&(stamp.epoch, stamp.sequence));
        let past = known.records.iter().map(|record| record.stamp);
        let past = past.filter(|stamp| stamp.epoch < *epoch && !stands(stamp));
        Ok(Some((
            own_epoch,
            past.map(|stamp| stamp.sequence).collect(),
        )))
    }
}

impl State {
    /// The ends of the reserves of a stripe's chunks.
    fn reserve_ends(&self, stripe: StripeId) -> Vec<(ChunkId, u64)> {
        let chunks = self.index.stripe(stripe).into_iter();
        let chunks = chunks.flat_map(Stripe::chunks);
        let ends = chunks.filter_map(|(index, chunk)| {
            let end_lsn = chunk.reserve()?.end_lsn();
            Some((ChunkId { stripe, index }, end_lsn))
        });
        ends.collect()
    }
}
