//! Writes beside a node that its peers cannot reach.

use gabion_sim::cut_node::writes_beside_a_cut_node;

#[test]
fn writes_go_on_without_a_node_that_its_peers_do_not_reach_before_its_lease_would_have_ended() {
    let gaps: Vec<u64> = (0..5)
        .map(|seed| {
            let run = writes_beside_a_cut_node(seed);
            assert_eq!(run.failure, None, "seed {seed}: {}", run.log.join("\n"));
            run.gap_us
        })
        .collect();
    let longest = gaps.iter().max();
    assert!(longest <= Some(&3_300_000), "{gaps:?}");
}
