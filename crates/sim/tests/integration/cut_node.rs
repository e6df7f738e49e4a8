//! Reads and writes beside a node that its peers cannot reach.

use gabion_sim::cut_node::{CutDirection, LongestCalls, NodeCut, work_beside_a_cut_node};

/// The longest calls beside these cuts, with four seeds each.
fn longest_calls(cuts: &[NodeCut]) -> Vec<(LongestCalls, String)> {
    let longest = |(seed, &cut)| {
        let run = work_beside_a_cut_node(seed, cut);
        let setting = format!("seed {seed}, {cut:?}");
        assert_eq!(run.failure, None, "{setting}: {}", run.log.join("\n"));
        (run.longest, setting)
    };
    let runs = (0..4).flat_map(|seed| cuts.iter().map(move |cut| (seed, cut)));
    runs.map(longest).collect()
}

/// Reads take up to 1.4 s, and less than a second beside 199 of 200 cuts (seeds 0 to 119). Writes take up to 5.3 s, and
/// longer if connections to the node break: simulated nodes do not report that.
fn assert_short(longest: &[(LongestCalls, String)]) {
    for (LongestCalls { read_us, write_us }, setting) in longest {
        assert!(*read_us < 1_500_000, "{setting}: {read_us}");
        assert!(*write_us < 6_300_000, "{setting}: {write_us}");
    }
    let is_long = |(calls, _): &&(LongestCalls, String)| calls.read_us >= 1_000_000;
    let long_count = longest.iter().filter(is_long).count();
    assert!(
        long_count * 12 <= longest.len(),
        "{long_count} reads of a second or more"
    );
}

#[test]
fn reads_go_on_beside_a_node_that_its_peers_do_not_reach_and_writes_as_soon_as_it_is_evicted() {
    let cuts = (0..3).flat_map(|chunk| {
        CutDirection::ALL.map(|direction| NodeCut {
            chunk,
            direction,
            spares_primary: false,
        })
    });
    let longest = longest_calls(&cuts.collect::<Vec<_>>());
    assert_short(&longest);
    // Nodes hear of an eviction at once, and not with their next heartbeats.
    let writes_us: u64 = longest.iter().map(|(calls, _)| calls.write_us).sum();
    let mean_us = writes_us / longest.len() as u64;
    assert!(mean_us < 4_200_000, "{mean_us} of {longest:?}");
}

#[test]
fn writes_do_not_wait_for_the_deadline_of_an_update_if_two_of_its_nodes_do_not_reach_each_other() {
    let cuts = CutDirection::ALL.map(|direction| NodeCut {
        chunk: 2,
        direction,
        spares_primary: true,
    });
    // An update has 10 s.
    assert_short(&longest_calls(&cuts));
}
