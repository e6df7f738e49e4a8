//! Measures the search for a weighted path (`ECPipe` section 4.3; experiment ECP-A2): the mean and the longest time
//! over 1,000 random weightings, ours and the paper's algorithm 2. `--quick` takes ten.

use gabion_layout::NodeId;
use gabion_planner::repair::{
    LinkWeights, WeightedPath, weighted_path, weighted_path_by_extension,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

type Search = fn(&[NodeId], NodeId, usize, &LinkWeights) -> Option<WeightedPath>;

fn random_weights(nodes: u32, rng: &mut ChaCha8Rng) -> LinkWeights {
    let links = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (NodeId(from), NodeId(to))));
    links
        .filter(|(from, to)| from != to)
        .map(|link| (link, rng.random_range(0..1 << 40)))
        .collect()
}

/// Prints the times for an (n, k) code: `n - 1` helpers may help, and `k` do.
fn measure(name: &str, search: Search, n: u32, k: usize, rounds: u32) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(u64::from(n));
    let helpers: Vec<NodeId> = (0..n - 1).map(NodeId).collect();
    let (mut total, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut bottlenecks = Vec::new();
    for _ in 0..rounds {
        let weights = random_weights(n, &mut rng);
        let start = Instant::now();
        let path = search(&helpers, NodeId(n - 1), k, &weights);
        let taken = start.elapsed();
        total += taken;
        longest = longest.max(taken);
        bottlenecks.push(path.expect("all links have weights").bottleneck);
    }
    let mean = total / rounds;
    println!("({n},{k}) {name:12} mean {mean:>12.1?}  longest {longest:>12.1?}");
    bottlenecks
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let rounds = if is_quick { 10 } else { 1000 };
    for (n, k) in [(9, 6), (14, 10), (16, 12), (20, 16)] {
        let ours = measure("threshold", weighted_path, n, k, rounds);
        if n <= 14 {
            let theirs = measure("algorithm 2", weighted_path_by_extension, n, k, rounds);
            assert_eq!(ours, theirs, "both are exact");
        }
    }
}
