//! The work of a [`super::Scenario`]: blocks placed by one of EAR's two placements, stripes of
//! them, and the plans that write and encode them.

use super::scenario::Scenario;
use gabion_codec::Code;
use gabion_layout::{Geometry, NodeId, RackId, StripeId, Topology};
use gabion_plan::Plan;
use gabion_planner::placement::{
    EncodingAware, ParityPlaces, RackLimit, RackTable, ReplicatedStripe, StripeRules,
    random_replication, random_replication_end,
};
use gabion_planner::{PlanError, Stripe, encode};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The placement of replicas, and the places in which stripes end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Random replication: an encoder downloads what it does not have.
    Random(RackLimit),
    /// Encoding-aware replication: an encoder is in its stripe's core rack.
    EncodingAware(ParityPlaces),
}

/// The node of an encoder. With encoding-aware replication it is in the core rack of its stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncoderSeat {
    /// The encoders take racks in turn; for each stripe, any node of its rack.
    RackEach,
    /// Any node, drawn once for each encoder.
    Drawn,
    /// Any node, drawn for each stripe.
    Moving,
}

/// Places blocks and makes plans.
pub(super) struct Stripes<'a> {
    scenario: &'a Scenario,
    racks: &'a RackTable,
    topology: &'a Topology,
    code: Code,
    geometry: Geometry,
    copies: Code,
    copies_geometry: Geometry,
    /// For the writers' blocks; those of encoders have placers of their own.
    writes: Option<EncodingAware<'a>>,
}

