//! Encodings of replicas as people read them, each with what it costs counted by hand: an encoder's whole
//! merit is which bytes stay in their rack.

use super::{MIB, Setting};
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, NodeId, RackId, Topology};
use gabion_plan::{Cost, Plan};
use gabion_planner::placement::ReplicatedStripe;
use gabion_planner::{Stripe, encode};

const SLICE_BYTES: u64 = 64 << 10;

/// Chunks between nodes of one rack, across racks, and written.
type Chunks = (u64, u64, u64);

/// A stripe on six racks of four nodes each, node 4 being the first of rack 1.
fn on_six_racks(code: &str, placement: &[u32]) -> Setting {
    let code: Code = code.parse().expect("a code of its family");
    Setting {
        geometry: Geometry::new(code.k(), code.m(), code.sub_chunks(), MIB).expect("whole rows"),
        code,
        topology: Topology::uniform(6, 4),
        placement: placement.iter().copied().map(NodeId).collect(),
    }
}

fn nodes(all: &[&[u32]]) -> Vec<Vec<NodeId>> {
    let ids = |nodes: &&[u32]| nodes.iter().copied().map(NodeId).collect();
    all.iter().map(ids).collect()
}

/// Four blocks as EAR places them: the first replicas in rack 0, the others two by two elsewhere.
fn core_rack_replicas() -> Vec<Vec<NodeId>> {
    nodes(&[&[0, 4, 5], &[1, 8, 9], &[2, 12, 13], &[0, 16, 17]])
}

/// Four blocks as HDFS may place them. Three of them have replicas in racks 0 and 1 alone, so that of one
/// chunk a rack one has to move.
fn random_replicas() -> Vec<Vec<NodeId>> {
    nodes(&[&[0, 4, 5], &[16, 12, 13], &[1, 4, 7], &[5, 2, 3]])
}

#[track_caller]
fn costs(plan: &Plan, setting: &Setting, expected: Chunks) {
    let cost = Cost::of(plan, &setting.topology);
    let sent = (cost.inner_rack_bytes, cost.cross_rack_bytes);
    let chunks = (sent.0 / MIB, sent.1 / MIB, cost.write_bytes / MIB);
    assert_eq!(chunks, expected);
}

/// Figure 2 of EAR in small: from the core rack nothing but parity crosses racks. Of the encoder's own
/// blocks, 0 and 3, nothing is sent.
#[test]
fn gathering_in_the_core_rack() {
    let setting = on_six_racks("rs(4,2)", &[4, 8, 12, 16, 3, 20]);
    let replicas = core_rack_replicas();
    let replicated = ReplicatedStripe {
        core_rack: Some(RackId(0)),
        replicas: replicas.clone(),
        placement: setting.placement.clone(),
    };
    let encoder = encode::core_encoder(&replicated, &setting.topology).expect("a core rack");
    assert_eq!(encoder, NodeId(0), "which has two of the blocks");
    let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
    let encoding = encode::gather(&stripe, &replicas, encoder, topology, SLICE_BYTES);
    let encoding = encoding.expect("a plan");
    let plan = setting.is_golden("encode_gather_core_rack", Ok(encoding.plan));
    // Blocks 1 and 2 and parity chunk 4 within the rack, parity chunk 5 out of it.
    costs(&plan, &setting, (3, 1, 2));
    let stay = |&(chunk, node): &(ChunkIndex, NodeId)| setting.placement[chunk.at()] == node;
    assert_eq!(encoding.surplus.len(), 8, "two of three replicas of each");
    assert!(!encoding.surplus.iter().any(stay));
}

/// The same from a node of random replication, which has one block and finds two more in its rack: block 1
/// crosses to it, both parity chunks leave it, and chunk 3, whose three replicas are where others are kept,
/// moves.
#[test]
fn gathering_under_random_replication() {
    let setting = on_six_racks("rs(4,2)", &[0, 12, 4, 8, 17, 20]);
    let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
    let replicas = random_replicas();
    let encoding = encode::gather(&stripe, &replicas, NodeId(0), topology, SLICE_BYTES);
    let encoding = encoding.expect("a plan");
    let plan = setting.is_golden("encode_gather_random", Ok(encoding.plan));
    costs(&plan, &setting, (2, 4, 3));
    assert_eq!(
        encoding.surplus.len(),
        9,
        "all of block 3, two of the others"
    );
}

/// Two sums, for the two parity chunks, pass through rack 0 with three of the blocks and end in rack 4 with the
/// fourth, where one of the parity chunks belongs.
#[test]
fn a_chain_of_partial_parities() {
    let setting = on_six_racks("rs(4,2)", &[0, 12, 4, 8, 17, 20]);
    let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
    let encoding = encode::chain(&stripe, &random_replicas(), topology, SLICE_BYTES);
    let plan = setting.is_golden("encode_chain", Ok(encoding.expect("a plan").plan));
    // Both sums twice from node to node of rack 0, one parity chunk within rack 4; both sums once from rack to
    // rack, the other parity chunk, and chunk 3, which moves.
    costs(&plan, &setting, (5, 4, 3));
}

/// The cluster's encoding: all chunks are made, those that stay at their node are copied there.
#[test]
fn blocks_become_a_stripe() {
    let setting = on_six_racks("rs(4,2)", &[4, 8, 12, 16, 3, 20]);
    let plan = convert(&setting, &core_rack_replicas());
    let plan = setting.is_golden("convert_to_stripe", Ok(plan));
    costs(&plan, &setting, (3, 1, 6));
}

/// And back: the chunk stays, and its copies are relayed, so that the block crosses racks once.
#[test]
fn a_chunk_becomes_a_block() {
    let setting = on_six_racks("rep(3)", &[4, 8, 9]);
    let plan = convert(&setting, &nodes(&[&[4]]));
    let plan = setting.is_golden("convert_to_replicas", Ok(plan));
    costs(&plan, &setting, (1, 1, 3));
}

fn convert(setting: &Setting, sources: &[Vec<NodeId>]) -> Plan {
    let (stripe, topology): (Stripe<'_>, _) = (setting.stripe(&[]), &setting.topology);
    let encoder = encode::best_encoder(&stripe, sources, topology).expect("there are nodes");
    let plan = encode::convert(&stripe, sources, encoder, topology, SLICE_BYTES);
    plan.expect("a plan")
}

#[test]
fn a_block_is_relayed() {
    let setting = on_six_racks("rep(3)", &[0, 4, 5]);
    let plan = encode::relay(&setting.stripe(&[]), NodeId(1), SLICE_BYTES);
    let plan = setting.is_golden("encode_relay", plan);
    costs(&plan, &setting, (2, 1, 3));
}
