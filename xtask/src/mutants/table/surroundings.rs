//! Mutants of what surrounds updates: whose store it is, runs that are asked after, what clients
//! and people are told.

use super::super::mutant::{Mutant, command, process, protocol, test, unit};

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    // Puts.
    Mutant {
        name: "a-late-question-places-a-stored-stripe-anew",
        file: "crates/meta/src/placed_anew.rs",
        text: "if old.id != failed {",
        replacement: "if old.id < failed {",
        check: test(
            "gabion-meta",
            "integration",
            "placed_anew::a_stripe_that_is_placed_again_keeps_its_position_in_the_file",
        ),
    },
    Mutant {
        name: "no-stripe-of-a-put-goes-elsewhere",
        file: "crates/client/src/elsewhere.rs",
        text: "let is_final = blamed.is_empty() && !is_ticket;",
        replacement: "let is_final = true;",
        check: process("put_elsewhere::a_put_outlives_a_node_that_dies_while_it_is_under_way"),
    },
    // Runs that are asked after.
    Mutant {
        name: "a-node-that-does-not-serve-yet-has-no-memory",
        file: "crates/client/src/runs.rs",
        text: "error => Some(error.into()),",
        replacement: "NodeError::Refused(_) => None,\n        error => Some(error.into()),",
        check: unit(
            "gabion-client",
            "runs::tests::a_node_that_does_not_serve_yet_is_asked_again",
        ),
    },
    Mutant {
        name: "a-fate-is-told-without-the-nodes-that-would-know",
        file: "crates/protocol/src/fate.rs",
        text: "Ok(if would_know(&complete)? {",
        replacement: "Ok(if would_know(&complete)? || true {",
        check: protocol("update::retry::what_too_few_nodes_remember_is_not_denied"),
    },
    Mutant {
        name: "a-fate-is-told-of-the-primary-s-own-memory",
        file: "crates/protocol/src/primary/fates.rs",
        text: "heard.memories.insert(index, memory);",
        replacement: "heard.memories.insert(index, RunMemory { sequence: None, ..memory });",
        check: protocol(
            "update::retry::a_run_that_stood_is_known_after_others_have_written_and_the_primary_was_restarted",
        ),
    },
    Mutant {
        name: "not-begun-is-said-of-a-run-that-has-a-number",
        file: "crates/protocol/src/primary/updates.rs",
        text: "Err(NotMade::Begun(refusal.clone()))",
        replacement: "Err(NotMade::NotBegun(refusal.clone()))",
        check: protocol("update::retry::a_refusal_says_whether_the_run_may_have_begun"),
    },
    Mutant {
        name: "a-withdrawn-run-begins-after-all",
        file: "crates/protocol/src/staging.rs",
        text: "entry.state = State::Withdrawn;\n        entry.since_ms = now_ms;\n        let waited = std::mem::take(&mut entry.waiting);\n        let pieces = std::mem::take(&mut entry.pieces);\n        self.release_waiting(waited);\n        self.release(&pieces);\n        !pieces.is_empty()",
        replacement: "entry.since_ms = now_ms;\n        !entry.pieces.is_empty()",
        check: protocol("update::a_withdrawn_update_changes_nothing_however_late_it_comes"),
    },
    Mutant {
        name: "committed-replacements-are-forgotten",
        file: "crates/meta/src/puts.rs",
        text: "COMMITTED.put(txn, &put, &())?;",
        replacement: "",
        check: protocol(
            "coordinator::replace::a_commit_whose_answer_was_lost_is_known_after_others_have_replaced_the_stripes",
        ),
    },
    Mutant {
        name: "a-late-write-back-forgets-its-open-run",
        file: "crates/client/src/open_runs.rs",
        text: "known.is_left = true;",
        replacement: "known.is_left = false;",
        check: unit(
            "gabion-client",
            "open_runs::tests::a_run_is_left_when_its_write_ends_without_the_outcome",
        ),
    },
    // Whose store it is.
    Mutant {
        name: "clusters-not-compared-in-hellos",
        file: "crates/wire/src/hello.rs",
        text: "(Some(ours), Some(theirs)) if ours != theirs => {",
        replacement: "(Some(ours), Some(theirs)) if ours != theirs && ours.0 == 0 => {",
        check: test(
            "gabion-wire",
            "integration",
            "other_versions_clusters_and_protocols_are_refused_in_words",
        ),
    },
    Mutant {
        name: "nodes-are-silent-while-the-coordinator-is-stopped",
        file: "crates/meta/src/membership.rs",
        text: "member.silent_since_ms = later_ms.min(now_ms.max(member.silent_since_ms));",
        replacement: "let _ = (member, later_ms);",
        check: unit(
            "gabion-meta",
            "membership::tests::no_node_is_silent_while_the_coordinator_is_stopped",
        ),
    },
    Mutant {
        name: "clusters-not-compared-at-joins",
        file: "crates/protocol/src/coordinator/members/membership.rs",
        text: "applicant.cluster.filter(|&cluster| cluster != own)",
        replacement: "applicant.cluster.filter(|&cluster| cluster != own && own.0 == 0)",
        check: protocol(
            "coordinator::identity::a_node_of_another_cluster_is_refused_and_keeps_its_chunks",
        ),
    },
    Mutant {
        name: "node-ids-not-compared-when-a-store-opens",
        file: "crates/server/src/identity.rs",
        text: "Some(member) if member != (cluster, node) => {",
        replacement: "Some(member) if member.0 != cluster => {",
        check: unit(
            "gabion-server",
            "identity::tests::the_store_gives_its_identity_and_another_nodes_store_is_refused",
        ),
    },
    Mutant {
        name: "a-store-is-made-where-a-directory-is-missing",
        file: "crates/server/src/node.rs",
        text: "} else if !engine.exists(&path) {",
        replacement: "} else if !engine.exists(&path) && init {",
        check: unit(
            "gabion-server",
            "node::tests::a_store_is_created_only_with_init",
        ),
    },
    Mutant {
        name: "a-store-is-made-on-an-empty-disk",
        file: "crates/server/src/node.rs",
        text: "if !init && !Store::is_on(&*disk.disk)? {",
        replacement: "if init && !Store::is_on(&*disk.disk)? && !init {",
        check: unit(
            "gabion-server",
            "node::tests::a_store_is_created_only_with_init",
        ),
    },
    Mutant {
        name: "nonces-of-the-coordinator-s-starts-not-compared",
        file: "crates/protocol/src/coordinator/members/starts.rs",
        text: "Some(known) => known.nonce == start.nonce,",
        replacement: "Some(known) => known.nonce == start.nonce || true,",
        check: protocol(
            "coordinator::identity::a_coordinator_that_nodes_know_more_of_than_itself_stops",
        ),
    },
    Mutant {
        name: "old-metadata-works-before-nodes-have-spoken",
        file: "crates/protocol/src/coordinator/mod.rs",
        text: "this.members.all_heard().await;",
        replacement: "drop(this.members.all_heard());",
        check: protocol(
            "coordinator::identity::a_coordinator_has_nothing_removed_before_all_nodes_have_spoken",
        ),
    },
    Mutant {
        name: "old-metadata-answers-clients-before-nodes-have-spoken",
        file: "crates/protocol/src/coordinator/mod.rs",
        text: "if !request.relies_on_metadata() {",
        replacement: "if true {",
        check: protocol(
            "coordinator::identity::a_coordinator_answers_clients_when_most_nodes_have_spoken",
        ),
    },
    Mutant {
        name: "old-metadata-grants-leases-of-stripes",
        file: "crates/protocol/src/message/request_scope.rs",
        text: "            Self::BeginJoin { .. }",
        replacement: "            Self::Acquire { .. } | Self::BeginJoin { .. }",
        check: protocol(
            "coordinator::identity::a_coordinator_grants_leases_of_stripes_when_most_nodes_have_spoken",
        ),
    },
    Mutant {
        name: "old-metadata-answers-clients-when-leases-have-run-out",
        file: "crates/protocol/src/coordinator/members/roster.rs",
        text: "nodes.filter(|node| !self.abandoned.contains(node) && !self.is_drained(*node))",
        replacement: "nodes.filter(|node| self.records.get(node).is_some_and(|r| !r.failed))",
        check: protocol(
            "coordinator::identity::a_coordinator_with_few_nodes_answers_clients_when_the_others_are_given_up",
        ),
    },
    Mutant {
        name: "two-runs-of-a-node-have-one-number",
        file: "crates/protocol/src/coordinator/members/joins.rs",
        text: "start.number <= admitted.number && start != *admitted",
        replacement: "start.number < admitted.number",
        check: protocol(
            "coordinator::joins::a_run_on_an_earlier_copy_numbers_itself_above_the_runs_that_were_members",
        ),
    },
    Mutant {
        name: "a-joining-node-keeps-new-garbage",
        file: "crates/protocol/src/coordinator/garbage/mod.rs",
        text: "self.nodes.note_garbage(&stripe.nodes, stripe.id);",
        replacement: "let _ = stripe;",
        check: protocol("coordinator::joins::garbage_waits_for_a_node_that_joins"),
    },
    Mutant {
        name: "a-failed-node-is-forgotten-when-its-chunk-moves",
        file: "crates/meta/src/former_holders.rs",
        text: "return note_absent(txn, holder, chunk.stripe);",
        replacement: "return Ok(());",
        check: test(
            "gabion-meta",
            "integration",
            "operations::it_is_known_which_failed_nodes_have_chunks_that_have_moved",
        ),
    },
    Mutant {
        name: "an-update-waits-for-the-grace-of-failed-nodes",
        file: "crates/protocol/src/coordinator/members/fleet.rs",
        text: "|| (has_failed && is_hastened)",
        replacement: "|| (has_failed && is_hastened && false)",
        check: protocol(
            "coordinator::repair::a_stripe_that_an_update_waits_for_is_repaired_before_its_nodes_are_given_up",
        ),
    },
    Mutant {
        name: "a-hastened-stripe-never-awaits-its-nodes-again",
        file: "crates/protocol/src/coordinator/repair/schedule.rs",
        text: "Ok(Ended::Done) => self.nodes.note_repaired(stripe),",
        replacement: "Ok(Ended::Done) => {}",
        check: protocol(
            "coordinator::repair::a_stripe_that_an_update_waits_for_is_repaired_before_its_nodes_are_given_up",
        ),
    },
    Mutant {
        name: "a-chunk-is-given-again-in-the-term-of-its-removal",
        file: "crates/protocol/src/coordinator/repair/count.rs",
        text: "progress.taken_away.insert((chunk.index, node));",
        replacement: "",
        check: protocol(
            "coordinator::repair_edges::a_chunk_is_not_given_again_in_the_term_in_which_it_was_discarded",
        ),
    },
    Mutant {
        name: "old-metadata-says-which-nodes-are-given-up",
        file: "crates/protocol/src/coordinator/members/roster.rs",
        text: "nodes.filter(|node| !self.abandoned.contains(node) && !self.is_drained(*node))",
        replacement: "nodes.filter(|node| !self.standing(*node).abandoned && !self.is_drained(*node))",
        check: protocol(
            "coordinator::identity::nodes_that_an_earlier_run_gave_up_count_until_this_run_gives_them_up",
        ),
    },
    Mutant {
        name: "an-operator-ends-the-grace-of-nodes-by-old-metadata",
        file: "crates/protocol/src/message/request_scope.rs",
        text: "            Self::BeginJoin { .. }",
        replacement: "            Self::RepairNow { .. } | Self::BeginJoin { .. }",
        check: protocol(
            "coordinator::identity::an_operator_ends_no_grace_before_most_nodes_have_spoken",
        ),
    },
    Mutant {
        name: "later-changes-of-the-metadata-hide-missing-ones",
        file: "crates/protocol/src/coordinator/members/starts.rs",
        text: "self.change_count_after(heard).unwrap_or(present_count);",
        replacement: "self.change_count_after(heard).max(Some(present_count)).unwrap_or_default();",
        check: protocol(
            "coordinator::identity::one_change_that_is_missing_gives_old_metadata_away_however_many_were_made_since",
        ),
    },
    Mutant {
        name: "changes-of-the-metadata-not-compared",
        file: "crates/protocol/src/coordinator/members/starts.rs",
        text: "if change_count > known_count {",
        replacement: "if change_count > known_count && false {",
        check: protocol(
            "coordinator::identity::a_coordinator_whose_metadata_has_made_fewer_changes_than_nodes_know_stops",
        ),
    },
    Mutant {
        name: "a-copy-of-a-replaced-chunk-counts-by-its-mark",
        file: "crates/protocol/src/coordinator/members/inventory.rs",
        text: "_ if facts.was_remade_after(chunk.index, held.generation) => Some(None),",
        replacement: "_ if facts.was_remade_after(chunk.index, held.generation) && false => Some(None),",
        check: protocol(
            "coordinator::identity::a_copy_from_before_its_chunk_was_made_anew_is_worth_nothing",
        ),
    },
    Mutant {
        name: "an-old-directory-counts-as-whole",
        file: "crates/protocol/src/coordinator/members/inventory.rs",
        text: "_ if request.went_back => Some(Some(held.mark)),",
        replacement: "_ if request.went_back && false => Some(Some(held.mark)),",
        check: protocol(
            "coordinator::identity::a_directory_that_does_not_follow_on_the_last_start_has_missed_all_after_its_marks",
        ),
    },
    Mutant {
        name: "a-second-process-of-a-node-is-let-in",
        file: "crates/protocol/src/coordinator/members/membership.rs",
        text: "if reach(&*self.core.ports, first.node).await.is_err() {",
        replacement: "if reach(&*self.core.ports, first.node).await.is_err() || true {",
        check: protocol(
            "coordinator::identity::a_second_process_of_a_node_is_refused_while_the_first_one_answers",
        ),
    },
    Mutant {
        name: "a-joining-node-deletes-files-of-others",
        file: "crates/protocol/src/holdings.rs",
        text: "    store.set_aside(chunks)",
        replacement: "    chunks.iter().try_for_each(|&chunk| store.remove(chunk))",
        check: protocol(
            "update::discard::a_joining_node_keeps_the_file_of_a_chunk_that_is_not_its_any_more",
        ),
    },
    Mutant {
        name: "trash-is-deleted-at-once",
        file: "crates/protocol/src/trash.rs",
        text: "now_ms - **since_ms >= KEEP_MS",
        replacement: "now_ms - **since_ms <= KEEP_MS",
        check: unit(
            "gabion-protocol",
            "trash::tests::a_file_is_due_a_day_after_it_was_first_seen",
        ),
    },
    // Disks that fail.
    Mutant {
        name: "a-failed-store-says-nothing-and-goes-on",
        file: "crates/protocol/src/store_failure.rs",
        text: "self.participant.ports.spawn(announced.boxed());",
        replacement: "drop(announced);",
        check: protocol(
            "update::a_node_whose_disk_dies_refuses_everything_and_tells_the_coordinator",
        ),
    },
    Mutant {
        name: "a-hung-disk-keeps-its-membership",
        file: "crates/protocol/src/node/membership.rs",
        text: "self.tell_end(EndCause::DiskHangs).await;",
        replacement: "",
        check: protocol(
            "update::left_out::a_node_whose_disk_hangs_serves_nothing_and_says_so_until_it_has_joined_anew",
        ),
    },
    Mutant {
        name: "a-failed-store-keeps-its-membership",
        file: "crates/protocol/src/coordinator/members/roster.rs",
        text: "is_member && self.membership.end(node, incarnation, now_ms)",
        replacement: "is_member && incarnation != incarnation && self.membership.end(node, incarnation, now_ms)",
        check: protocol(
            "coordinator::membership::a_node_whose_store_has_failed_counts_as_failed_at_once",
        ),
    },
    // Without the coordinator, and around nodes that are slow.
    Mutant {
        name: "a-quorum-is-one-node-short",
        file: "crates/protocol/src/quorum.rs",
        text: "let needed_count = record.nodes.len() + 1 - k;",
        replacement: "let needed_count = record.nodes.len() - k;",
        check: unit(
            "gabion-protocol",
            "quorum::tests::fewer_nodes_than_could_miss_a_settlement_prove_nothing",
        ),
    },
    Mutant {
        name: "marks-that-were-not-sent-are-lost-with-the-lease",
        file: "crates/protocol/src/node.rs",
        text: "known.led = primaries.last_committed(asked.stripe);",
        replacement: "known.led = None;",
        check: protocol(
            "update::quorum::a_node_without_a_lease_answers_quorum_reads_of_its_own_term_alone",
        ),
    },
    Mutant {
        name: "quorum-reads-ignore-the-term",
        file: "crates/protocol/src/parts.rs",
        text: "!(since..=until).contains(&state.epoch)",
        replacement: "state.epoch > until",
        check: protocol(
            "update::quorum::a_node_without_a_lease_answers_quorum_reads_of_its_own_term_alone",
        ),
    },
    Mutant {
        name: "a-term-outlives-the-loss-of-a-node-that-it-has-asked",
        file: "crates/protocol/src/primary.rs",
        text: ".is_some_and(|term| term.has_lost(nodes))",
        replacement: ".is_some_and(|term| term.has_lost(nodes) && false)",
        check: protocol(
            "update::quorum::an_update_that_leaves_out_a_node_which_its_term_has_asked_is_of_a_new_term",
        ),
    },
    Mutant {
        name: "every-read-may-be-asked-for-twice",
        file: "crates/client/src/health.rs",
        text: "const HEDGE_SHARE: f64 = 0.05;",
        replacement: "const HEDGE_SHARE: f64 = 1.0;",
        check: unit(
            "gabion-client",
            "health::tests::one_read_in_twenty_may_be_hedged",
        ),
    },
    Mutant {
        name: "nodes-are-evicted-whatever-is-lost-already",
        file: "crates/protocol/src/coordinator/members/suspicion.rs",
        text: "if usize::try_from(left).unwrap_or(0) < lost_count {",
        replacement: "if usize::try_from(left).unwrap_or(0) < lost_count && false {",
        check: protocol("coordinator::suspicion::no_more_nodes_are_evicted_than_all_pools_survive"),
    },
    Mutant {
        name: "a-complaining-node-is-believed-even-if-it-reaches-nothing",
        file: "crates/protocol/src/coordinator/members/suspicions.rs",
        text: "(complaint_count(other), **other) < (count, node)",
        replacement: "complaint_count(other) < usize::MAX",
        check: unit(
            "gabion-protocol",
            "coordinator::members::suspicions::tests::the_node_that_reaches_fewest_is_cut_off_and_its_peers_are_not",
        ),
    },
    Mutant {
        name: "one-node-s-word-evicts-another",
        file: "crates/protocol/src/coordinator/members/suspicions.rs",
        text: "credible_count >= 2 || (count >= 2 && count * 2 > look.other_count)",
        replacement: "credible_count >= 1",
        check: protocol(
            "coordinator::suspicion::a_node_that_several_others_cannot_use_is_evicted_until_they_can",
        ),
    },
    Mutant {
        name: "a-single-broken-link-evicts-no-node",
        file: "crates/protocol/src/coordinator/members/suspicions.rs",
        text: "return if is_due && !is_outranked {",
        replacement: "return if is_due && !is_outranked && false {",
        check: protocol(
            "coordinator::suspicion::one_end_of_a_link_that_stays_broken_is_evicted_until_it_is_mended",
        ),
    },
    Mutant {
        name: "a-process-of-the-evicted-runs-number-is-evicted-too",
        file: "crates/protocol/src/coordinator/members/joins.rs",
        text: "if let Some(number) = self.superseding(&applicant).await? {",
        replacement: "let other = self.superseding(&applicant).await?;\n        if let Some(number) = other.filter(|_| self.refuse_evicted(&applicant).is_none()) {",
        check: protocol(
            "coordinator::suspicion::a_process_on_a_copy_from_before_an_evicted_run_gets_a_number_above_it",
        ),
    },
    Mutant {
        name: "either-end-of-a-broken-link-is-evicted",
        file: "crates/protocol/src/coordinator/members/suspicions.rs",
        text: "held.complainants.contains(&node) && rank > (1, node)",
        replacement: "held.complainants.contains(&node) && rank > (1, node) && false",
        check: protocol(
            "coordinator::suspicion::one_end_of_a_link_that_stays_broken_is_evicted_until_it_is_mended",
        ),
    },
    Mutant {
        name: "a-node-evicted-for-a-link-returns-while-the-link-is-broken",
        file: "crates/protocol/src/coordinator/members/suspicions.rs",
        text: "if self.evicted_for_link(node).is_some_and(is_broken) {",
        replacement: "if self.evicted_for_link(node).is_some_and(is_broken) && false {",
        check: unit(
            "gabion-protocol",
            "coordinator::members::suspicions::tests::who_is_evicted_for_a_link_returns_when_its_other_end_reaches_it",
        ),
    },
    Mutant {
        name: "an-eviction-for-a-link-makes-stripes-read-only",
        file: "crates/protocol/src/coordinator/members/suspicion.rs",
        text: "if pools.failures_left(meta, stripe.pool, &without)? < 1 {",
        replacement: "if pools.failures_left(meta, stripe.pool, &without)? < 0 {",
        check: protocol(
            "coordinator::suspicion::no_end_of_a_broken_link_is_evicted_that_stripes_need_for_updates",
        ),
    },
    Mutant {
        name: "damage-is-counted-each-time-it-is-found",
        file: "crates/protocol/src/coordinator/repair/damage.rs",
        text: "u64::from(marked.is_some() && is_new)",
        replacement: "u64::from(marked.is_some() && (is_new || true))",
        check: protocol(
            "coordinator::condition::damaged_chunks_are_counted_once_and_the_log_tells_of_them",
        ),
    },
    Mutant {
        name: "a-late-word-ends-a-later-membership",
        file: "crates/protocol/src/coordinator/members/sessions.rs",
        text: "(since == session).then_some(incarnation)",
        replacement: "(since.node == session.node).then_some(incarnation)",
        check: protocol(
            "coordinator::suspicion::an_evicted_node_is_failed_as_soon_as_it_says_that_it_serves_nothing_more",
        ),
    },
    Mutant {
        name: "a-node-serves-after-its-membership-has-ended",
        file: "crates/protocol/src/node/membership.rs",
        text: "        self.lease_until_ms.store(0, Ordering::Release);\n        lock(&self.staging).withdraw_all(self.participant.ports.now_ms());",
        replacement: "        lock(&self.staging).withdraw_all(self.participant.ports.now_ms());",
        check: protocol(
            "update::left_out::a_part_that_began_before_its_node_joined_anew_leaves_nothing",
        ),
    },
    Mutant {
        name: "leases-are-granted-though-the-metadata-have-failed",
        file: "crates/protocol/src/coordinator/core.rs",
        text: "if self.broken.set(reason.clone()).is_ok() {",
        replacement: "if self.broken.get().is_none() {",
        check: protocol(
            "coordinator::suspicion::a_coordinator_whose_metadata_have_failed_grants_no_leases_and_says_so",
        ),
    },
    Mutant {
        name: "full-nodes-get-new-chunks",
        file: "crates/planner/src/placement/room.rs",
        text: "u128::from(used) * 100 > u128::from(self.capacity_bytes) * u128::from(FULL_PERCENT)",
        replacement: "u128::from(used) > u128::from(self.capacity_bytes) * u128::from(FULL_PERCENT)",
        check: protocol("coordinator::condition::one_full_node_stops_no_put_and_gets_nothing"),
    },
    // Sentences, answers and files for people.
    Mutant {
        name: "green-although-a-node-was-not-heard",
        file: "crates/console/src/view/health.rs",
        text: "Liveness::Up if silence_ms.is_none() => Some(format!(",
        replacement: "Liveness::Up if silence_ms == Some(&u64::MAX) => Some(format!(",
        check: unit(
            "gabion-console",
            "view::health::tests::green_means_no_problem",
        ),
    },
    Mutant {
        name: "a-scrub-succeeds-though-nodes-were-silent",
        file: "crates/gabion/src/commands/repair.rs",
        text: "if unreachable.is_empty() {\n        return Ok(());",
        replacement: "if unreachable.len() < usize::MAX {\n        return Ok(());",
        check: command("commands::repair::tests::a_scrub_that_could_not_ask_a_node_fails"),
    },
    Mutant {
        name: "an-output-file-takes-the-place-of-a-fifo",
        file: "crates/gabion/src/output_file.rs",
        text: "if found.is_file() {",
        replacement: "if found.is_file() || found.uid() < u32::MAX {",
        check: command("output_file::tests::a_fifo_is_written_into_and_stays"),
    },
    // The checker of the clients' histories.
    Mutant {
        name: "only-circles-of-two-are-found",
        file: "crates/history/src/order.rs",
        text: "node.first <= first && node.last <= last",
        replacement: "node.first < first && node.last < last",
        check: test(
            "gabion-history",
            "integration",
            "blocks::histories_without_an_order_are_found",
        ),
    },
    Mutant {
        name: "a-write-that-a-search-does-not-explain-passes",
        file: "crates/history/src/choices.rs",
        text: "return Err(failed);",
        replacement: "return Ok(());",
        check: test(
            "gabion-history",
            "integration",
            "blocks::a_write_that_has_no_side_for_several_reasons_is_found",
        ),
    },
    Mutant {
        name: "a-failed-write-may-stay-in-one-block",
        file: "crates/history/src/blocks.rs",
        text: "spanning.ended.get_or_insert(at);",
        replacement: "spanning.ended.take();",
        check: test(
            "gabion-history",
            "integration",
            "spanning::a_write_that_failed_is_in_all_blocks_or_in_none",
        ),
    },
    Mutant {
        name: "a-missing-metadata-file-is-opened",
        file: "crates/server/src/metadata.rs",
        text: "            && !path.exists()\n",
        replacement: "            && path.as_os_str().is_empty()\n",
        check: unit(
            "gabion-server",
            "metadata::tests::metadata_are_made_only_for_a_new_cluster",
        ),
    },
];
