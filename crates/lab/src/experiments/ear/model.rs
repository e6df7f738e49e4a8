//! A bench of encodings in the model of links: the same plans by the same planners, on links of the
//! same rates, with other known behaviour of a cluster. Nothing here is fitted to measurements.
//!
//! - *Rates* of testbeds are rates of frames; docs/testbed.md gives the share of payload.
//! - *Sharing* is max-min fair among connections. Links that serve connections in turn are fair, too; if connections
//!   share a queue, congestion control only approximates fair shares.
//! - *Plans* go slice by slice, with the rings of `exec`.
//! - *Concurrency*: the coordinator's number of conversions, and the client's number of blocks of
//!   each put.
//! - *Messages* of a conversion are rounds of the coordinator with all nodes that it concerns. Each
//!   message and answer waits in the queue of its node's link where that is full, or, where connections are
//!   served in turn, for one frame.
//! - *Idle time*: the cost of messages, metadata and files is measured on the same cluster without other work, with
//!   nearly empty blocks.

use super::bench::{EncodeBench, EncodeTime, Encodings, SegmentPlaces};
use crate::error::LabError;
use crate::flow::{Execution, Fabric, Network, Rates, Script, Sharing, Work};
use gabion_codec::Code;
use gabion_layout::{Geometry, NodeId, StripeId, Topology};
use gabion_plan::{Cost, Plan};
use gabion_planner::{PlanError, Stripe, encode};
use std::collections::BTreeSet;

/// Payload in what testbeds limit.
const PAYLOAD_SHARE: f64 = 0.96;
/// A testbed's queues hold this time's traffic of their link, but at least this many bytes.
const QUEUE_S: f64 = 0.05;
const QUEUE_BYTES_MIN: f64 = 264e3;
/// Time of the frame that passes at once if connections are served in turn.
const FRAME_S: f64 = 0.002;
/// Average fill of a full link's queue: when it overflows, senders fall back to 0.7 of their bytes
/// in flight (CUBIC, RFC 9438), and fill it again.
const QUEUE_SHARE: f64 = 0.85;
/// Blocks of a put that are under way at a time.
const BLOCKS_AT_ONCE: usize = 3;
/// Bytes of a slice of a put.
const PUT_SLICE_BYTES: u64 = 256 << 10;
const NS_PER_S: f64 = 1e9;

/// The model's result of a trial.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Modelled {
    /// Until the last segment was encoded, in seconds.
    pub(super) seconds: f64,
    /// The times of the puts, in seconds.
    pub(super) puts_s: Vec<f64>,
    /// Cross-rack bytes of the encodings' plans.
    pub(super) cross_rack_bytes: u64,
}

/// A bench's racks in the model.
pub(super) struct Model<'a> {
    bench: &'a EncodeBench,
    encodings: &'a Encodings,
    topology: Topology,
    fabric: Fabric,
    code: Code,
    geometry: Geometry,
    copies: Code,
    copies_geometry: Geometry,
}

impl<'a> Model<'a> {
    pub(super) fn new(bench: &'a EncodeBench, encodings: &'a Encodings) -> Result<Self, LabError> {
        let topology = Topology::uniform(bench.rack_count, bench.nodes_per_rack);
        let payload = |bytes_per_s: u64| bytes_per_s as f64 * PAYLOAD_SHARE;
        let rates = Rates {
            node_bytes_per_s: payload(bench.node_bytes_per_s),
            rack_bytes_per_s: payload(bench.rack_bytes_per_s),
            disk_bytes_per_s: None,
        };
        let code: Code = bench.code.parse().map_err(PlanError::from)?;
        let copies = Code::replication(bench.replica_count).map_err(PlanError::from)?;
        let (bytes, more) = (bench.chunk_bytes, bench.replica_count.saturating_sub(1));
        Ok(Self {
            bench,
            encodings,
            fabric: Fabric::new(&topology, rates),
            topology,
            geometry: Geometry::new(code.k(), code.m(), 1, bytes)?,
            code,
            copies_geometry: Geometry::new(1, more, 1, bytes)?,
            copies,
        })
    }

