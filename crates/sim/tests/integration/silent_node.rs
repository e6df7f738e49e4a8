//! Reads beside a node that does not answer.

use gabion_sim::silent_node::reads_beside_a_silent_node;

#[test]
fn a_read_asks_another_source_soon_and_later_ones_ask_the_silent_node_last() {
    let run = reads_beside_a_silent_node();
    let times = run.times;
    assert_eq!(run.failure, None, "{}", run.log.join("\n"));
    let last_lines = || run.log[run.log.len().saturating_sub(60)..].join("\n");
    // Without a second source it would wait until probes find the node silent, for some 950 ms.
    let first_is_hedged = times.first_us > times.usual_us && times.first_us < 500_000;
    assert!(first_is_hedged, "{}\n{times:?}", last_lines());
    // The client's hedges would not suffice for all of them.
    assert!(times.later_us < 1_000_000, "{}\n{times:?}", last_lines());
}
