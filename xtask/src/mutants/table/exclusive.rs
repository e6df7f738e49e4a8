//! Rules of files that one session alone may write.

use super::super::mutant::{Mutant, protocol, test, unit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-session-that-displaces-an-abandoned-one-stays-when-it-cannot-begin",
        file: "crates/protocol/src/coordinator/files/exclusive.rs",
        text: "self.sessions.leave(file, session);",
        replacement: "",
        check: protocol(
            "coordinator::exclusive::a_removal_that_cannot_end_an_abandoned_session_leaves_none_behind",
        ),
    },
    Mutant {
        name: "a-rename-that-was-made-is-refused-for-a-later-session",
        file: "crates/protocol/src/coordinator/files/exclusive.rs",
        text: "if number.map_or(Ok(false), |number| meta.is_change_done(number))? {",
        replacement: "if number.is_some_and(|number| number == u64::MAX) {",
        check: protocol(
            "coordinator::exclusive::a_rename_that_was_made_is_not_refused_because_of_a_later_file_and_its_session",
        ),
    },
    Mutant {
        name: "a-change-commits-under-a-token-from-before",
        file: "crates/meta/src/replacements.rs",
        text: "check_token(txn, &file, rewrite.token)?;",
        replacement: "let _ = rewrite.token;",
        check: test(
            "gabion-meta",
            "integration",
            "exclusive::changes_under_a_lower_token_are_refused_also_when_they_began_before",
        ),
    },
    Mutant {
        name: "a-session-displaces-one-that-it-has-not-seen",
        file: "crates/meta/src/exclusive.rs",
        text: "check_token(txn, &file, seen)?;",
        replacement: "let _ = seen;",
        check: test(
            "gabion-meta",
            "integration",
            "exclusive::a_session_is_opened_once_and_displaced_by_who_has_seen_it",
        ),
    },
    Mutant {
        name: "a-primary-takes-updates-of-a-displaced-client",
        file: "crates/protocol/src/primary/tokens.rs",
        text: "Some(known) if known.token != update.token => Err(",
        replacement: "Some(known) if known.token < update.token => Err(",
        check: protocol("update::tokens::a_raised_token_refuses_lower_ones"),
    },
    Mutant {
        name: "a-node-that-was-away-trusts-its-token",
        file: "crates/protocol/src/primary/tokens.rs",
        text: "self.memberships.fetch_add(1, Ordering::AcqRel);",
        replacement: "self.memberships.fetch_add(0, Ordering::AcqRel);",
        check: protocol("update::tokens::a_node_that_was_away_asks_for_the_token_again"),
    },
    Mutant {
        name: "a-token-is-raised-beside-an-update",
        file: "crates/protocol/src/primary/tokens.rs",
        text: "let _turn = self.turns.wait().await;",
        replacement: "if self.settled.lock().is_some() { return None; }",
        check: protocol("update::tokens::a_token_is_raised_when_the_update_before_it_is_over"),
    },
    Mutant {
        name: "a-session-begins-before-a-node-knows",
        file: "crates/protocol/src/coordinator/files/exclusive.rs",
        text: "Err(_) if self.nodes.failed().contains(node) => {}",
        replacement: "Err(_) if !self.nodes.failed().contains(node) => {}",
        check: protocol(
            "coordinator::exclusive::no_session_begins_before_every_node_that_may_serve_knows_it",
        ),
    },
    Mutant {
        name: "a-session-begins-beside-updates-of-lost-terms",
        file: "crates/meta/src/exclusive.rs",
        text: "if !is_quiet {",
        replacement: "if !is_quiet && vouched.is_empty() {",
        check: protocol(
            "coordinator::exclusive::the_updates_of_a_primary_that_does_not_vouch_for_its_term_are_settled_first",
        ),
    },
    Mutant {
        name: "a-node-vouches-for-a-term-that-is-over",
        file: "crates/meta/src/exclusive.rs",
        text: "Some(_) => vouched.get(&id) == Some(&last.epoch),",
        replacement: "Some(_) => vouched.contains_key(&id),",
        check: protocol("coordinator::exclusive::a_node_vouches_for_no_term_but_the_present_one"),
    },
    Mutant {
        name: "a-settlement-that-failed-counts",
        file: "crates/protocol/src/coordinator/files/exclusive.rs",
        text: "meta.release(stripe, epoch)",
        replacement: "meta.release_settled(stripe, epoch)",
        check: protocol(
            "coordinator::exclusive::a_settlement_that_fails_is_repeated_before_the_session_begins",
        ),
    },
    Mutant {
        name: "a-late-open-displaces-a-session",
        file: "crates/protocol/src/coordinator/files/exclusive.rs",
        text: "meta.open_exclusive(file, session, seen);",
        replacement: "meta.open_exclusive(file, session, meta.exclusive(file)?.token.max(seen));",
        check: protocol("coordinator::exclusive::a_late_copy_of_an_open_displaces_nothing"),
    },
    Mutant {
        name: "a-put-replaces-a-file-that-a-session-has",
        file: "crates/meta/src/files.rs",
        text: "check_no_session(txn, file)?;",
        replacement: "let _ = check_no_session;",
        check: protocol(
            "coordinator::exclusive::a_put_that_began_before_a_session_does_not_replace_its_file",
        ),
    },
    Mutant {
        name: "a-refused-renewal-from-before-the-open-ends-the-session",
        file: "crates/client/src/session.rs",
        text: "matches!(ask().await, Ok(false)) && was_opened;",
        replacement: "matches!(ask().await, Ok(false)) && (was_opened || self.opened.load(Ordering::Acquire));",
        check: unit(
            "gabion-client",
            "session::tests::a_refusal_of_a_renewal_from_before_the_open_ends_no_session",
        ),
    },
    Mutant {
        name: "a-take-over-whose-answer-was-lost-is-repeated",
        file: "crates/client/src/exclusive.rs",
        text: "if later.is_some() && later != present.session {",
        replacement: "if later.is_some() && later != present.session && attempts.left_ms() == 0 {",
        check: test(
            "gabion-sim",
            "integration",
            "taken_twice::a_client_whose_take_over_was_displaced_neither_succeeds_nor_takes_the_file_back",
        ),
    },
    Mutant {
        name: "an-open-succeeds-that-another-one-has-displaced",
        file: "crates/client/src/exclusive.rs",
        text: "if file.is_superseded() {",
        replacement: "if file.is_read_only() && file.is_superseded() {",
        check: test(
            "gabion-sim",
            "integration",
            "taken_twice::a_client_whose_take_over_was_displaced_neither_succeeds_nor_takes_the_file_back",
        ),
    },
];
