//! Encoding-aware replication (EAR): replicas are drawn as random replication draws them, but only layouts that suit
//! the later encoding are accepted (EAR, section III).
//!
//! - The first replica of each of a stripe's `k` blocks is in the stripe's core rack, so that a node
//!   there can encode and no data crosses racks for it.
//! - A draw is accepted only if one replica of every block so far can be kept within the rack limit. So
//!   no chunk has to move afterwards, and the stripe survives rack failures from the start.
//!
//! The blocks of a stripe may be written at different times: each rack collects the blocks whose first replica
//! it holds, and `k` of them are a stripe. Its parity chunks then go to racks with room.

use super::descriptor::Descriptor;
use super::matching::Matching;
use super::rack_table::{NodeNumber, RackNumber, RackTable};
use super::replicated::{ReplicatedStripe, fill_with_parity};
use super::rr::{self, check_count, draw_others};
use super::rules::{ParityPlaces, StripeRules};
use crate::PlanError;
use gabion_layout::{NodeId, RackId, ReplicaPlacement};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// After this many refused draws a layout is built around a suitable node. The paper's bound
/// makes this one in 10^30 in its setting; narrow target racks and uneven clusters come here.
const DRAWS_MAX: u64 = 256;

/// The placement as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    placement: ReplicaPlacement::Ear,
    help: "encoding moves no data across racks",
    paper: "EAR section III",
    planner: place_blocks,
};

/// A block that was placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedBlock {
    /// The nodes of its replicas, the first replica first.
    pub replicas: Vec<NodeId>,
    /// Layouts that were drawn until one was accepted.
    pub draw_count: u64,
    /// Its index among the data chunks of the core rack's open stripe, from 0.
    pub position: usize,
    /// The stripe that it completes.
    pub stripe: Option<ReplicatedStripe>,
}

/// Places blocks one after another, and keeps an open stripe for each rack.
///
/// ```
/// use gabion_layout::Topology;
/// use gabion_planner::placement::{
///     EncodingAware, ParityPlaces, RackTable, ReplicaSpread, StripeRules,
/// };
/// use rand::SeedableRng;
///
/// let racks = RackTable::new(&Topology::uniform(20, 20));
/// let rules = StripeRules {
///     data_count: 10,
///     parity_count: 4,
///     replica_count: 3,
///     replica_spread: ReplicaSpread::FreshRacks,
///     per_rack: 1,
///     target_rack_count: None,
///     parity_places: ParityPlaces::CoreFirst,
/// };
/// let mut placer = EncodingAware::new(&racks, rules).unwrap();
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let stripe = loop {
///     if let Some(stripe) = placer.place(&mut rng).unwrap().stripe {
///         break stripe;
///     }
/// };
/// assert_eq!((stripe.replicas.len(), stripe.placement.len()), (10, 14));
/// assert_eq!(stripe.relocated().count(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct EncodingAware<'a> {
    racks: &'a RackTable,
    rules: StripeRules,
    /// By core rack.
    open: Vec<Option<OpenStripe<'a>>>,
}

/// The blocks of a core rack that no stripe has yet.
#[derive(Clone, Debug)]
struct OpenStripe<'a> {
    matching: Matching<'a>,
    replicas: Vec<Vec<NodeId>>,
}

impl<'a> EncodingAware<'a> {
    /// Places onto these racks, by these rules.
    ///
    /// # Errors
    /// [`PlanError::NoRoom`] when no stripe fits, [`PlanError::TooManyCopies`] when a block's replicas do
    /// not, [`PlanError::Layout`] when a block is to have none.
    pub fn new(racks: &'a RackTable, rules: StripeRules) -> Result<Self, PlanError> {
        check_count(racks, rules.replica_count)?;
        if rules.replica_count == 0 || rules.data_count == 0 {
            return Err(PlanError::Layout(
                "a stripe needs at least one block, and each block at least one replica".to_owned(),
            ));
        }
        let (chunks, room) = (
            rules.data_count + rules.parity_count,
            racks.room(rules.per_rack),
        );
        if room < chunks {
            return Err(PlanError::NoRoom {
                chunks,
                per_rack: rules.per_rack,
                room,
            });
        }
        Ok(Self {
            racks,
            rules,
            open: vec![None; racks.rack_count()],
        })
    }