    /// A trial as the model has it, with the places that the cluster chose.
    pub(super) fn run(&self, time: &EncodeTime) -> Result<Modelled, LabError> {
        let mut cross_rack_bytes = 0;
        let mut conversions = Vec::with_capacity(time.segments.len());
        for segment in &time.segments {
            let plan = self.encoding(segment)?;
            cross_rack_bytes += Cost::of(&plan, &self.topology).cross_rack_bytes;
            conversions.push(self.conversion(segment, &plan));
        }
        let conversions = Work::Group {
            works: conversions,
            at_once: self.encodings.conversions_at_once,
        };
        let mut clients = Vec::with_capacity(time.puts.len());
        for (client, put) in (0..).zip(&time.puts) {
            let pause = Work::Pause(to_ns(put.at_s));
            let put = self.put(client, &put.replicas)?;
            clients.push(Work::in_turn(vec![pause, put]));
        }
        let network = Network {
            fabric: &self.fabric,
            sharing: Sharing::MaxMin,
            queue_ns: self.queue_ns(),
        };
        // Puts that had begun go on after the last conversion, as clients do.
        let at_once = clients.len().max(1);
        let clients = Work::Group {
            works: clients,
            at_once,
        };
        let all = Work::Group {
            works: vec![conversions, clients],
            at_once: 2,
        };
        let done = network.carry_out(&all);
        let [conversions, clients] = &done.parts[..] else {
            unreachable!("conversions and clients are two");
        };
        let puts_s = clients.parts.iter();
        Ok(Modelled {
            seconds: conversions.seconds(),
            puts_s: puts_s.map(|client| client.parts[1].seconds()).collect(),
            cross_rack_bytes,
        })
    }

    /// The encoding of a segment as the coordinator plans it.
    fn encoding(&self, segment: &SegmentPlaces) -> Result<Plan, LabError> {
        let stripe = Stripe {
            id: StripeId(1),
            code: &self.code,
            geometry: self.geometry,
            placement: &segment.placement,
            lost: &[],
        };
        let encoder = encode::best_encoder(&stripe, &segment.replicas, &self.topology);
        let encoder = encoder.ok_or_else(|| PlanError::Layout("there are no nodes".to_owned()))?;
        let slice_bytes = self.encodings.slice_bytes;
        let plan = encode::convert(
            &stripe,
            &segment.replicas,
            encoder,
            &self.topology,
            slice_bytes,
        )?;
        let checked = gabion_plan::check(&plan, &self.code);
        checked.map_err(|error| LabError::Cluster(error.to_string()))?;
        Ok(plan)
    }

    /// The coordinator's steps to convert a segment, in order.
    fn conversion(&self, segment: &SegmentPlaces, plan: &Plan) -> Work {
        let all: BTreeSet<NodeId> = segment.replicas.iter().flatten().copied().collect();
        let old: Vec<NodeId> = all.into_iter().collect();
        let new = &segment.placement;
        let participants = plan.participants();
        Work::in_turn(vec![
            Work::Pause(to_ns(self.encodings.idle_encode_s)),
            // Leases are taken: what nodes hold is collected, and they are told what stands.
            Work::round(&old),
            Work::round(&old),
            // The marks are pinned.
            Work::round(&old),
            Work::Ask(participants.clone()),
            Work::Move(Script::of_plan(plan, &self.fabric, Execution::Sliced)),
            Work::Answer(participants),
            // Chunks are read back, leases taken again, and old chunks removed.
            Work::round(new),
            Work::round(&old),
            Work::round(&old),
            Work::round(&old),
        ])
    }

    /// A client's put of a segment: each block goes to all of its replicas at once.
    fn put(&self, client: u32, blocks: &[Vec<NodeId>]) -> Result<Work, LabError> {
        let block = |nodes: &Vec<NodeId>| {
            let stripe = Stripe {
                id: StripeId(1),
                code: &self.copies,
                geometry: self.copies_geometry,
                placement: nodes,
                lost: &[],
            };
            let plan = encode::direct(&stripe, NodeId::CLIENT, PUT_SLICE_BYTES)?;
            let script = Script::of_plan(&plan, &self.fabric, Execution::Sliced);
            let script = script.of_client(client);
            Ok(Work::in_turn(vec![
                Work::Ask(nodes.clone()),
                Work::Move(script),
                Work::Answer(nodes.clone()),
            ]))
        };
        let works: Result<Vec<Work>, PlanError> = blocks.iter().map(block).collect();
        Ok(Work::in_turn(vec![
            Work::Pause(to_ns(self.encodings.idle_put_s)),
            Work::Group {
                works: works?,
                at_once: BLOCKS_AT_ONCE,
            },
        ]))
    }

    /// Returns the wait of a message for a full link: behind all that may wait there, or, if connections are served in
    /// turn, until a frame has passed.
    fn queue_ns(&self) -> u64 {
        if self.bench.is_fair {
            return to_ns(FRAME_S);
        }
        let least_s = QUEUE_BYTES_MIN / self.bench.node_bytes_per_s as f64;
        to_ns(QUEUE_SHARE * least_s.max(QUEUE_S))
    }
}

fn to_ns(seconds: f64) -> u64 {
    (seconds * NS_PER_S) as u64
}
