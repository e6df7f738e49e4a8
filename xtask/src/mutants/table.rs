//! The mutants: rules on which the promise of docs/update-protocol.md rests, each broken. A mend of the
//! protocol brings its mutant, and a mutant that no check notices brings a test.

mod certificates;
mod clients;
mod commands;
mod connections;
mod console;
mod database;
mod directories;
mod disks;
mod exclusive;
mod images;
mod inline;
mod locks;
mod members;
mod mounts;
mod puts;
mod quotas;
mod reserves;
mod sizes;
mod snapshots;
mod surroundings;
mod tickets;

use super::check::Check;
use super::mutant::{Mutant, protocol, store, test, unit};

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Mutant> {
    UPDATES
        .iter()
        .chain(surroundings::MUTANTS)
        .chain(disks::MUTANTS)
        .chain(reserves::MUTANTS)
        .chain(clients::MUTANTS)
        .chain(sizes::MUTANTS)
        .chain(snapshots::MUTANTS)
        .chain(directories::MUTANTS)
        .chain(exclusive::MUTANTS)
        .chain(locks::MUTANTS)
        .chain(puts::MUTANTS)
        .chain(quotas::MUTANTS)
        .chain(tickets::MUTANTS)
        .chain(database::MUTANTS)
        .chain(console::MUTANTS)
        .chain(images::MUTANTS)
        .chain(inline::MUTANTS)
        .chain(connections::MUTANTS)
        .chain(members::MUTANTS)
        .chain(mounts::MUTANTS)
        .chain(commands::MUTANTS)
        .chain(certificates::MUTANTS)
}