    /// Places one block, whose first replica may be anywhere.
    ///
    /// # Errors
    /// [`PlanError::NoRoom`] when no layout of the block would leave the stripe within its rack limit,
    /// which happens where racks or replicas are too few.
    pub fn place(&mut self, rng: &mut impl Rng) -> Result<PlacedBlock, PlanError> {
        let first = self.racks.any_node(rng);
        self.place_after(first, rng)
    }

    /// Places one block whose first replica is in this rack.
    ///
    /// # Errors
    /// As [`EncodingAware::place`]; [`PlanError::Layout`] when the rack has no nodes.
    pub fn place_in(&mut self, core: RackId, rng: &mut impl Rng) -> Result<PlacedBlock, PlanError> {
        let rack = self.racks.rack_number(core);
        let rack = rack.ok_or_else(|| PlanError::Layout(format!("{core} has no nodes")))?;
        let first = self.racks.node_in(rack, rng);
        self.place_after(first, rng)
    }

    /// Places all blocks of a stripe of their own, with a core rack drawn at random.
    ///
    /// # Errors
    /// As [`EncodingAware::place`].
    pub fn place_stripe(&mut self, rng: &mut impl Rng) -> Result<ReplicatedStripe, PlanError> {
        let core = self.racks.rack_of(self.racks.any_node(rng));
        self.open[core] = None;
        loop {
            let first = self.racks.node_in(core, rng);
            if let Some(stripe) = self.place_after(first, rng)?.stripe {
                return Ok(stripe);
            }
        }
    }

    /// Blocks that wait for others of their stripe, in all core racks.
    pub fn waiting_count(&self) -> usize {
        let stripes = self.open.iter().flatten();
        stripes.map(|stripe| stripe.replicas.len()).sum()
    }

    /// The first draw's first replica is `first`; later draws take any node of its rack.
    fn place_after(
        &mut self,
        first: NodeNumber,
        rng: &mut impl Rng,
    ) -> Result<PlacedBlock, PlanError> {
        let core = self.racks.rack_of(first);
        let mut stripe = match self.open[core].take() {
            Some(stripe) => stripe,
            None => self.open_stripe(core, rng),
        };
        let (layout, draw_count) = self.draw(&mut stripe.matching, first, rng)?;
        let replicas: Vec<NodeId> = layout
            .iter()
            .map(|&node| self.racks.node_id(node))
            .collect();
        stripe.replicas.push(replicas.clone());
        let position = stripe.replicas.len() - 1;
        let stripe = if stripe.replicas.len() == self.rules.data_count {
            Some(self.complete(core, stripe, rng)?)
        } else {
            self.open[core] = Some(stripe);
            None
        };
        Ok(PlacedBlock {
            replicas,
            draw_count,
            position,
            stripe,
        })
    }

