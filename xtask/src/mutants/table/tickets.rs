//! Mutants of tickets: what a client may do with a stripe, and for how long.

use super::super::mutant::{Mutant, protocol, store, unit};

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-forged-ticket-is-good",
        file: "crates/protocol/src/ticket.rs",
        text: "if !is_same(ticket.code(&key.key), ticket.mac) {",
        replacement: "if is_same(ticket.code(&key.key), [0; MAC_BYTES]) {",
        check: unit(
            "gabion-protocol",
            "ticket::tests::a_ticket_with_any_changed_field_is_forged",
        ),
    },
    Mutant {
        name: "a-ticket-is-good-for-any-stripe",
        file: "crates/protocol/src/ticket.rs",
        text: "if !grant.covers(claim.stripe) {",
        replacement: "if !grant.covers(grant.first) {",
        check: protocol("update::tickets::each_request_of_a_client_needs_a_ticket_of_its_own_kind"),
    },
    Mutant {
        name: "a-ticket-is-good-for-any-operation",
        file: "crates/protocol/src/ticket.rs",
        text: "if !grant.operations.include(claim.operation) {",
        replacement: "if !grant.operations.include(grant.operations) {",
        check: protocol("update::tickets::each_request_of_a_client_needs_a_ticket_of_its_own_kind"),
    },
    Mutant {
        name: "a-ticket-is-good-for-any-generation",
        file: "crates/protocol/src/ticket.rs",
        text: ".is_some_and(|named| named != grant.generation)",
        replacement: ".is_some_and(|_| false)",
        check: protocol(
            "update::tickets::a_ticket_of_another_generation_or_file_is_refused_where_the_request_names_it",
        ),
    },
    Mutant {
        name: "a-ticket-is-good-for-any-file",
        file: "crates/protocol/src/ticket.rs",
        text: "if claim.file.is_some_and(|named| named != grant.put) {",
        replacement: "if claim.file.is_some_and(|_| false) {",
        check: protocol(
            "update::tickets::a_ticket_of_another_generation_or_file_is_refused_where_the_request_names_it",
        ),
    },
    Mutant {
        name: "tickets-never-expire",
        file: "crates/protocol/src/ticket.rs",
        text: "let passed_ms = now_ms.saturating_sub(self.told_ms);",
        replacement: "let passed_ms = now_ms.saturating_sub(now_ms);",
        check: protocol("update::tickets::an_expired_ticket_is_good_while_the_node_is_cut_off"),
    },
    Mutant {
        name: "a-node-without-a-coordinator-gives-no-grace",
        file: "crates/protocol/src/ticket.rs",
        text: "let grace_ms = if is_cut_off { self.told.grace_ms } else { 0 };",
        replacement: "let grace_ms = if is_cut_off { 0 } else { 0 };",
        check: protocol("update::tickets::an_expired_ticket_is_good_while_the_node_is_cut_off"),
    },
    Mutant {
        name: "clients-need-no-ticket",
        file: "crates/protocol/src/node.rs",
        text: "checked.map_err(Refusal::Ticket)",
        replacement: "checked.or(Ok::<_, Refusal>(()))",
        check: protocol("update::tickets::each_request_of_a_client_needs_a_ticket_of_its_own_kind"),
    },
    Mutant {
        name: "a-part-of-a-put-replaces-a-chunk",
        file: "crates/protocol/src/parts.rs",
        text: "writer.finish_new()",
        replacement: "writer.finish_in(epoch)",
        check: protocol(
            "update::discard::a_chunk_that_is_stored_is_not_replaced_outside_of_a_term",
        ),
    },
    Mutant {
        name: "two-new-chunks-replace-each-other",
        file: "crates/store/src/chunk/writer.rs",
        text: "if known.chunk(chunk.index).is_some() {",
        replacement: "if known.chunks().next().is_none() {",
        check: store("protocol::a_new_chunk_replaces_none"),
    },
    Mutant {
        name: "a-new-chunk-ignores-a-fence",
        file: "crates/store/src/chunk/writer.rs",
        text: "known.check_epoch(chunk.stripe, Epoch(0))?;",
        replacement: "",
        check: store("protocol::a_new_chunk_replaces_none"),
    },
    Mutant {
        name: "a-withdrawn-run-of-which-nothing-came-may-begin",
        file: "crates/protocol/src/staging.rs",
        text: "if self.unknown.runs.contains(&run) {",
        replacement: "if self.over.runs.contains(&run) {",
        check: unit(
            "gabion-protocol",
            "staging::tests::withdrawing_runs_that_never_came_takes_no_room_from_others",
        ),
    },
    Mutant {
        name: "any-client-names-a-put",
        file: "crates/protocol/src/ticket.rs",
        text: "is_same(self.open(named.id).proof, named.proof).then_some(named.id)",
        replacement: "is_same(named.proof, named.proof).then_some(named.id)",
        check: protocol("coordinator::files::a_put_obeys_only_the_client_that_has_begun_it"),
    },
    Mutant {
        name: "a-restarted-coordinator-draws-another-put-key",
        file: "crates/meta/src/ticket_keys.rs",
        text: "self.change(|txn| PUT_KEY.put(txn, &(), &new))?;",
        replacement: "",
        check: protocol("coordinator::files::a_put_obeys_only_the_client_that_has_begun_it"),
    },
    Mutant {
        name: "a-key-is-used-before-nodes-have-it",
        file: "crates/protocol/src/coordinator/tickets.rs",
        text: "self.rows.last()?.drawn_ms.saturating_add(lead_ms) <= now_ms",
        replacement: "self.rows.last()?.drawn_ms <= now_ms + lead_ms",
        check: unit(
            "gabion-protocol",
            "coordinator::tickets::tests::a_key_is_used_when_nodes_have_it_and_outlives_its_tickets",
        ),
    },
    Mutant {
        name: "a-reader-s-ticket-permits-installs",
        file: "crates/protocol/src/coordinator/files/lookups.rs",
        text: "(layout.file.put, Operations::OF_FILE)",
        replacement: "(layout.file.put, Operations::INSTALL)",
        check: protocol(
            "coordinator::tickets::a_reader_s_tickets_permit_no_install_and_a_put_s_nothing_else",
        ),
    },
    Mutant {
        name: "a-client-counts-as-a-member",
        file: "crates/wire/src/permission.rs",
        text: "if self.column() == NODE || self.column() == COORDINATOR {",
        replacement: "if self.column() != TOKEN {",
        check: unit(
            "gabion-wire",
            "permission::tests::each_request_of_users_is_for_a_stripe_and_needs_a_ticket_or_is_listed",
        ),
    },
];
