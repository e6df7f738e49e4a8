//! Random settings for property tests: a code, a topology, and one stripe placed on it.

#![allow(dead_code, reason = "the tests of `exec` share a part of it")]

pub(crate) mod bytes;

use gabion_codec::Code;
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, NodePlace, RackId, StripeId, Topology,
};
use gabion_planner::repair::{SCHEMES, Scheme};
use gabion_planner::update::cau::Selection;
use gabion_planner::{Stripe, placement};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn any_code() -> impl Strategy<Value = Code> {
    prop_oneof![
        (1usize..14, 1usize..6).prop_map(|(k, m)| format!("rs({k},{m})")),
        (1usize..10, 1usize..5).prop_map(|(k, m)| format!("cauchy({k},{m})")),
        (2usize..8).prop_map(|k| format!("rdp({k})")),
        (2usize..8).prop_map(|k| format!("evenodd({k})")),
        (1usize..4, 2usize..4, 1usize..4)
            .prop_map(|(per, l, g)| format!("lrc({},{l},{g})", per * l)),
        (1usize..10, 1usize..5, 1u32..3)
            .prop_map(|(k, m, r)| format!("rotated({k},{m},{})", 1 << r)),
        (2usize..6).prop_map(|n| format!("rep({n})")),
    ]
    .prop_map(|text| text.parse().expect("a code of its family"))
}

/// A code on a random topology with a random placement of one stripe.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) code: Code,
    pub(crate) geometry: Geometry,
    pub(crate) topology: Topology,
    pub(crate) placement: Vec<NodeId>,
}

impl Setting {
    pub(crate) fn stripe<'a>(&'a self, lost: &'a [ChunkIndex]) -> Stripe<'a> {
        Stripe {
            id: StripeId(1),
            code: &self.code,
            geometry: self.geometry,
            placement: &self.placement,
            lost,
        }
    }

    pub(crate) fn spare(&self) -> NodeId {
        let spare = |p: &NodePlace| !self.placement.contains(&p.node);
        self.topology
            .nodes()
            .find(spare)
            .expect("the topology has a spare node")
            .node
    }
}

pub(crate) fn any_setting() -> impl Strategy<Value = Setting> {
    (any_code(), 1u64..200, 1u32..9, any::<u64>()).prop_map(|(code, row_bytes, racks, seed)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let w = code.sub_chunks();
        let geometry = Geometry::new(code.k(), code.m(), w, row_bytes * w as u64)
            .expect("whole rows make a geometry");
        let places = (0..code.n() as u32 + 3).map(|v| NodePlace {
            node: NodeId(v),
            rack: RackId((v * 7 + seed as u32 % 5) % racks),
        });
        let topology = Topology::new(places).expect("ids are distinct");
        let placement = placement::random(&topology, code.n(), code.n(), &mut rng)
            .expect("there are three nodes to spare");
        Setting {
            code,
            geometry,
            topology,
            placement,
        }
    })
}

/// Distinct, non-overlapping ranges of data chunks from a list of random numbers.
pub(crate) fn ranges(
    geometry: Geometry,
    chunks: usize,
    numbers: &[(u64, u64, u64)],
) -> Vec<ChunkRange> {
    let mut ranges: Vec<ChunkRange> = Vec::new();
    for &(chunk, a, b) in numbers {
        let chunk = ChunkIndex::new(chunk as usize % chunks);
        let (a, b) = (a % geometry.chunk_bytes(), b % geometry.chunk_bytes());
        let range = ByteRange::new(a.min(b), a.max(b) - a.min(b) + 1);
        let free = |r: &ChunkRange| r.chunk != chunk || r.range.intersect(range).is_none();
        if ranges.iter().all(free) {
            ranges.push(ChunkRange { chunk, range });
        }
    }
    ranges
}

/// Losses from random numbers that leave a stripe writable: any one more could be borne.
pub(crate) fn bearable_losses(setting: &Setting, numbers: &[(u64, u64, u64)]) -> Vec<ChunkIndex> {
    let n = setting.geometry.n();
    let mut lost: Vec<ChunkIndex> = Vec::new();
    for &(number, ..) in numbers {
        let chunk = ChunkIndex::new(number as usize % n);
        let left: Vec<usize> = (0..n)
            .filter(|&c| c != chunk.at() && !lost.contains(&ChunkIndex::new(c)))
            .collect();
        let bears = |gone: &usize| {
            let rest: Vec<usize> = left.iter().copied().filter(|c| c != gone).collect();
            setting.code.is_sufficient(&rest)
        };
        if !lost.contains(&chunk) && left.iter().all(bears) {
            lost.push(chunk);
        }
    }
    lost
}

pub(crate) fn any_numbers() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..6)
}

pub(crate) fn any_scheme() -> impl Strategy<Value = Scheme> {
    proptest::sample::select(SCHEMES.map(|known| known.scheme).to_vec())
}

pub(crate) fn any_selection() -> impl Strategy<Value = Selection> {
    prop_oneof![
        Just(Selection::Selective),
        Just(Selection::DataDelta),
        Just(Selection::ParityDelta),
    ]
}
