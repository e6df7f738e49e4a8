//! Rules of puts: their ids, and their commits in groups.

use super::super::mutant::{Mutant, test, unit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-block-of-ids-is-leased-in-memory-only",
        file: "crates/meta/src/ids.rs",
        text: "                counter.reach(txn, leased.ok_or_else(|| kind.exhausted())?)",
        replacement: "                leased.ok_or_else(|| kind.exhausted())",
        check: test(
            "gabion-meta",
            "integration",
            "ids::no_id_is_used_again_after_a_restart",
        ),
    },
    Mutant {
        name: "leased-ids-count-as-issued",
        file: "crates/meta/src/ids.rs",
        text: "        stripe < self.stripes_before\n            ||",
        replacement: "        stripe < self.first_stripe\n            ||",
        check: test(
            "gabion-meta",
            "integration",
            "ids::an_old_copy_does_not_take_leased_ids_for_issued_ones",
        ),
    },
    Mutant {
        name: "a-reclaimed-stripe-was-never-issued",
        file: "crates/meta/src/files.rs",
        text: "                Counter::ReclaimedStripes.reach(txn, stripe.0.saturating_add(1))?;\n",
        replacement: "",
        check: test(
            "gabion-meta",
            "integration",
            "ids::a_reclaimed_stripe_was_issued_also_after_restarts",
        ),
    },
    Mutant {
        name: "a-transaction-does-not-see-the-group-before",
        file: "crates/meta/src/redb_store.rs",
        text: "[&self.changes, &self.made.next, &*self.made.committing]",
        replacement: "[&self.changes, &self.made.next]",
        check: unit(
            "gabion-meta",
            "redb_store::tests::transactions_see_changes_that_are_being_committed_and_readers_only_durable_ones",
        ),
    },
    Mutant {
        name: "a-failed-transaction-does-not-wait-for-what-it-has-seen",
        file: "crates/meta/src/redb_store.rs",
        text: "run => (run.map(|(value, _)| value), self.group.last()),",
        replacement: "run => (run.map(|(value, _)| value), Ticket::default()),",
        check: unit(
            "gabion-meta",
            "redb_store::tests::a_refusal_waits_for_the_changes_that_it_has_seen",
        ),
    },
];