impl<'a> Stripes<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        topology: &'a Topology,
        racks: &'a RackTable,
    ) -> Result<Self, PlanError> {
        let code = Code::reed_solomon(scenario.data_count, scenario.parity_count)?;
        let copies = Code::replication(scenario.replica_count)?;
        let (bytes, copy_count) = (scenario.chunk_bytes, scenario.replica_count);
        let mut stripes = Self {
            scenario,
            racks,
            topology,
            geometry: Geometry::new(code.k(), code.m(), 1, bytes)?,
            copies_geometry: Geometry::new(1, copy_count.saturating_sub(1), 1, bytes)?,
            code,
            copies,
            writes: None,
        };
        stripes.writes = stripes.placer()?;
        Ok(stripes)
    }

    /// The placer of encoding-aware replication; none with random replication.
    fn placer(&self) -> Result<Option<EncodingAware<'a>>, PlanError> {
        let Layout::EncodingAware(parity_places) = self.scenario.layout else {
            return Ok(None);
        };
        let rules = StripeRules {
            data_count: self.scenario.data_count,
            parity_count: self.scenario.parity_count,
            replica_count: self.scenario.replica_count,
            replica_spread: self.scenario.replica_spread,
            per_rack: self.scenario.per_rack,
            target_rack_count: self.scenario.target_rack_count,
            parity_places,
        };
        EncodingAware::new(self.racks, rules).map(Some)
    }

    /// The encodings of one encoder, in their order.
    pub(super) fn encodings(
        &self,
        encoder: u32,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<Plan>, PlanError> {
        let mut placer = self.placer()?;
        let mut seat = self.seat(encoder, rng);
        let mut plans = Vec::with_capacity(self.scenario.stripes_per_encoder as usize);
        for _ in 0..self.scenario.stripes_per_encoder {
            let (stripe, node) = match &mut placer {
                Some(placer) => {
                    let stripe = core_stripe(placer, seat.1, rng)?;
                    let is_nearest = self.scenario.settings.is_core_encoder_nearest;
                    let nearest = is_nearest
                        .then(|| encode::core_encoder(&stripe, self.topology))
                        .flatten();
                    (stripe, nearest.unwrap_or(seat.0))
                }
                None => (self.random_stripe(rng)?, seat.0),
            };
            plans.push(self.encoding(&stripe, node)?);
            if self.scenario.settings.encoder_seat != EncoderSeat::Drawn {
                seat = self.seat(encoder, rng);
            }
        }
        Ok(plans)
    }

    /// A node for an encoder, and its rack.
    fn seat(&self, encoder: u32, rng: &mut ChaCha8Rng) -> (NodeId, RackId) {
        let per_rack = self.scenario.nodes_per_rack;
        let (rack, node) = (
            match self.scenario.settings.encoder_seat {
                EncoderSeat::RackEach => encoder % self.scenario.rack_count,
                EncoderSeat::Drawn | EncoderSeat::Moving => {
                    rng.random_range(0..self.scenario.rack_count)
                }
            },
            rng.random_range(0..per_rack),
        );
        (NodeId(rack * per_rack + node), RackId(rack))
    }

    /// The nodes of a block's replicas under random replication.
    fn random_replicas(&self, rng: &mut ChaCha8Rng) -> Result<Vec<NodeId>, PlanError> {
        let Scenario {
            replica_count,
            replica_spread,
            ..
        } = *self.scenario;
        random_replication(self.racks, replica_count, replica_spread, rng)
    }

    fn random_stripe(&self, rng: &mut ChaCha8Rng) -> Result<ReplicatedStripe, PlanError> {
        let Layout::Random(limit) = self.scenario.layout else {
            unreachable!("stripes of encoding-aware replication have a placer");
        };
        let blocks = 0..self.scenario.data_count;
        let replicas = blocks
            .map(|_| self.random_replicas(rng))
            .collect::<Result<_, _>>()?;
        random_replication_end(
            self.racks,
            replicas,
            self.scenario.parity_count,
            self.scenario.per_rack,
            limit,
            rng,
        )
    }

    fn encoding(&self, stripe: &ReplicatedStripe, encoder: NodeId) -> Result<Plan, PlanError> {
        let to_plan = Stripe {
            id: StripeId(1),
            code: &self.code,
            geometry: self.geometry,
            placement: &stripe.placement,
            lost: &[],
        };
        let slice_bytes = self.scenario.chunk_bytes;
        let (replicas, topology) = (&stripe.replicas, self.topology);
        let encoding = encode::gather(&to_plan, replicas, encoder, topology, slice_bytes)?;
        debug_assert_eq!(gabion_plan::check(&encoding.plan, &self.code), Ok(()));
        Ok(encoding.plan)
    }

    /// The write of one block.
    pub(super) fn write(&mut self, rng: &mut ChaCha8Rng) -> Result<Plan, PlanError> {
        let replicas = match &mut self.writes {
            Some(placer) => placer.place(rng)?.replicas,
            None => self.random_replicas(rng)?,
        };
        let writer = if self.scenario.settings.is_writer_at_first_replica {
            replicas[0]
        } else {
            self.any_node(rng)
        };
        let stripe = Stripe {
            id: StripeId(1),
            code: &self.copies,
            geometry: self.copies_geometry,
            placement: &replicas,
            lost: &[],
        };
        let plan = encode::relay(&stripe, writer, self.scenario.chunk_bytes)?;
        debug_assert_eq!(gabion_plan::check(&plan, &self.copies), Ok(()));
        Ok(plan)
    }

    /// The ends of a background transfer.
    pub(super) fn background_ends(&self, rng: &mut ChaCha8Rng) -> (NodeId, NodeId) {
        // One rack, or one node in each rack, leaves no choice.
        let is_cross = self.scenario.rack_count > 1
            && (self.scenario.nodes_per_rack == 1
                || rng.random_bool(self.scenario.background_cross_share));
        let from = self.any_node(rng);
        loop {
            let to = self.any_node(rng);
            if from != to && self.topology.crosses_racks(from, to) == is_cross {
                return (from, to);
            }
        }
    }

    fn any_node(&self, rng: &mut ChaCha8Rng) -> NodeId {
        NodeId(rng.random_range(0..self.scenario.rack_count * self.scenario.nodes_per_rack))
    }
}

/// A stripe with this core rack.
fn core_stripe(
    placer: &mut EncodingAware<'_>,
    core: RackId,
    rng: &mut ChaCha8Rng,
) -> Result<ReplicatedStripe, PlanError> {
    loop {
        if let Some(stripe) = placer.place_in(core, rng)?.stripe {
            return Ok(stripe);
        }
    }
}
