//! Mutants of membership: suspicions, the pages of a join, and the lines of the log that tell of nodes.

use super::super::mutant::{Mutant, process, protocol, test};

/// Reads and writes beside a node that its peers do not reach.
const CUT: &str = "cut_node::reads_go_on_beside_a_node_that_its_peers_do_not_reach_and_writes_as_soon_as_it_is_evicted";

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-read-that-fails-once-in-a-repair-condemns-a-chunk",
        file: "crates/protocol/src/coordinator/repair/settle.rs",
        text: "(Refusal::Damaged(damage), Some(node)) => {",
        replacement: "(Refusal::Damaged(damage), Some(node)) if damage.range.length == 0 => {",
        check: protocol(
            "coordinator::repair::a_helper_that_could_not_read_once_is_left_out_and_its_chunk_is_not_lost",
        ),
    },
    Mutant {
        name: "a-node-that-waits-for-the-operator-is-given-up",
        file: "crates/protocol/src/coordinator/members/joins.rs",
        text: "if permission.is_some() {",
        replacement: "if permission.is_none() {",
        check: protocol(
            "coordinator::joins::a_failed_node_is_not_given_up_while_it_waits_for_the_operator",
        ),
    },
    Mutant {
        name: "drained-nodes-count-as-losses-when-one-is-to-be-evicted",
        file: "crates/protocol/src/coordinator/members/suspicion.rs",
        text: ".filter(|&failed| !roster.is_drained(failed))",
        replacement: ".filter(|&failed| !roster.is_drained(failed) || failed.0 < u32::MAX)",
        check: protocol(
            "coordinator::suspicion::drained_nodes_do_not_keep_others_from_being_evicted",
        ),
    },
    Mutant {
        name: "a-closed-connection-is-no-suspicion",
        file: "crates/server/src/coordinator.rs",
        text: "tokio::spawn(async move { coordinator.handle(request.into()).await });",
        replacement: "drop((coordinator, request));",
        check: process("gray_failures::a_killed_node_is_suspect_long_before_its_lease_is_over"),
    },
    Mutant {
        name: "a-node-that-does-not-answer-counts-as-up-while-its-lease-runs",
        file: "crates/protocol/src/coordinator/members/suspicions.rs",
        text: "held.is_some_and(|held| held.is_silent || held.evicted.is_some())",
        replacement: "held.is_some_and(|held| held.evicted.is_some())",
        check: protocol(
            "coordinator::suspicion::a_node_that_does_not_answer_is_suspect_at_once_and_failed_when_its_lease_is_over",
        ),
    },
    Mutant {
        name: "a-join-ends-though-its-digests-differ",
        file: "crates/protocol/src/coordinator/members/sessions.rs",
        text: "known.told.is_all && known.told.digest == digest && known.may_set_aside()",
        replacement: "known.told.is_all && digest == digest && known.may_set_aside()",
        check: protocol(
            "coordinator::joins::a_session_that_lost_a_page_or_counts_one_twice_is_void",
        ),
    },
    Mutant {
        name: "a-join-goes-on-without-its-first-page",
        file: "crates/protocol/src/coordinator/members/sessions.rs",
        text: "if known.before.is_all || known.before.upto != after {",
        replacement: "if known.before.is_all && known.before.upto != after {",
        check: protocol(
            "coordinator::joins::a_session_that_lost_a_page_or_counts_one_twice_is_void",
        ),
    },
    Mutant {
        name: "a-page-that-is-told-again-counts-twice",
        file: "crates/protocol/src/coordinator/members/sessions.rs",
        text: "known.told = known.before;",
        replacement: "known.before = known.told;",
        check: protocol(
            "coordinator::joins::a_node_tells_in_pages_and_is_no_member_before_the_end",
        ),
    },
    Mutant {
        name: "a-joining-node-executes-a-decision-that-was-overtaken",
        file: "crates/protocol/src/joining.rs",
        text: "let is_other = |stripe: StripeId| !reported.contains(&stripe);",
        replacement: "let is_other = |stripe: StripeId| stripe.0 < u64::MAX || reported.is_empty();",
        check: protocol(
            "update::left_out::a_joining_node_does_not_execute_a_decision_that_a_later_one_has_overtaken",
        ),
    },
    Mutant {
        name: "a-node-that-never-joined-to-the-end-is-a-member",
        file: "crates/protocol/src/coordinator/members/membership.rs",
        text: "if roster.is_known(node) {",
        replacement: "if !record.failed {",
        check: protocol(
            "coordinator::joins::a_node_that_never_joined_to_the_end_is_no_member_when_its_address_is_taken",
        ),
    },
    Mutant {
        name: "a-coordinator-waits-for-nodes-that-never-joined",
        file: "crates/protocol/src/coordinator/members/roster.rs",
        text: ".filter(|r| r.admitted.is_some());",
        replacement: ".filter(|r| r.admitted.is_some() || r.capacity_bytes > 0);",
        check: protocol(
            "coordinator::joins::a_node_that_never_joined_to_the_end_is_no_member_when_its_address_is_taken",
        ),
    },
    Mutant {
        name: "damage-that-its-node-cannot-confirm-at-once-is-forgotten",
        file: "crates/protocol/src/coordinator/repair/damage.rs",
        text: "Err(_) if count < CONFIRM_COUNT => ports.sleep_ms(wait_ms).await,",
        replacement: "Err(_) if count < CONFIRM_COUNT => return Ok(findings),",
        check: protocol(
            "coordinator::repair::damage_is_not_forgotten_when_its_node_cannot_read_it_again_at_once",
        ),
    },
    Mutant {
        name: "damage-in-another-node-s-chunk-is-ignored",
        file: "crates/protocol/src/coordinator/repair/damage.rs",
        text: "foreign.or(Some((holder, found)))",
        replacement: "foreign.or(Some((holder, found))).filter(|_| false)",
        check: protocol(
            "coordinator::condition::damage_that_a_primary_has_found_in_the_chunk_of_another_is_repaired",
        ),
    },
    Mutant {
        name: "damage-in-doubt-counts",
        file: "crates/protocol/src/coordinator/repair/damage.rs",
        text: "findings.doubtful = news;",
        replacement: "findings.certain.extend(news);",
        check: protocol(
            "coordinator::condition::damage_that_its_node_cannot_confirm_is_asked_for_until_it_can",
        ),
    },
    Mutant {
        name: "damage-in-doubt-is-forgotten",
        file: "crates/protocol/src/coordinator/repair/damage.rs",
        text: "self.core.ports.spawn(Arc::clone(self).ask_when_up(node));",
        replacement: "drop(Arc::clone(self).ask_when_up(node));",
        check: protocol(
            "coordinator::condition::damage_that_its_node_cannot_confirm_is_asked_for_until_it_can",
        ),
    },
    Mutant {
        name: "a-session-ends-that-has-not-begun",
        file: "crates/protocol/src/coordinator/files/sessions.rs",
        text: "heard.session != session || heard.has_begun",
        replacement: "heard.session != session || heard.at_ms.is_none()",
        check: protocol(
            "coordinator::exclusive::a_session_that_ends_before_it_begins_does_not_open_the_file_to_all_while_a_node_serves_its_predecessor",
        ),
    },
    Mutant {
        name: "a-late-renewal-revives-a-session-whose-client-has-left",
        file: "crates/protocol/src/coordinator/files/sessions.rs",
        text: "if self.session == session && self.at_ms.is_some() {",
        replacement: "if self.session == session {",
        check: protocol(
            "coordinator::exclusive::a_session_that_ends_before_it_begins_does_not_open_the_file_to_all_while_a_node_serves_its_predecessor",
        ),
    },
    Mutant {
        name: "a-drain-forgets-a-node-that-was-silent",
        file: "crates/protocol/src/coordinator/members/departures.rs",
        text: "if is_up && (was_silent || self.backlog.is_idle()) {",
        replacement: "if is_up && (self.backlog.is_idle() || was_silent && !is_up) {",
        check: protocol(
            "coordinator::manager::a_drain_goes_on_after_a_silence_while_another_repair_fails",
        ),
    },
    Mutant {
        name: "only-nodes-give-signs-of-life-during-an-outage",
        file: "crates/protocol/src/coordinator/mod.rs",
        text: "Ask::Heartbeat(_) | Ask::RenewLocks(_) | Ask::RenewExclusive(_) | Ask::TouchPut(_)",
        replacement: "Ask::Heartbeat(_)",
        check: protocol(
            "coordinator::locks::an_outage_of_the_metadata_ends_no_session_of_a_client_that_lives",
        ),
    },
    // Lines of the log.
    Mutant {
        name: "no-line-tells-of-an-expired-lease",
        file: "crates/protocol/src/coordinator/members/membership.rs",
        text: "self.note_loss(node, &Event::Suspect(node));",
        replacement: "let _ = node;",
        check: protocol(
            "coordinator::condition::silence_is_told_before_a_node_has_failed_and_its_chunks_are_out_of_reach",
        ),
    },
    Mutant {
        name: "no-line-tells-of-a-failed-node",
        file: "crates/protocol/src/coordinator/members/membership.rs",
        text: "self.note_loss(node, &Event::Failed(node));",
        replacement: "let _ = node;",
        check: protocol(
            "coordinator::condition::silence_is_told_before_a_node_has_failed_and_its_chunks_are_out_of_reach",
        ),
    },
    Mutant {
        name: "no-line-tells-of-an-eviction",
        file: "crates/protocol/src/coordinator/members/suspicion.rs",
        text: "self.core.ports.note_event(event);",
        replacement: "let _ = event;",
        check: protocol(
            "coordinator::suspicion::an_evicted_node_is_failed_as_soon_as_it_says_that_it_serves_nothing_more",
        ),
    },
    Mutant {
        name: "no-line-tells-of-an-eviction-for-a-link",
        file: "crates/protocol/src/coordinator/members/suspicion.rs",
        text: "self.note_eviction(node, &event, event.to_string());",
        replacement: "let _ = event;",
        check: protocol(
            "coordinator::suspicion::one_end_of_a_link_that_stays_broken_is_evicted_until_it_is_mended",
        ),
    },
    Mutant {
        name: "no-line-tells-why-a-store-has-failed",
        file: "crates/server/src/coordinator.rs",
        text: "tracing::error!(%node, reason, \"the node's store has failed; it leaves the cluster\");",
        replacement: "let _ = (node, reason);",
        check: process("health::the_log_tells_why_a_store_has_failed"),
    },
    Mutant {
        name: "an-evicted-node-is-not-told",
        file: "crates/protocol/src/coordinator/members/suspicion.rs",
        text: "self.hasten_heartbeats(vec![node]);",
        replacement: "",
        check: protocol(
            "coordinator::suspicion::an_evicted_node_is_failed_as_soon_as_it_says_that_it_serves_nothing_more",
        ),
    },
    Mutant {
        name: "a-failed-node-is-heard-of-with-the-next-heartbeat",
        file: "crates/protocol/src/coordinator/members/membership.rs",
        text: "self.hasten_heartbeats(self.nodes.fleet().with(Liveness::Up));",
        replacement: "self.hasten_heartbeats(self.nodes.fleet().with(Liveness::Up).into_iter().skip(99).collect());",
        check: protocol(
            "coordinator::suspicion::an_evicted_node_is_failed_as_soon_as_it_says_that_it_serves_nothing_more",
        ),
    },
    Mutant {
        name: "a-node-that-is-silent-to-its-peers-is-not-reported",
        file: "crates/protocol/src/ports.rs",
        text: "        if is_silent {\n            self.suspect(node);",
        replacement: "        if is_silent && node.0 > 1 << 20 {\n            self.suspect(node);",
        check: test("gabion-sim", "integration", CUT),
    },
    Mutant {
        name: "a-heartbeat-waits-until-it-is-due",
        file: "crates/protocol/src/node/membership.rs",
        text: "self.renewal.wake();",
        replacement: "",
        check: protocol(
            "update::left_out::a_node_sends_the_heartbeat_that_it_is_asked_for_before_it_is_due",
        ),
    },
    Mutant {
        name: "a-part-does-not-probe-the-peers-that-it-waits-for",
        file: "crates/protocol/src/run.rs",
        text: "(true, None) if hung.is_terminated() => {",
        replacement: "(true, None) if hung.is_terminated() && executor.is_finished() => {",
        check: test(
            "gabion-sim",
            "integration",
            "cut_node::writes_do_not_wait_for_the_deadline_of_an_update_if_two_of_its_nodes_do_not_reach_each_other",
        ),
    },
];
