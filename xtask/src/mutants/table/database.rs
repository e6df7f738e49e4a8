//! Mutants of metadata in a database: what a process may say that another may have deposed, or whose database has lost
//! commits.

use super::super::check::Check;
use super::super::mutant::{Mutant, process, protocol, test, unit};

const fn sql(name: &'static str) -> Check {
    test("gabion-sql", "integration", name)
}

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-deposed-coordinator-grants-leases",
        file: "crates/protocol/src/coordinator/mod.rs",
        text: "match self.shared.core.check_leads() {",
        replacement: "match self.shared.core.check_whole() {",
        check: protocol(
            "coordinator::membership::a_coordinator_that_may_have_been_deposed_grants_no_leases_and_counts_no_node_as_silent",
        ),
    },
    Mutant {
        name: "a-lease-is-relied-on-for-ever",
        file: "crates/sql/src/flush.rs",
        text: "        if self.lock().leader.valid_until.is_ahead() {",
        replacement: "        if self.lock().leader.term > 0 {",
        check: sql(
            "leadership::a_process_that_is_cut_off_vouches_for_nothing_until_it_has_renewed_its_lease",
        ),
    },
    Mutant {
        name: "a-command-deposes-a-coordinator-that-comes-back",
        file: "crates/sql/src/leader.rs",
        text: "(has_expired && unchanged_for >= watch)",
        replacement: "(has_expired && unchanged_for < watch)",
        check: sql("leadership::a_command_does_not_end_a_process_that_comes_back_from_an_outage"),
    },
    Mutant {
        name: "an-answer-without-the-last-commits-is-believed",
        file: "crates/sql/src/flush.rs",
        text: "if stamp.term == self.term && stamp.sequence >= needed {",
        replacement: "if stamp.term == self.term && needed >= 0 {",
        check: sql("outages::a_reader_does_not_use_an_answer_that_lacks_commits"),
    },
    Mutant {
        name: "a-database-without-the-noted-commit-is-used",
        file: "crates/sql/src/store.rs",
        text: "let is_older = row.sequence < last.sequence || row.term < last.term;",
        replacement: "let is_older = row.term < last.term;",
        check: sql("outages::a_database_that_has_lost_a_noted_commit_is_refused_at_the_start"),
    },
    Mutant {
        name: "a-silent-address-hides-the-one-that-begins-to-lead",
        file: "crates/wire/src/coordinators.rs",
        text: "            if !error.is_lasting() {",
        replacement: "            if !delay.is_zero() {",
        check: test(
            "gabion-wire",
            "integration",
            "coordinators::one_that_begins_to_lead_is_found_while_another_hangs",
        ),
    },
    Mutant {
        name: "the-port-of-one-that-stands-by-is-free",
        file: "crates/server/src/listening.rs",
        text: "    socket.bind(address)?;\n",
        replacement: "",
        check: unit(
            "gabion-server",
            "listening::tests::a_kept_address_refuses_connections_and_is_given_to_no_other_process",
        ),
    },
    Mutant {
        name: "a-start-that-shows-an-old-copy-is-forgotten",
        file: "crates/meta/src/starts.rs",
        text: " || pinned.contains(&known)",
        replacement: "",
        check: protocol(
            "coordinator::identity::an_old_copy_is_refused_however_often_it_is_started",
        ),
    },
    Mutant {
        name: "a-coordinator-that-takes-over-is-not-waited-for",
        file: "crates/client/src/client.rs",
        text: "            TAKEOVER_LIMIT\n",
        replacement: "            CONNECT_LIMIT\n",
        check: process("metadata_in_database::coordinators_that_stand_by_take_over"),
    },
    Mutant {
        name: "an-order-is-carried-out-without-its-record",
        file: "crates/server/src/coordinator.rs",
        text: "    let number = match audit.order(order).await {\n        Ok(number) => number,\n",
        replacement: "    let number = match audit.order(order).await {\n        Ok(number) => number,\n        Err(_) if true => 0,\n",
        check: process("audit::without_its_record_no_order_is_carried_out"),
    },
    Mutant {
        name: "records-that-an-error-has-left-count",
        file: "crates/server/src/audit/file.rs",
        text: "            file.set_len(*bytes)?;\n",
        replacement: "            let _ = bytes;\n",
        check: unit(
            "gabion-server",
            "audit::file::tests::what_an_error_has_left_does_not_count",
        ),
    },
    Mutant {
        name: "a-database-whose-clock-went-back-gets-no-leader",
        file: "crates/sql/src/leader.rs",
        text: "!row.is_alive || unchanged_for >= ABANDONED",
        replacement: "!row.is_alive",
        check: sql("leadership::a_database_whose_clock_went_back_gets_another_leader"),
    },
];
