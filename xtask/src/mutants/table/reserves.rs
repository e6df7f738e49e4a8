//! Rules of reserved space.

use super::super::mutant::{Mutant, store, unit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-new-reserve-ignores-what-its-pool-has-learnt",
        file: "crates/protocol/src/reserves.rs",
        text: "let learnt_bytes = demand.first_bytes(&usual);",
        replacement: "let learnt_bytes = demand.first_bytes(&usual).and(None);",
        check: unit(
            "gabion-protocol",
            "reserves::tests::a_pool_of_many_updates_ends_with_large_first_reserves_and_fewer_merges",
        ),
    },
    Mutant {
        name: "an-unused-reserve-is-reviewed",
        file: "crates/protocol/src/reserves.rs",
        text: "if stats.is_new && stats.reserved_bytes > 0 {",
        replacement: "if stats.is_new && stats.reserved_bytes > 0 && learnt_bytes.is_some() {",
        check: unit(
            "gabion-protocol",
            "reserves::tests::an_unused_reserve_is_not_reviewed_and_a_used_ones_period_begins_with_its_use",
        ),
    },
    Mutant {
        name: "one-busy-chunk-decides-about-first-reserves",
        file: "crates/planner/src/reserve/demand.rs",
        text: "if self.sample_count < SAMPLE_COUNT_MIN {",
        replacement: "if self.sample_count == 0 {",
        check: unit(
            "gabion-planner",
            "reserve::demand::tests::one_busy_chunk_does_not_decide",
        ),
    },
    Mutant {
        name: "a-smaller-reserve-keeps-its-size-in-the-header",
        file: "crates/store/src/reserve/append.rs",
        text: "if bytes != old_bytes {",
        replacement: "if bytes > old_bytes {",
        check: store("reserve::a_planned_reserve_takes_its_size_with_its_first_record"),
    },
    Mutant {
        name: "a-header-includes-a-reserve-that-may-have-no-space",
        file: "crates/store/src/reserve/append.rs",
        text: "if bytes > old_bytes {",
        replacement: "if false {",
        check: store("reserve::a_crash_while_a_reserve_gets_space_loses_no_acknowledged_record"),
    },
    Mutant {
        name: "a-record-larger-than-its-reserve-never-lets-it-grow",
        file: "crates/store/src/reserve/mod.rs",
        text: "u64::from(self.bytes > 0 && frame_bytes > self.bytes)",
        replacement: "u64::from(self.bytes > 0 && frame_bytes == self.bytes)",
        check: store("reserve::a_record_that_is_larger_than_its_reserve_asks_for_growth"),
    },
];
