//! Rules of the client, which the simulator runs as it is.

use super::super::check::Check;
use super::super::mutant::{Mutant, protocol, test, unit};

const SILENT_NODE: Check = test(
    "gabion-sim",
    "integration",
    "silent_node::a_read_asks_another_source_soon_and_later_ones_ask_the_silent_node_last",
);

const CACHED_HOLE: Check = test(
    "gabion-sim",
    "integration",
    "cached_hole::older_changes_in_the_cache_do_not_undo_a_write_into_a_hole",
);

const LAST_UPDATE: &str =
    "update::quorum::a_primary_answers_for_its_last_update_until_a_settlement_may_be_known";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-write-into-a-hole-leaves-older-changes-in-the-cache",
        file: "crates/client/src/cache/mod.rs",
        text: "let parts = self.table().segments_in(handle.put, hole);",
        replacement: "let parts = Vec::new();",
        check: CACHED_HOLE,
    },
    Mutant {
        name: "a-hole-is-read-without-the-changes-in-the-cache",
        file: "crates/client/src/cached_file.rs",
        text: "for (offset, change) in earlier.iter().chain(&present) {",
        replacement: "for (offset, change) in earlier.iter().chain(&present).take(0) {",
        check: CACHED_HOLE,
    },
    Mutant {
        name: "a-fill-of-a-hole-that-came-too-late-may-be-committed-later",
        file: "crates/protocol/src/coordinator/files/replace.rs",
        text: "Err(changed @ MetaError::FileChanged(_)) if meta.abort_put(put)? => Err(changed),",
        replacement: "Err(changed @ MetaError::FileChanged(_)) => Err(changed),",
        check: protocol(
            "coordinator::replace::a_fill_that_came_too_late_stays_so_when_the_hole_is_emptied_again",
        ),
    },
    Mutant {
        name: "a-change-that-finds-nothing-to-do-does-not-wait-for-others",
        file: "crates/client/src/resize.rs",
        text: "self.ask_to_grow(0, None).await.map(drop)",
        replacement: "self.refresh_record().await",
        check: test(
            "gabion-sim",
            "integration",
            "zeroed_twice::zeroing_what_another_client_is_zeroing_ends_when_no_reader_sees_the_old_bytes",
        ),
    },
    Mutant {
        name: "a-growth-does-not-wait-for-what-others-have-dropped",
        file: "crates/meta/src/growth.rs",
        text: "            check_none_served(txn, put)?;\n            if to == 0 {",
        replacement: "            if to == 0 {",
        check: protocol(
            "coordinator::replace::no_hole_is_filled_while_a_node_serves_what_was_there",
        ),
    },
    Mutant {
        name: "a-run-is-closed-by-a-layout-older-than-it",
        file: "crates/client/src/runs.rs",
        text: "present.is_ok_and(|present| shows_it(&present))",
        replacement: "present.is_ok()",
        check: unit(
            "gabion-client",
            "runs::tests::a_node_counts_as_failed_only_by_a_present_layout",
        ),
    },
    Mutant {
        name: "a-coordinator-that-leads-no-more-gives-an-outcome",
        file: "crates/client/src/error.rs",
        text: "CoordinatorError::Refused(why) if why.cause == Cause::NotLeading => Ok(why),",
        replacement: "CoordinatorError::Refused(why) if why.cause == Cause::NotLeading && why.sentence.is_empty() => Ok(why),",
        check: unit(
            "gabion-client",
            "error::tests::an_answer_of_a_coordinator_that_leads_no_more_is_no_outcome",
        ),
    },
    Mutant {
        name: "a-refused-put-may-be-committed-later",
        file: "crates/protocol/src/coordinator/files/puts.rs",
        text: "!refused.ends_the_coordinator() && !matches!",
        replacement: "refused.ends_the_coordinator() && !matches!",
        check: protocol("coordinator::files::a_put_that_was_refused_at_its_end_stays_refused"),
    },
    Mutant {
        name: "a-write-is-tried-again-under-its-run",
        file: "crates/client/src/write.rs",
        text: "let run = file.client.draw_run();",
        replacement: "let first = self.bytes.first_chunk::<4>().copied().unwrap_or_default();\n        \
                      let run = RunId(u64::from(u32::from_le_bytes(first)));",
        check: Check::Simulator,
    },
    Mutant {
        name: "a-degraded-read-has-no-cut",
        file: "crates/client/src/read.rs",
        text: "let (epoch, cut) = reading.cut.map_or(unvouched, |cut| cut.terms(is_degraded));",
        replacement: "let (epoch, cut) = reading.cut.filter(|_| !is_degraded).map_or(unvouched, |cut| cut.terms(is_degraded));",
        check: Check::Simulator,
    },
    Mutant {
        name: "a-degraded-read-gives-the-bytes-of-the-last-commit",
        file: "crates/client/src/read.rs",
        text: "let read = if is_degraded && !reading.appended.is_empty() {",
        replacement: "let read = if is_degraded && reading.appended.len() == usize::MAX {",
        check: Check::Simulator,
    },
    Mutant {
        name: "a-read-decodes-with-appended-bytes",
        file: "crates/client/src/chosen_cut.rs",
        text: "Self::Vouched(epoch, mark) if decodes => (epoch, ReadCut::Coded(mark)),",
        replacement: "Self::Vouched(epoch, mark) if decodes && mark.0 == u64::MAX => (epoch, ReadCut::Coded(mark)),",
        check: unit(
            "gabion-client",
            "chosen_cut::tests::a_read_that_decodes_takes_chunks_as_the_code_has_them",
        ),
    },
    Mutant {
        name: "a-put-is-closed-before-its-last-stripe-is-durable",
        file: "crates/client/src/put.rs",
        text: "while !self.storing.is_empty() {",
        replacement: "while self.storing.len() > 1 {",
        check: Check::Simulator,
    },
    Mutant {
        name: "cached-pages-outlive-an-opening",
        file: "crates/client/src/cache/table.rs",
        text: "if segment.checked_at < opened_at {",
        replacement: "if segment.checked_at < opened_at && opened_at == u64::MAX {",
        check: Check::Simulator,
    },
    Mutant {
        name: "a-write-across-stripes-is-one-update-a-stripe",
        file: "crates/client/src/write.rs",
        text: "        self.replace(range, &bytes, last_attempt).await\n",
        replacement: "        if layout.stores(range) {\n            let mut rest = bytes.clone();\n            \
                      for extent in extents {\n                \
                      let piece = rest.split_to(extent.range.length as usize);\n                \
                      self.write_extents(&[extent], &piece, last_attempt).await?;\n            }\n            \
                      return Ok(());\n        }\n        \
                      self.replace(range, &bytes, last_attempt).await\n",
        check: Check::Simulator,
    },
    Mutant {
        name: "updates-of-the-same-bytes-are-made-together",
        file: "crates/protocol/src/primary/batch.rs",
        text: "&& !self.0.iter().any(|asked| overlap(&asked.update, update))",
        replacement: "",
        check: unit(
            "gabion-protocol",
            "primary::batch::tests::requests_that_change_different_bytes_are_made_together",
        ),
    },
    Mutant {
        name: "of-updates-made-together-one-run-is-known",
        file: "crates/protocol/src/message/node.rs",
        text: "[&[self.run], &*self.joined].concat()",
        replacement: "vec![self.run]",
        check: protocol("update::batch::updates_that_wait_are_one_update_and_each_run_is_known"),
    },
    Mutant {
        name: "a-withdrawn-run-begins-with-others",
        file: "crates/protocol/src/staging.rs",
        text: "for &run in runs {\n            self.check_starts(run)?;",
        replacement: "for &run in &runs[..1] {\n            self.check_starts(run)?;",
        check: unit(
            "gabion-protocol",
            "staging::tests::of_runs_that_begin_together_none_begins_if_one_was_withdrawn",
        ),
    },
    Mutant {
        name: "a-part-that-is-no-update-takes-bytes-of-others",
        file: "crates/protocol/src/node.rs",
        text: "if !part.has_valid_runs() {",
        replacement: "if false && !part.has_valid_runs() {",
        check: protocol("update::batch::only_an_update_takes_the_bytes_of_several_runs"),
    },
    Mutant {
        name: "a-node-that-came-back-is-left-out-in-the-term-it-knows",
        file: "crates/protocol/src/primary.rs",
        text: "if let Some(term) = &mut primary.term {\n            term.admit(nodes);",
        replacement: "if let Some(term) = &mut primary.term {\n            let _ = term;",
        check: protocol(
            "update::left_out::a_node_that_came_back_within_a_term_is_left_out_by_a_new_one_only",
        ),
    },
    Mutant {
        name: "a-node-that-has-joined-within-a-term-is-left-out-in-it",
        file: "crates/protocol/src/coordinator/members/sessions.rs",
        text: "if self.turns.get(&node).is_some_and(|&turn| turn > since) {",
        replacement: "if self.turns.get(&node).is_some_and(|&turn| turn > since) && false {",
        check: protocol(
            "coordinator::leases::a_node_that_has_joined_within_a_term_is_left_out_by_the_next_one",
        ),
    },
    Mutant {
        name: "a-node-told-of-a-term-by-a-page-is-left-out-in-it",
        file: "crates/protocol/src/coordinator/members/sessions.rs",
        text: "open.told.has(stripe) && !open.changed.contains(&stripe)",
        replacement: "open.told.has(stripe) && open.changed.contains(&stripe)",
        check: protocol(
            "coordinator::leases::a_node_that_is_told_of_a_term_while_it_joins_is_left_out_by_the_next_one",
        ),
    },
    Mutant {
        name: "a-new-stripe-is-updated-while-nodes-serve-the-one-that-it-replaced",
        file: "crates/meta/src/replacements.rs",
        text: "Some(old) => PREDECESSORS.put(txn, &new.id, &vec![old]),",
        replacement: "Some(_) => Ok(()),",
        check: protocol(
            "coordinator::replace::a_write_is_not_acknowledged_while_a_node_serves_old_chunks",
        ),
    },
    Mutant {
        name: "a-failed-node-counts-as-one-that-has-removed-its-chunk",
        file: "crates/protocol/src/coordinator/garbage/mod.rs",
        text: "if obeyed_count < meta.pool(pool)?.spec.k && !meta.is_withdrawn(id)? {",
        replacement: "if obeyed_count + meta.pool(pool)?.spec.k == 0 {",
        check: protocol(
            "coordinator::replace::a_write_is_not_acknowledged_while_failed_nodes_may_answer_quorum_reads",
        ),
    },
    Mutant {
        name: "a-conversion-forgets-what-its-sources-have-replaced",
        file: "crates/meta/src/conversions.rs",
        text: "check_alone(txn, *old, self.incarnation())?;",
        replacement: "let _ = check_alone(txn, *old, self.incarnation());",
        check: test(
            "gabion-meta",
            "integration",
            "conversions::blocks_become_a_stripe_and_then_blocks_again",
        ),
    },
    Mutant {
        name: "a-cut-of-a-quorum-is-read-anywhere",
        file: "crates/client/src/reading.rs",
        text: "lost.extend(self.forbidden());",
        replacement: "lost.extend(self.forbidden().iter().take(0));",
        check: unit(
            "gabion-client",
            "reading::tests::what_a_quorum_does_not_cover_is_left_out_in_every_choice",
        ),
    },
    Mutant {
        name: "a-write-back-without-a-reply-is-written-again",
        file: "crates/client/src/cache/mod.rs",
        text: "self.decide(backing, key).await?;\n        let mut left",
        replacement: "let _ = self.decide(backing, key);\n        let mut left",
        check: unit(
            "gabion-client",
            "cache::tests::bytes_that_have_arrived_are_not_written_again_over_later_ones",
        ),
    },
    Mutant {
        name: "a-flush-counts-as-the-only-change-of-its-update",
        file: "crates/client/src/cache/segment.rs",
        text: "Some(old) if has_others => oldest(old, version),",
        replacement: "Some(old) if has_others && old.sequence.next() != version.sequence => oldest(old, version),",
        check: unit(
            "gabion-client",
            "cache::tests::an_opening_reads_what_was_written_by_the_update_of_a_flush_for_another_client",
        ),
    },
    Mutant {
        name: "a-slow-read-asks-no-second-source",
        file: "crates/client/src/hedge.rs",
        text: "let hedge_after_ms = health.hedge_after_ms(extent.range.length);",
        replacement: "let hedge_after_ms = health.hedge_after_ms(extent.range.length) + 3_600_000;",
        check: SILENT_NODE,
    },
    Mutant {
        name: "a-node-that-fails-reads-is-asked-first-again",
        file: "crates/client/src/hedge.rs",
        text: "!self.shared.health.note_failed(node, now_ms)",
        replacement: "!self.shared.health.note_failed(NodeId::CLIENT, now_ms)",
        check: SILENT_NODE,
    },
    Mutant {
        name: "a-flush-that-replaces-a-stripe-is-in-no-doubt",
        file: "crates/client/src/replace.rs",
        text: "last_attempt.set(Attempted::Replacement(Arc::clone(&open)));",
        replacement: "let _ = (last_attempt, Attempted::Replacement(Arc::clone(&open)));",
        check: test(
            "gabion-sim",
            "integration",
            "flush_in_doubt::bytes_of_a_flush_in_doubt_are_not_written_again_over_later_ones",
        ),
    },
    Mutant {
        name: "a-forgotten-replacement-counts-as-unknown",
        file: "crates/meta/src/replacements.rs",
        text: "check_remembered(txn, put)?;",
        replacement: "check_remembered(txn, PutId(u64::MAX))?;",
        check: test(
            "gabion-meta",
            "integration",
            "replacements::a_replacement_that_is_forgotten_is_not_called_unknown",
        ),
    },
    Mutant {
        name: "bytes-that-arrive-after-an-opening-stay-in-the-cache",
        file: "crates/client/src/cache/segment.rs",
        text: "if self.was_checked {",
        replacement: "if self.was_checked && self.pages.is_empty() {",
        check: unit(
            "gabion-client",
            "cache::tests::bytes_overwritten_during_a_flush_are_not_read_by_later_openings",
        ),
    },
    Mutant {
        name: "arriving-bytes-count-as-new-as-bytes-read-in-the-meantime",
        file: "crates/client/src/cache/segment.rs",
        text: "Some(old) if has_others => oldest(old, version),",
        replacement: "Some(old) if has_others => oldest(old, old),",
        check: unit(
            "gabion-client",
            "cache::tests::bytes_overwritten_during_a_flush_are_not_read_by_later_openings",
        ),
    },
    Mutant {
        name: "bytes-found-to-have-arrived-stay-in-the-cache",
        file: "crates/client/src/cache/segment.rs",
        text: "            self.leave(ranges);\n            self.drop_leaving();",
        replacement: "            for part in ranges.iter() {\n                self.changed.remove(part);\n                self.mark_pages(part);\n            }",
        check: unit(
            "gabion-client",
            "cache::tests::bytes_that_turn_out_to_have_arrived_are_read_from_the_cluster",
        ),
    },
    Mutant {
        name: "stale-chunks-alone-give-a-quorum-its-mark",
        file: "crates/protocol/src/quorum.rs",
        text: "let heard = marks.max().ok_or(NoQuorum::NothingCurrent)?;",
        replacement: "let heard = marks.max().unwrap_or_default();",
        check: unit(
            "gabion-protocol",
            "quorum::tests::the_nodes_of_stale_chunks_alone_know_no_mark",
        ),
    },
    Mutant {
        name: "stripes-that-are-stored-whole-take-more-than-their-memory",
        file: "crates/client/src/byte_budget.rs",
        text: "self.held_bytes + first.get().bytes <= limit_bytes",
        replacement: "self.held_bytes < limit_bytes",
        check: unit(
            "gabion-client",
            "byte_budget::tests::bytes_wait_for_room_in_their_order",
        ),
    },
    Mutant {
        name: "each-write-into-a-hole-holds-a-stripe-however-many-there-are",
        file: "crates/client/src/replace.rs",
        text: ".hold(slot.stripe_bytes)",
        replacement: ".hold(slot.stripe_bytes.min(0))",
        check: test(
            "gabion-sim",
            "integration",
            "filled_holes::writes_into_holes_take_turns_if_their_stripes_do_not_fit_the_clients_memory",
        ),
    },
    Mutant {
        name: "a-primary-answers-for-its-last-update-while-a-settlement-is-made-known",
        file: "crates/protocol/src/primary.rs",
        text: "primary.settled.forget();\n        self.report_settling",
        replacement: "self.report_settling",
        check: protocol(LAST_UPDATE),
    },
    Mutant {
        name: "a-primary-answers-for-terms-between-its-own",
        file: "crates/protocol/src/primary.rs",
        text: "&& epoch.0 == last.until.0 + 1",
        replacement: "&& epoch.0 > last.until.0",
        check: unit(
            "gabion-protocol",
            "primary::tests::a_renounced_term_is_answered_for_and_not_current",
        ),
    },
    Mutant {
        name: "a-primary-of-an-earlier-term-is-believed",
        file: "crates/protocol/src/quorum.rs",
        text: "(led.since..=led.until).contains(&until)",
        replacement: "led.since <= until",
        check: unit(
            "gabion-protocol",
            "quorum::tests::the_primary_of_the_newest_term_knows_what_it_has_not_acknowledged",
        ),
    },
    Mutant {
        name: "the-primary-s-word-is-raised-to-a-later-mark",
        file: "crates/protocol/src/quorum.rs",
        text: "let mark = led.map_or(heard, |led| led.mark);",
        replacement: "let mark = led.map_or(heard, |led| led.mark.max(heard));",
        check: unit(
            "gabion-protocol",
            "quorum::tests::the_primary_of_the_newest_term_knows_what_it_has_not_acknowledged",
        ),
    },
];
