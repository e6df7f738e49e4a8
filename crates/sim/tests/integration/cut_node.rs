//! Reads and writes beside a node that its peers cannot reach.

use gabion_sim::cut_node::{CutDirection, LongestCalls, work_beside_a_cut_node};

#[test]
fn reads_go_on_beside_a_node_that_its_peers_do_not_reach_and_writes_as_soon_as_it_is_evicted() {
    let mut longest = Vec::new();
    for seed in 0..4 {
        for chunk in 0..3 {
            for direction in CutDirection::ALL {
                let run = work_beside_a_cut_node(seed, chunk, direction);
                let setting = format!("seed {seed}, chunk {chunk}, {direction:?}");
                assert_eq!(run.failure, None, "{setting}: {}", run.log.join("\n"));
                longest.push((run.longest, setting));
            }
        }
    }
    for (LongestCalls { read_us, write_us }, setting) in &longest {
        assert!(*read_us < 1_000_000, "{setting}: {read_us}");
        assert!(*write_us < 5_300_000, "{setting}: {write_us}");
    }
    // Nodes hear of an eviction at once, and not with their next heartbeats.
    let writes_us: u64 = longest.iter().map(|(calls, _)| calls.write_us).sum();
    let mean_us = writes_us / longest.len() as u64;
    assert!(mean_us < 4_200_000, "{mean_us}");
}
