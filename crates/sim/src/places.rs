//! The files of stripes, as the metadata have them.

use crate::cells::cell_count;
use crate::cluster::Cluster;
use crate::names::is_snapshot;
use gabion_layout::StripeId;
use gabion_meta::PutId;
use std::collections::{BTreeMap, BTreeSet};

/// The place of a stripe's bytes in its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) file: PutId,
    pub(crate) first_cell: u64,
    pub(crate) file_cells: u64,
}

impl Cluster {
    /// The file of each stripe that counts and is not of snapshots and clones alone, the first of its cells there, and
    /// how many cells the file has.
    pub(crate) fn places(&self) -> BTreeMap<StripeId, Place> {
        let mut places = BTreeMap::new();
        let files = self.observer.files("", None, usize::MAX);
        for file in files.expect("onlookers can read") {
            if is_snapshot(&file.name) {
                continue;
            }
            let layout = self.observer.layout_of(file.put);
            for (offset, stripe) in layout.expect("onlookers can read").1 {
                let place = Place {
                    file: file.put,
                    first_cell: cell_count(offset),
                    file_cells: cell_count(file.size_bytes),
                };
                places.insert(stripe.id, place);
            }
        }
        places
    }

    /// Stripes that count, and are of no file or of snapshots and clones.
    pub(crate) fn other_stripes(&self) -> BTreeSet<StripeId> {
        let hidden = self.observer.hidden_stripes();
        let mut others = hidden.expect("onlookers can read");
        let files = self.observer.files("", None, usize::MAX);
        for file in files.expect("onlookers can read") {
            if is_snapshot(&file.name) {
                let layout = self.observer.layout_of(file.put);
                let (_, stripes) = layout.expect("onlookers can read");
                others.extend(stripes.into_iter().map(|(_, stripe)| stripe.id));
            }
        }
        others
    }
}