/// Those of updates, leases and settlements.
const UPDATES: &[Mutant] = &[
    Mutant {
        name: "a-left-out-chunk-counts-when-its-stripe-ends",
        file: "crates/meta/src/displaced.rs",
        text: "for chunk in left_out(txn, &stripe)? {",
        replacement: "for chunk in left_out(txn, &stripe)?.into_iter().take(0) {",
        check: test(
            "gabion-meta",
            "integration",
            "replacements::a_chunk_that_a_settlement_left_out_is_stale_when_its_stripe_ends",
        ),
    },
    Mutant {
        name: "any-keeper-of-copies-knows-an-append",
        file: "crates/protocol/src/fate.rs",
        text: "if has_moved && !parity.all(|chunk| is_complete(&chunk)) {",
        replacement: "if has_moved && !parity.any(|chunk| is_complete(&chunk)) {",
        check: unit(
            "gabion-protocol",
            "fate::tests::one_that_was_to_change_knows_and_so_do_as_many_as_determine_the_stripe",
        ),
    },
    Mutant {
        name: "a-read-may-leave-out-what-only-lost-logs-have",
        file: "crates/planner/src/update/overlay.rs",
        text: "None if holders.is_empty() => Some(Place::Stored),",
        replacement: "None if holders.len() < usize::MAX => Some(Place::Stored),",
        check: test(
            "gabion-planner",
            "integration",
            "checker_catches_mutations::a_read_must_overlay_what_logs_have_and_from_nodes_that_are_left",
        ),
    },
    Mutant {
        name: "a-recall-passes-over-a-merged-commit",
        file: "crates/store/src/records/appended.rs",
        text: "if from > upto {",
        replacement: "if from > upto && upto == Sequence(u64::MAX) {",
        check: store(
            "appended::a_recall_as_of_an_update_before_a_merged_commit_asks_for_a_newer_cut",
        ),
    },
    Mutant {
        name: "a-list-of-logs-without-copies",
        file: "crates/protocol/src/primary.rs",
        text: "let appended = term.waiting.newest_of(&decode);",
        replacement: "let appended = term.waiting.newest_of(&decode[decode.len()..]);",
        check: protocol(
            "update::append::a_reader_that_decodes_learns_what_logs_have_and_commits_nothing",
        ),
    },
    Mutant {
        name: "a-late-end-of-an-append-phase-ends-a-later-one",
        file: "crates/meta/src/phases.rs",
        text: "if noted.is_some_and(|began| began >= told) ||",
        replacement: "if noted.is_some_and(|began| appends && began >= told) ||",
        check: protocol(
            "coordinator::leases::a_note_of_an_ended_phase_that_arrives_again_ends_no_later_phase",
        ),
    },
    Mutant {
        name: "a-late-begin-of-an-append-phase-begins-it-again",
        file: "crates/meta/src/phases.rs",
        text: "|| mark < lease.committed {",
        replacement: "|| mark < lease.committed && mark > lease.committed {",
        check: protocol(
            "coordinator::leases::a_note_of_an_ended_phase_that_arrives_again_begins_none",
        ),
    },
    Mutant {
        name: "records-not-synced-before-the-reply",
        file: "crates/protocol/src/parts.rs",
        text: "appended.into_iter().try_for_each(|lsn| store.sync(lsn))",
        replacement: "appended.into_iter().take(0).try_for_each(|lsn| store.sync(lsn))",
        check: Check::Simulator,
    },
    Mutant {
        name: "an-update-stands-if-any-survivor-has-it",
        file: "crates/protocol/src/settle.rs",
        text: "if asked.all(|chunk| holders.contains(chunk)) {",
        replacement: "if asked.any(|chunk| holders.contains(chunk)) {",
        check: Check::Simulator,
    },
    Mutant {
        name: "join-lease-counted-from-the-reply",
        file: "crates/protocol/src/joining.rs",
        text: "let lease_until_ms = sent_ms.saturating_add(lease_ms);",
        replacement: "let lease_until_ms = participant.ports.now_ms() + lease_ms + (sent_ms - sent_ms);",
        check: protocol("update::left_out::a_lease_runs_from_when_the_node_asked_for_it"),
    },
    Mutant {
        name: "heartbeat-lease-counted-from-the-reply",
        file: "crates/protocol/src/node/membership.rs",
        text: "self.renew(sent_ms.saturating_add(lease_ms), nodes);",
        replacement: "self.renew(ports.now_ms() + lease_ms + (sent_ms - sent_ms), nodes);",
        check: protocol("update::left_out::a_lease_runs_from_when_the_node_asked_for_it"),
    },
    Mutant {
        name: "no-lease-check-on-nodes",
        file: "crates/protocol/src/node.rs",
        text: "let has_lease = ports.now_ms() < self.lease_until_ms.load(Ordering::Acquire);",
        replacement: "let has_lease = ports.now_ms() != self.lease_until_ms.load(Ordering::Acquire) + (1 << 60);",
        check: protocol(
            "update::left_out::a_node_whose_lease_has_ended_serves_nothing_though_its_process_was_suspended",
        ),
    },
    Mutant {
        name: "settlements-behind-the-back-of-a-join",
        file: "crates/protocol/src/coordinator/leases/primaries.rs",
        text: "self.nodes.note_change(&left_out, stripe);",
        replacement: "let _ = (left_out, stripe);",
        check: protocol(
            "coordinator::joins::a_settlement_between_a_page_and_the_end_is_told_before_the_node_counts",
        ),
    },
    Mutant {
        name: "garbage-forgotten-while-its-node-joins",
        file: "crates/protocol/src/coordinator/garbage/mod.rs",
        text: "nodes().any(|node| joining.contains(node) || fleet.may_return(*node));",
        replacement: "nodes().any(|node| fleet.may_return(*node));",
        check: protocol("coordinator::joins::garbage_waits_for_a_node_that_joins"),
    },
    Mutant {
        name: "unknown-chunks-set-aside-without-a-word",
        file: "crates/protocol/src/coordinator/members/sessions.rs",
        text: "self.told.unknown_count <= tolerated_count.max(self.accepted_count)",
        replacement: "self.told.unknown_count <= tolerated_count.max(self.accepted_count).max(1 << 60)",
        check: protocol(
            "coordinator::joins::more_than_a_little_of_what_nobody_knows_waits_for_the_operator",
        ),
    },
    Mutant {
        name: "decisions-not-synced",
        file: "crates/store/src/records/inventory.rs",
        text: "needed_lsn = needed_lsn.max(resolved?);",
        replacement: "resolved?;",
        check: store(
            "inventory::many_decisions_and_many_chunks_set_aside_cost_a_few_syncs_and_survive_a_crash",
        ),
    },
    Mutant {
        name: "late-parts-ignore-membership",
        file: "crates/protocol/src/participant.rs",
        text: "(*current == began_in).then(|| work(store)).transpose()",
        replacement: "(*current >= began_in).then(|| work(store)).transpose()",
        check: protocol(
            "update::left_out::a_part_that_began_before_its_node_joined_anew_leaves_nothing",
        ),
    },
    Mutant {
        name: "returning-node-not-generation-fenced",
        file: "crates/store/src/records/inventory.rs",
        text: "let own_generation = known.generation.max(*generation);",
        replacement: "let own_generation = known.generation.max(Generation(generation.0.min(0)));",
        check: protocol("update::left_out::a_node_that_returns_refuses_the_layouts_from_before"),
    },
    Mutant {
        name: "collect-answers-before-its-sync",
        file: "crates/store/src/records/settle.rs",
        text: "self.shared.sync_held([stripe])?;",
        replacement: "",
        check: store("protocol::what_collect_reports_survives_a_crash"),
    },
    Mutant {
        name: "sync-claims-frames-appended-during-it",
        file: "crates/store/src/store.rs",
        text: "self.group.reached(end_lsn);",
        replacement: "let end_lsn = end_lsn.max(self.lock().journal.end_lsn());\n        self.group.reached(end_lsn);",
        check: store("late_appends::a_sync_does_not_claim_what_was_appended_while_it_ran"),
    },
    Mutant {
        name: "marks-told-to-left-out-chunks",
        file: "crates/protocol/src/primary.rs",
        text: "let told = term.stripe.chunks().filter(|&chunk| !term.misses(chunk));",
        replacement: "let told = term.stripe.chunks();",
        check: protocol(
            "update::left_out::the_node_of_a_chunk_that_an_update_leaves_out_is_told_no_mark",
        ),
    },
    Mutant {
        name: "every-mark-vouches",
        file: "crates/protocol/src/participant.rs",
        text: "sequence == Sequence(0) || !state.records.iter().any(foreign)",
        replacement: "sequence == Sequence(0) || !state.records.iter().any(foreign) || true",
        check: protocol("update::left_out::a_mark_says_nothing_of_records_of_another_term"),
    },
    Mutant {
        name: "a-node-that-went-back-reads-as-of-a-later-update",
        file: "crates/protocol/src/participant.rs",
        text: "sequence <= state.mark && vouches(state, Epoch(0), sequence)",
        replacement: "vouches(state, Epoch(0), sequence)",
        check: protocol(
            "update::left_out::a_node_that_has_not_settled_an_update_does_not_read_as_of_it",
        ),
    },
    Mutant {
        name: "an-open-put-counts-chunks-of-a-lost-directory",
        file: "crates/protocol/src/coordinator/members/joins.rs",
        text: "if went_back {",
        replacement: "if false {",
        check: protocol(
            "coordinator::identity::what_a_put_has_written_to_a_directory_that_is_gone_does_not_count",
        ),
    },
    Mutant {
        name: "a-put-is-committed-without-the-chunks-it-needs",
        file: "crates/meta/src/pending.rs",
        text: "stripe.stale.len() > left_out_max(&pool(txn, stripe.pool)?)",
        replacement: "false",
        check: protocol(
            "coordinator::identity::what_a_put_has_written_to_a_directory_that_is_gone_does_not_count",
        ),
    },
    Mutant {
        name: "one-failed-read-condemns-a-chunk",
        file: "crates/protocol/src/coordinator/repair/damage.rs",
        text: "findings.certain.extend(scrubbed.damage);",
        replacement: "let _ = scrubbed;\n                    findings.certain.extend(news.clone());",
        check: protocol("coordinator::condition::a_chunk_that_its_node_can_read_again_is_not_lost"),
    },
    Mutant {
        name: "a-scrub-leaves-the-rest-of-a-reserve-unread",
        file: "crates/store/src/chunk/scrub.rs",
        text: "if !is_reserve_readable(&*file, &header) {",
        replacement: "if false {",
        check: store(
            "reserve_damage::a_scrub_finds_an_unreadable_page_without_records_that_would_lose_the_chunk_at_the_next_start",
        ),
    },
    Mutant {
        name: "a-chunk-moves-before-nodes-refuse-its-layout",
        file: "crates/protocol/src/coordinator/repair/moves.rs",
        text: "let needed_count = survey.facts.code.k();",
        replacement: "let needed_count = 0;",
        check: protocol(
            "coordinator::former_holders::no_chunk_counts_elsewhere_before_k_nodes_of_the_layout_refuse_it",
        ),
    },
    Mutant {
        name: "a-begun-move-is-forgotten-at-the-start",
        file: "crates/meta/src/meta.rs",
        text: "abandon_moves(txn)?;",
        replacement: "",
        check: test(
            "gabion-meta",
            "integration",
            "operations::a_move_that_has_begun_ends_with_the_generation_that_nodes_were_told",
        ),
    },
    Mutant {
        name: "note-degraded-of-a-chunk-that-counts",
        file: "crates/protocol/src/coordinator/leases/primaries.rs",
        text: "node.is_some_and(|node| fleet.liveness(node) == Liveness::Failed)",
        replacement: "node.is_some_and(|node| fleet.liveness(node) != Liveness::Suspect)",
        check: protocol(
            "coordinator::leases::a_chunk_misses_updates_when_the_present_primary_says_so",
        ),
    },
    Mutant {
        name: "note-degraded-of-a-stale-chunk-on-a-node-that-is-up",
        file: "crates/protocol/src/coordinator/leases/primaries.rs",
        text: "chunks.iter().find(|(chunk, _)| !is_failed(*chunk))",
        replacement: "chunks.iter().find(|(chunk, _)| !is_failed(*chunk) && !record.is_stale(*chunk))",
        check: protocol(
            "coordinator::former_holders::a_stale_chunk_whose_node_has_returned_is_left_out_only_by_the_next_term",
        ),
    },
    Mutant {
        name: "no-term-check-in-note-phase",
        file: "crates/meta/src/phases.rs",
        text: "check_term(txn, stripe, epoch)?;",
        replacement: "check_term(txn, stripe, epoch).ok();",
        check: protocol(
            "coordinator::leases::only_the_present_primary_says_whether_updates_are_appended",
        ),
    },
    Mutant {
        name: "no-term-check-in-note-degraded",
        file: "crates/meta/src/stripes.rs",
        text: "check_term(txn, id, epoch)?;",
        replacement: "check_term(txn, id, epoch).ok();",
        check: protocol(
            "coordinator::leases::a_chunk_misses_updates_when_the_present_primary_says_so",
        ),
    },
    Mutant {
        name: "no-term-check-in-settling",
        file: "crates/meta/src/exclusions.rs",
        text: "check_term(txn, stripe, exclusion.epoch)?;",
        replacement: "check_term(txn, stripe, exclusion.epoch).ok();",
        check: protocol("coordinator::leases::nobody_leaves_out_a_node_that_has_returned"),
    },
    Mutant {
        name: "discard-ignores-its-epoch",
        file: "crates/store/src/chunk/remove.rs",
        text: "let check = |known: &Stripe| known.check_epoch(chunk.stripe, epoch);",
        replacement: "let check = |known: &Stripe| known.check_epoch(chunk.stripe, epoch).or(Ok(()));",
        check: protocol(
            "update::discard::an_order_to_discard_a_chunk_does_nothing_to_one_that_was_made_in_a_later_term",
        ),
    },
    Mutant {
        name: "no-survivor-verification",
        file: "crates/protocol/src/settle.rs",
        text: "if exclusion.stood.is_empty() {",
        replacement: "if exclusion.stood.len() < usize::MAX {",
        check: protocol(
            "coordinator::repair_edges::survivors_read_their_chunks_before_an_update_stands",
        ),
    },
    Mutant {
        name: "left-out-nodes-not-fenced",
        file: "crates/protocol/src/fence.rs",
        text: "nodes.retain(|&node| !failed.contains(&node) && !is_survivor(node));",
        replacement: "nodes.retain(|&node| !failed.contains(&node) && is_survivor(node));",
        check: protocol(
            "update::left_out::the_node_of_a_stale_chunk_refuses_old_layouts_before_an_update_leaves_it_out",
        ),
    },
    Mutant {
        name: "silent-left-out-nodes-not-waited-for",
        file: "crates/protocol/src/settle.rs",
        text: "fences.into_iter().collect::<Result<(), Refusal>>()?;",
        replacement: "drop(fences);",
        check: protocol(
            "update::left_out::no_update_leaves_a_chunk_out_whose_node_neither_answers_nor_is_declared_failed",
        ),
    },
    Mutant {
        name: "moves-forget-the-former-holder",
        file: "crates/meta/src/stripes.rs",
        text: "former_holders::leave_behind(txn, old, moved)?;",
        replacement: "",
        check: protocol(
            "coordinator::former_holders::a_lease_names_the_former_holder_until_it_confirms_that_the_chunk_is_gone",
        ),
    },
    Mutant {
        name: "late-reports-condemn-later-chunks",
        file: "crates/meta/src/stripes.rs",
        text: "*index == chunk.index && *made > generation",
        replacement: "*index == chunk.index && *made > generation && false",
        check: protocol(
            "coordinator::former_holders::a_late_report_of_damage_does_not_condemn_the_chunk_that_was_made_since",
        ),
    },
    Mutant {
        name: "orders-though-a-commit-is-in-doubt",
        file: "crates/protocol/src/coordinator/garbage/mod.rs",
        text: "        if self.core.is_broken() {\n            return false;\n        }\n        self.core",
        replacement: "        self.core",
        check: protocol(
            "coordinator::repair_edges::a_coordinator_whose_commit_is_in_doubt_has_no_chunk_taken_away",
        ),
    },
    Mutant {
        name: "lease-clock-stands-still",
        file: "crates/wire/src/clock.rs",
        text: "clock_gettime(ClockId::Boottime)",
        replacement: "clock_gettime(ClockId::ProcessCPUTime)",
        check: unit(
            "gabion-wire",
            "clock::tests::the_clock_counts_the_time_since_boot",
        ),
    },
    Mutant {
        name: "pages-granted-without-room-below",
        file: "crates/flash/src/backing.rs",
        text: "if granted_pages > self.geometry.capacity_of(state.stripes.backed()) {",
        replacement: "if granted_pages > self.geometry.capacity_of(state.stripes.count()) {",
        check: test(
            "gabion-flash",
            "integration",
            "store::space::a_full_file_system_below_refuses_new_pages_and_no_page_that_was_granted",
        ),
    },
    Mutant {
        name: "any-process-at-a-node-s-address-is-taken-for-it",
        file: "crates/wire/src/peers.rs",
        text: "if found != Some(node) {",
        replacement: "if found.is_none() {",
        check: test(
            "gabion-wire",
            "integration",
            "whoever_took_a_node_s_address_is_not_taken_for_it",
        ),
    },
    Mutant {
        name: "a-full-link-is-taken-for-silence",
        file: "crates/protocol/src/ports.rs",
        text: "Err(_) if ports.passage(node).shows_life_since(before) => Ok(()),",
        replacement: "Err(_) if ports.passage(node).shows_life_since(before) && false => Ok(()),",
        check: unit(
            "gabion-protocol",
            "ports::tests::a_node_behind_a_full_link_is_waited_for_as_long_as_bytes_move",
        ),
    },
    Mutant {
        name: "a-silent-node-is-waited-for-as-a-slow-one",
        file: "crates/protocol/src/ports.rs",
        text: "const PROBED_AFTER_MS: u64 = 250;",
        replacement: "const PROBED_AFTER_MS: u64 = 5_000;",
        check: unit(
            "gabion-protocol",
            "ports::tests::a_silent_node_is_waited_for_shortly_and_the_next_time_more_shortly",
        ),
    },
    Mutant {
        name: "clients-take-the-places-of-nodes",
        file: "crates/wire/src/admission.rs",
        text: "taken.client_count >= self.limits.client_count_max",
        replacement: "taken.client_count >= self.limits.count_max",
        check: test(
            "gabion-wire",
            "integration",
            "limits::clients_cannot_take_the_places_of_nodes",
        ),
    },
    Mutant {
        name: "every-role-may-send-every-request",
        file: "crates/wire/src/permission.rs",
        text: "if roles.has(sender.column()) {",
        replacement: "if roles.has(roles) {",
        check: test(
            "gabion-wire",
            "integration",
            "security::a_client_cannot_delete_or_fence_without_tls",
        ),
    },
    Mutant {
        name: "a-hello-claims-another-role-than-the-certificate",
        file: "crates/wire/src/handshake.rs",
        text: "hello.role != name.role || ",
        replacement: "",
        check: test(
            "gabion-wire",
            "integration",
            "security::a_hello_must_say_what_the_certificate_says",
        ),
    },
    Mutant {
        name: "a-join-token-is-exchanged-twice",
        file: "crates/wire/src/trust/authority.rs",
        text: "self.ledger.note_used(token)?;",
        replacement: "",
        check: unit(
            "gabion-wire",
            "trust::authority::tests::a_token_is_exchanged_once_for_its_own_name",
        ),
    },
    Mutant {
        name: "a-client-stages-all-there-is-room-for",
        file: "crates/protocol/src/staging.rs",
        text: "of_client.is_within(self.limits.client_bytes, PIECE_COUNT_MAX_OF_CLIENT)",
        replacement: "of_client.is_within(self.limits.staged_bytes, PIECE_COUNT_MAX_OF_CLIENT)",
        check: unit(
            "gabion-protocol",
            "staging::tests::a_client_that_stages_all_it_may_leaves_room_for_others_and_all_have_a_limit",
        ),
    },
    Mutant {
        name: "a-full-file-system-loses-the-device",
        file: "crates/flash/src/array.rs",
        text: "if let Some(full) = full_below(index, &error) {\n                    return",
        replacement: "if let Some(full) = full_below(index, &error).filter(|_| stripe == u32::MAX) {\n                    return",
        check: test(
            "gabion-flash",
            "integration",
            "store::space::a_start_that_finds_no_room_below_serves_and_goes_on_when_there_is_some",
        ),
    },
    Mutant {
        name: "journal-position-ignored",
        file: "crates/protocol/src/coordinator/members/positions.rs",
        text: "farthest.is_some_and(|farthest| applicant.position < farthest.position)",
        replacement: "farthest.is_some_and(|farthest| applicant.position < farthest.position.min(0))",
        check: protocol(
            "coordinator::identity::a_journal_that_ends_before_what_its_run_has_said_went_back",
        ),
    },
    Mutant {
        name: "other-nodes-not-asked-for-the-position",
        file: "crates/protocol/src/coordinator/members/positions.rs",
        text: "let mut said = self.ask_others(node).await;",
        replacement: "let mut said = self.ask_others(node).await;\n        said.clear();",
        check: protocol(
            "coordinator::identity::other_nodes_remember_what_the_coordinator_has_not_heard",
        ),
    },
    Mutant {
        name: "position-claimed-before-the-sync",
        file: "crates/store/src/store.rs",
        text: "self.shared.group.synced_lsn()",
        replacement: "self.shared.lock().journal.end_lsn()",
        check: store(
            "position::the_position_is_claimed_after_the_sync_and_found_again_after_any_crash",
        ),
    },
    Mutant {
        name: "position-found-after-the-start-has-appended",
        file: "crates/store/src/recovery.rs",
        text: "replay.state.rotate()?;",
        replacement: "replay.state.rotate()?;\n        identity.found_position = identity\n            .found_position\n            .map(|_| replay.state.journal.end_lsn());",
        check: store("position::a_copy_that_is_opened_again_and_again_shows_no_more_than_it_had"),
    },
    Mutant {
        name: "copies-of-a-node-that-went-back-count",
        file: "crates/protocol/src/coordinator/members/inventory.rs",
        text: "_ if request.went_back && meta.appends(chunk.stripe)? => Some(None),",
        replacement: "_ if request.went_back && meta.appends(chunk.stripe)? => Some(Some(held.mark)),",
        check: protocol("coordinator::append::copies_of_a_node_that_went_back_count_for_nothing"),
    },
];
