//! Measures the time to place a replicated block, in the setting of EAR's simulations: 20 racks of 20 nodes, (14,10), 3
//! replicas. Prints the mean of the best of five rounds, and draws per block.
//!
//! `cargo bench -p gabion-planner --bench placement -- --quick` runs short rounds.

use gabion_layout::Topology;
use gabion_planner::placement::{
    EncodingAware, ParityPlaces, RackTable, ReplicaSpread, StripeRules, random_replication,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::hint::black_box;
use std::time::Instant;

const ROUND_COUNT: usize = 5;

/// Places `block_count` blocks in each round; `place` gives the draws that each took.
fn measure(name: &str, block_count: u64, mut place: impl FnMut(&mut ChaCha8Rng) -> u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut best_ns, mut draw_count) = (u64::MAX, 0);
    for _ in 0..ROUND_COUNT {
        let start = Instant::now();
        draw_count = (0..block_count).map(|_| place(&mut rng)).sum();
        best_ns = best_ns.min(start.elapsed().as_nanos() as u64 / block_count);
    }
    let draws = draw_count as f64 / block_count as f64;
    println!("{name:44} {best_ns:6} ns a block  {draws:6.3} draws");
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let block_count = if is_quick { 10_000 } else { 200_000 };
    let racks = RackTable::new(&Topology::uniform(20, 20));
    measure("random replication", block_count, |rng| {
        drop(black_box(random_replication(
            &racks,
            3,
            ReplicaSpread::FreshRacks,
            rng,
        )));
        1
    });
    for (per_rack, target_rack_count) in [(1, None), (2, None), (4, None), (4, Some(4))] {
        for parity_places in [ParityPlaces::Anywhere, ParityPlaces::CoreFirst] {
            let rules = StripeRules {
                data_count: 10,
                parity_count: 4,
                replica_count: 3,
                replica_spread: ReplicaSpread::FreshRacks,
                per_rack,
                target_rack_count,
                parity_places,
            };
            let mut placer = EncodingAware::new(&racks, rules).expect("a stripe fits");
            let targets = target_rack_count.unwrap_or(20);
            let name = format!("EAR, c = {per_rack}, R' = {targets}, parity {parity_places:?}");
            measure(&name, block_count, |rng| {
                let block = black_box(placer.place(rng)).expect("each block fits");
                block.draw_count
            });
        }
    }
}
