//! Stripes whose lease the coordinator has or takes for one purpose, so that no other of its tasks takes
//! it as well: metadata cannot tell two tasks of one holder apart.

use crate::coordinator::core::lock;
use gabion_layout::StripeId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Stripes that are being repaired, replaced, converted or grouped: never two of these at once, since
/// each holds the stripe's lease as the same holder.
#[derive(Clone, Debug, Default)]
pub(in crate::coordinator) struct Occupied(Arc<Mutex<BTreeSet<StripeId>>>);

impl Occupied {
    /// Occupies all of the stripes, each named once, or none.
    ///
    /// # Errors
    /// The first stripe that is occupied already.
    pub(in crate::coordinator) fn occupy(
        &self,
        stripes: Vec<StripeId>,
    ) -> Result<Occupation, StripeId> {
        let mut taken = lock(&self.0);
        let mut new = BTreeSet::new();
        for &stripe in &stripes {
            if taken.contains(&stripe) || !new.insert(stripe) {
                return Err(stripe);
            }
        }
        taken.append(&mut new);
        let all = self.clone();
        Ok(Occupation { all, stripes })
    }
}

/// Stripes that are occupied until this is dropped.
#[derive(Debug)]
pub(in crate::coordinator) struct Occupation {
    all: Occupied,
    stripes: Vec<StripeId>,
}

impl Occupation {
    /// Releases the stripes and returns them.
    pub(in crate::coordinator) fn end(mut self) -> Vec<StripeId> {
        let stripes = self.stripes.clone();
        self.free();
        stripes
    }

    fn free(&mut self) {
        let mut taken = lock(&self.all.0);
        for stripe in self.stripes.drain(..) {
            taken.remove(&stripe);
        }
    }
}

impl Drop for Occupation {
    fn drop(&mut self) {
        self.free();
    }
}
