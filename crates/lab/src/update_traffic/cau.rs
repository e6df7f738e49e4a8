//! CAU as its section 5.1 counts it: every updated chunk sends its interim replicas, and a commit
//! brings parity up to date when one more stripe than `u_s` would have appended updates, and at the
//! trace's end. Data grouping moves chunks after each commit but the last, so later commits are
//! planned on other placements.

use super::bounds::Bounds;
use super::chunk_set::ChunkSet;
use super::costs::{Costs, Planner};
use super::counter::{Options, TrafficCounter};
use super::grouping::Groupings;
use super::hashing::FastMap;
use super::layout::Stripes;
use super::moved::{Least, Moved};
use super::touched::Batch;
use crate::error::LabError;
use gabion_planner::update::cau::{self, AppendPhase, CommitPolicy, Selection};

/// CAU, in the middle of an append phase.
#[derive(Debug)]
pub(super) struct Cau {
    options: Options,
    selection: Selection,
    policy: CommitPolicy,
    phase: AppendPhase,
    /// Stripes with appended updates, in the order of their first ones, and by number their places in it.
    appended: Vec<Appended>,
    places: FastMap<u64, usize>,
    /// The racks of the chunks of each of these stripes.
    racks: Vec<u8>,
    /// Stripes whose chunks grouping has moved: where in `moved_racks` the racks are that they are in.
    moved: FastMap<u64, usize>,
    moved_racks: Vec<u8>,
    bytes: Moved,
    groupings: Option<Groupings>,
    replica_costs: Costs,
    commit_costs: Costs,
    bounds: Bounds,
    /// The traffic of replicas, and the least traffic of commits.
    least: Least,
}

/// A stripe with appended updates, and the chunks that have them.
#[derive(Clone, Copy, Debug)]
struct Appended {
    stripe: u64,
    set: ChunkSet,
}

impl Cau {
    pub(super) fn new(options: Options, selection: Selection) -> Self {
        Self {
            options,
            selection,
            policy: CommitPolicy {
                stripes_max: Some(options.stripes_max),
                ..CommitPolicy::default()
            },
            phase: AppendPhase::default(),
            appended: Vec::new(),
            places: FastMap::default(),
            racks: Vec::new(),
            moved: FastMap::default(),
            moved_racks: Vec::new(),
            bytes: Moved {
                replica: Some(0),
                commit: Some(0),
                grouping: Some(0),
                ..Moved::default()
            },
            groupings: options.grouping.map(Groupings::new),
            replica_costs: Costs::default(),
            commit_costs: Costs::default(),
            bounds: Bounds::default(),
            least: Least::default(),
        }
    }

    /// The place of a stripe among those with appended updates.
    fn place(&mut self, batch: &Batch<'_>) -> usize {
        *self.places.entry(batch.stripe).or_insert_with(|| {
            self.appended.push(Appended {
                stripe: batch.stripe,
                set: ChunkSet::default(),
            });
            let racks = match self.moved.get(&batch.stripe) {
                Some(&at) => &self.moved_racks[at..][..batch.racks.len()],
                None => batch.racks,
            };
            self.racks.extend_from_slice(racks);
            self.appended.len() - 1
        })
    }

    /// Brings parity up to date, and groups unless this is the last commit.
    fn commit(&mut self, stripes: &Stripes, is_last: bool) -> Result<(), LabError> {
        self.phase = AppendPhase::default();
        let (selection, slice_bytes) = (self.selection, stripes.geometry().chunk_bytes());
        let planner: &Planner<'_> = &|stripe, topology, ranges| {
            cau::commit(stripe, topology, ranges, selection, slice_bytes)
        };
        let racks_of_all = self.racks.chunks_mut(stripes.geometry().n());
        for (&Appended { stripe, set }, racks) in self.appended.iter().zip(racks_of_all) {
            let bytes = self.commit_costs.crossing(stripes, racks, set, planner)?;
            Moved::add(&mut self.bytes.commit, bytes);
            self.least.add(self.bounds.least(stripes, racks, set));
            let Some(groupings) = self.groupings.as_mut().filter(|_| !is_last) else {
                continue;
            };
            if let Some(bytes) = groupings.group(stripes, racks, set)? {
                Moved::add(&mut self.bytes.grouping, bytes);
                let end = self.moved_racks.len();
                let at = *self.moved.entry(stripe).or_insert(end);
                if at == end {
                    self.moved_racks.extend_from_slice(racks);
                } else {
                    self.moved_racks[at..][..racks.len()].copy_from_slice(racks);
                }
            }
        }
        self.appended.clear();
        self.places.clear();
        self.racks.clear();
        Ok(())
    }
}

impl TrafficCounter for Cau {
    fn write(&mut self, stripes: &Stripes, batch: &Batch<'_>) -> Result<(), LabError> {
        let slice_bytes = stripes.geometry().chunk_bytes();
        let mut is_new = !self.places.contains_key(&batch.stripe);
        let trigger = self.policy.before(&self.phase, is_new, slice_bytes, 0);
        if trigger.is_some() {
            self.commit(stripes, false)?;
            // The commit has emptied the phase, so this stripe is new to it.
            is_new = true;
        }
        let at = self.place(batch);
        let n = batch.racks.len();
        let racks = &self.racks[at * n..][..n];
        let replicas = self.options.replicas;
        let planner: &Planner<'_> = &|stripe, topology, ranges| {
            cau::append(stripe, topology, ranges, replicas, slice_bytes)
        };
        for set in batch.set.chunks().map(ChunkSet::of) {
            let bytes = self.replica_costs.crossing(stripes, racks, set, planner)?;
            // Replicas are a promise and not a way to update parity: no bound spares them.
            Moved::add(&mut self.bytes.replica, bytes);
            self.least.bytes += u128::from(bytes);
            self.phase.note(is_new, slice_bytes, 0);
            is_new = false;
        }
        self.appended[at].set.extend(batch.set);
        Ok(())
    }

    fn finish(mut self: Box<Self>, stripes: &Stripes) -> Result<Moved, LabError> {
        // No commit follows that an exchange could spare anything.
        self.commit(stripes, true)?;
        Ok(Moved {
            bound: Some(self.least),
            ..self.bytes
        })
    }
}
