//! CAU as its section 5.1 counts it: every updated chunk sends its interim replicas, and a commit
//! brings parity up to date when one more stripe than `u_s` would have appended updates, and at the
//! trace's end. Data grouping moves chunks after each commit but the last, so later commits are
//! planned on other placements.

use super::bounds::Bounds;
use super::chunk_set::ChunkSet;
use super::costs::{Costs, Place, make_room, stripe_at};
use super::counter::{Options, TrafficCounter};
use super::layout::Stripes;
use super::moved::{Least, Moved};
use super::touched::ChunkUpdate;
use crate::error::LabError;
use gabion_layout::{ChunkIndex, GroupingRule, NodeId, RackId};
use gabion_plan::Cost;
use gabion_planner::Stripe;
use gabion_planner::update::cau::{self, AppendPhase, CommitPolicy, Selection, Swap};
use std::collections::{BTreeMap, HashMap};

/// CAU, in the middle of an append phase.
#[derive(Debug)]
pub(super) struct Cau {
    options: Options,
    selection: Selection,
    policy: CommitPolicy,
    phase: AppendPhase,
    /// By stripe: chunks with appended updates.
    appended: BTreeMap<u64, ChunkSet>,
    /// Stripes whose chunks grouping has moved, and where they are.
    moved: HashMap<u64, Vec<NodeId>>,
    bytes: Moved,
    /// What grouping does with a stripe, by the racks of its chunks and the chunks that were committed,
    /// which decide it.
    groupings: HashMap<(Vec<Option<RackId>>, ChunkSet), Option<Regrouping>>,
    replica_costs: Costs,
    commit_costs: Costs,
    bounds: Bounds,
    /// What replicas move, and the least that commits must.
    least: Least,
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
            appended: BTreeMap::new(),
            moved: HashMap::new(),
            bytes: Moved {
                replica: Some(0),
                commit: Some(0),
                grouping: Some(0),
                ..Moved::default()
            },
            groupings: HashMap::new(),
            replica_costs: Costs::default(),
            commit_costs: Costs::default(),
            bounds: Bounds::default(),
            least: Least::default(),
        }
    }

    fn append(&mut self, stripes: &Stripes, update: ChunkUpdate) -> Result<(), LabError> {
        let (replicas, slice_bytes) = (self.options.replicas, stripes.geometry().chunk_bytes());
        let place = Place {
            stripe: update.stripe,
            moved: self.moved.get(&update.stripe).map(Vec::as_slice),
        };
        let set = ChunkSet::of(update.data);
        let costs = &mut self.replica_costs;
        let bytes = costs.crossing(stripes, place, set, &|stripe, topology, ranges| {
            cau::append(stripe, topology, ranges, replicas, slice_bytes)
        })?;
        // Replicas are a promise and not a way to update parity: no bound spares them.
        Moved::add(&mut self.bytes.replica, bytes);
        self.least.bytes += u128::from(bytes);
        self.appended
            .entry(update.stripe)
            .or_default()
            .insert(update.data);
        Ok(())
    }

    /// Brings parity up to date and groups by `rule`.
    fn commit(&mut self, stripes: &Stripes, rule: Option<GroupingRule>) -> Result<(), LabError> {
        self.phase = AppendPhase::default();
        for (stripe, set) in std::mem::take(&mut self.appended) {
            let (selection, slice_bytes) = (self.selection, stripes.geometry().chunk_bytes());
            let place = Place {
                stripe,
                moved: self.moved.get(&stripe).map(Vec::as_slice),
            };
            let costs = &mut self.commit_costs;
            let bytes = costs.crossing(stripes, place, set, &|stripe, topology, ranges| {
                cau::commit(stripe, topology, ranges, selection, slice_bytes)
            })?;
            Moved::add(&mut self.bytes.commit, bytes);
            self.least.add(self.bounds.least(stripes, place, set)?);
            if let Some(rule) = rule {
                self.group(stripes, stripe, set, rule)?;
            }
        }
        Ok(())
    }

    /// Moves chunks of a committed stripe if the rule says so.
    fn group(
        &mut self,
        stripes: &Stripes,
        stripe: u64,
        set: ChunkSet,
        rule: GroupingRule,
    ) -> Result<(), LabError> {
        let mut placement = match self.moved.get(&stripe) {
            Some(placement) => placement.clone(),
            None => stripes.placement(stripe)?,
        };
        let racks = placement
            .iter()
            .map(|&node| stripes.topology().rack_of(node));
        let key = (racks.collect(), set);
        if !self.groupings.contains_key(&key) {
            let before = stripe_at(stripes, stripe, &placement);
            let regrouping = Regrouping::of(stripes, &before, set, rule)?;
            make_room(&mut self.groupings);
            self.groupings.insert(key.clone(), regrouping);
        }
        if let Some(regrouping) = &self.groupings[&key] {
            for swap in &regrouping.swaps {
                placement.swap(swap.updated.at(), swap.other.at());
            }
            Moved::add(&mut self.bytes.grouping, regrouping.crossing_bytes);
            self.moved.insert(stripe, placement);
        }
        Ok(())
    }
}

/// How grouping moves a stripe's chunks, and what that costs.
#[derive(Debug)]
struct Regrouping {
    swaps: Vec<Swap>,
    crossing_bytes: u64,
}

impl Regrouping {
    /// What the rule says of a stripe; none where nothing moves.
    fn of(
        stripes: &Stripes,
        stripe: &Stripe<'_>,
        set: ChunkSet,
        rule: GroupingRule,
    ) -> Result<Option<Self>, LabError> {
        let updated: Vec<ChunkIndex> = set.chunks().collect();
        let Some(grouping) = cau::group(stripe, stripes.topology(), &updated, rule) else {
            return Ok(None);
        };
        let plan = cau::relocate(stripe, &grouping, stripes.geometry().chunk_bytes())?;
        Ok(Some(Self {
            swaps: grouping.swaps,
            crossing_bytes: Cost::of(&plan, stripes.topology()).cross_rack_bytes,
        }))
    }
}

impl TrafficCounter for Cau {
    fn write(&mut self, stripes: &Stripes, touched: &[ChunkUpdate]) -> Result<(), LabError> {
        let chunk_bytes = stripes.geometry().chunk_bytes();
        for update in touched {
            let is_new = !self.appended.contains_key(&update.stripe);
            if self
                .policy
                .before(&self.phase, is_new, chunk_bytes, 0)
                .is_some()
            {
                self.commit(stripes, self.options.grouping)?;
            }
            // A commit has emptied the phase, and then this stripe is new to it.
            let is_new = !self.appended.contains_key(&update.stripe);
            self.append(stripes, *update)?;
            self.phase.note(is_new, chunk_bytes, 0);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, stripes: &Stripes) -> Result<Moved, LabError> {
        // No commit follows that an exchange could spare anything.
        self.commit(stripes, None)?;
        Ok(Moved {
            bound: Some(self.least),
            ..self.bytes
        })
    }
}