    /// A stripe without blocks, whose racks are closed but for its target racks.
    fn open_stripe(&self, core: RackNumber, rng: &mut impl Rng) -> OpenStripe<'a> {
        let mut matching = Matching::new(self.racks, self.rules.per_rack);
        if let Some(target_count) = self.rules.target_rack_count {
            let mut others: Vec<RackNumber> = (0..self.racks.rack_count())
                .filter(|&rack| rack != core)
                .collect();
            others.shuffle(rng);
            let wanted = self.rules.data_count + self.rules.parity_count;
            let mut room = matching.room_in(core);
            for (at, rack) in others.into_iter().enumerate() {
                if at + 1 < target_count || room < wanted {
                    room += matching.room_in(rack);
                } else {
                    matching.close(rack);
                }
            }
        }
        OpenStripe {
            matching,
            replicas: Vec::with_capacity(self.rules.data_count),
        }
    }

    /// Draws layouts until one is accepted; gives it, and the number of draws.
    fn draw(
        &self,
        matching: &mut Matching<'a>,
        first: NodeNumber,
        rng: &mut impl Rng,
    ) -> Result<(Vec<NodeNumber>, u64), PlanError> {
        let core = self.racks.rack_of(first);
        let replica_count = self.rules.replica_count;
        let mut layout = Vec::with_capacity(replica_count);
        layout.push(first);
        for draw in 1..=DRAWS_MAX {
            draw_others(
                self.racks,
                replica_count,
                self.rules.replica_spread,
                &mut layout,
                rng,
            );
            if matching.add(&layout) {
                return Ok((layout, draw));
            }
            layout[0] = self.racks.node_in(core, rng);
        }
        let missing = self.rules.data_count - matching.block_count() + self.rules.parity_count;
        let open = matching.any_open(core, replica_count, rng);
        let open = open.ok_or_else(|| matching.no_room(missing))?;
        layout.clear();
        if self.racks.rack_of(open) != core {
            layout.push(first);
        }
        layout.push(open);
        self.fill(&mut layout, rng);
        assert!(
            matching.add(&layout),
            "an open node can keep a further block"
        );
        Ok((layout, DRAWS_MAX + 1))
    }

    /// Adds replicas to a layout whose first ones are chosen.
    fn fill(&self, layout: &mut Vec<NodeNumber>, rng: &mut impl Rng) {
        while layout.len() < self.rules.replica_count {
            let node = rng.random_range(0..self.racks.node_count() as NodeNumber);
            if !layout.contains(&node) {
                layout.push(node);
            }
        }
    }

    fn complete(
        &self,
        core: RackNumber,
        mut stripe: OpenStripe<'a>,
        rng: &mut impl Rng,
    ) -> Result<ReplicatedStripe, PlanError> {
        let first = match self.rules.parity_places {
            ParityPlaces::CoreFirst => Some(core),
            ParityPlaces::Anywhere => None,
        };
        if let Some(core) = first {
            let share = self.rules.per_rack.min(self.rules.parity_count);
            stripe.matching.vacate(core, share);
        }
        let parity = fill_with_parity(&mut stripe.matching, self.rules.parity_count, first, rng)?;
        Ok(ReplicatedStripe::new(
            self.racks,
            Some(core),
            stripe.replicas,
            &stripe.matching,
            &parity,
        ))
    }
}

/// Places the blocks of a stripe. If no layout is accepted, or if one has more replicas of a block in a rack than
/// `per_rack`, the blocks are placed at random: the pool's promise does not depend on where its stripes will be.
fn place_blocks(
    racks: &RackTable,
    rules: StripeRules,
    per_rack: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<Vec<NodeId>>, PlanError> {
    let stripe = EncodingAware::new(racks, rules).and_then(|mut placer| placer.place_stripe(rng));
    let blocks = stripe.map(|stripe| stripe.replicas).ok();
    let is_kept = |nodes: &Vec<NodeId>| is_within(racks, nodes, per_rack);
    match blocks.filter(|blocks| blocks.iter().all(is_kept)) {
        Some(blocks) => Ok(blocks),
        None => rr::place_blocks(racks, rules, per_rack, rng),
    }
}

/// Whether no rack has more than `per_rack` of the nodes.
fn is_within(racks: &RackTable, nodes: &[NodeId], per_rack: usize) -> bool {
    let mut counts = BTreeMap::new();
    for &node in nodes {
        let rack = racks.node_number(node).map(|number| racks.rack_of(number));
        *counts.entry(rack).or_insert(0) += 1;
    }
    counts.values().all(|&count| count <= per_rack)
}
