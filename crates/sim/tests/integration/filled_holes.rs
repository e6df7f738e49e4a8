//! The memory of writes into holes.

use gabion_sim::filled_holes::fill_holes;

#[test]
fn writes_into_holes_take_turns_if_their_stripes_do_not_fit_the_clients_memory() {
    let took_us = |in_flight_bytes| {
        let filled = fill_holes(in_flight_bytes);
        filled.unwrap_or_else(|broken| panic!("{in_flight_bytes} bytes: {broken}"))
    };
    let (at_once, in_turn) = (took_us(256 << 20), took_us(1));
    // Without a limit both are the same run.
    assert!(10 * at_once < 9 * in_turn, "{at_once} and {in_turn} µs");
}
