//! Stripes in an append phase (CAU, section 3.1): they may have updates that parity does not
//! include, protected by their copies only. The note is durable before the first of these is made,
//! and is removed after a commit; so it may exist without such updates, but never the reverse, not
//! even when a request arrives once more after later ones.

use crate::error::MetaError;
use crate::kv::KeyValue;
use crate::leases::check_term;
use crate::meta::Meta;
use crate::records::Phase;
use crate::schema::{LEASES, PHASES};
use gabion_layout::{Epoch, Sequence, StripeId, StripeRecord};

impl<K: KeyValue> Meta<K> {
    /// Notes that a stripe of a file begins an append phase in a term, or has ended it: then parity covers
    /// all updates up to the stripe's `mark`, and ends the phases that began before it. A request that
    /// arrives late or again ends no later phase, and begins none that is over.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`] when no file has the stripe; [`MetaError::TermOver`].
    pub fn note_phase(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        appends: bool,
    ) -> Result<(), MetaError> {
        self.change(|txn| {
            let mut lease = check_term(txn, stripe, epoch)?;
            let noted = PHASES.get(txn, &stripe)?;
            let told = Phase { epoch, mark };
            if noted.is_some_and(|began| began >= told) || mark < lease.committed {
                return Ok(());
            }
            if appends {
                return PHASES.put(txn, &stripe, &told);
            }
            lease.committed = mark;
            LEASES.put(txn, &stripe, &lease)?;
            PHASES.delete(txn, &stripe)
        })
    }

    /// Whether a stripe is in an append phase.
    ///
    /// # Errors
    /// When the store fails.
    pub fn appends(&self, stripe: StripeId) -> Result<bool, MetaError> {
        self.store
            .read(|txn| Ok(PHASES.get(txn, &stripe)?.is_some()))
    }

    /// Those of some stripes that are in an append phase, in their order.
    ///
    /// # Errors
    /// When the store fails.
    pub fn appending(&self, stripes: &[StripeRecord]) -> Result<Vec<StripeId>, MetaError> {
        self.store.read(|txn| {
            let mut appending = Vec::new();
            for stripe in stripes {
                if PHASES.get(txn, &stripe.id)?.is_some() {
                    appending.push(stripe.id);
                }
            }
            Ok(appending)
        })
    }

    /// All stripes that are in an append phase, by id.
    ///
    /// # Errors
    /// When the store fails.
    pub fn phases(&self) -> Result<Vec<StripeId>, MetaError> {
        let rows = self
            .store
            .read(|txn| PHASES.scan(txn, &PHASES.all(), usize::MAX))?;
        Ok(rows.into_iter().map(|(stripe, _)| stripe).collect())
    }
}
