//! Rules of files that grow, shrink and have holes.

use super::super::mutant::{Mutant, process, protocol, test, unit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-late-look-up-leaves-an-older-window",
        file: "crates/client/src/windows.rs",
        text: "is_apart || told < age(&known.layout.file.file)",
        replacement: "is_apart || told < age(&self.file)",
        check: unit(
            "gabion-client",
            "windows::tests::a_late_look_up_removes_windows_that_may_be_older",
        ),
    },
    Mutant {
        name: "a-removed-file-leaves-its-stripes-behind",
        file: "crates/meta/src/files.rs",
        text: "release(txn, file.map)?;",
        replacement: "",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::a_removed_file_becomes_garbage_in_small_transactions",
        ),
    },
    Mutant {
        name: "a-removal-stops-after-one-transaction",
        file: "crates/meta/src/removals.rs",
        text: "if !discard_some(txn, map, limit)? {",
        replacement: "discard_some(txn, map, limit)?;\n            {",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::a_removed_file_becomes_garbage_in_small_transactions",
        ),
    },
    Mutant {
        name: "a-late-look-up-replaces-a-newer-one",
        file: "crates/client/src/windows.rs",
        text: "        if told < age(&self.file) {",
        replacement: "        if told < (0, 0, 0) {",
        check: unit(
            "gabion-client",
            "windows::tests::a_window_from_before_a_truncation_is_not_noted",
        ),
    },
    Mutant {
        name: "a-look-up-ends-at-its-window",
        file: "crates/client/src/layout.rs",
        text: "while let Some(offset) = layout.behind {",
        replacement: "while let Some(offset) = layout.behind.filter(|&at| at < layout.window.end()) {",
        check: process(
            "sizes::a_file_of_many_windows_is_read_written_and_cut_across_their_borders",
        ),
    },
    Mutant {
        name: "a-hole-is-filled-while-its-old-stripe-is-served",
        file: "crates/meta/src/replacements.rs",
        text: "check_holes(txn, file, rewrite, &places)?;",
        replacement: "let _ = rewrite;",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::a_hole_is_not_filled_while_its_old_stripe_may_be_served",
        ),
    },
    Mutant {
        name: "a-hole-that-was-emptied-anew-is-filled",
        file: "crates/meta/src/replacements.rs",
        text: "check_holes(txn, record.file, &rewrite, &places)?;",
        replacement: "",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::a_replacement_does_not_fill_a_hole_that_others_have_made_anew_since_it_began",
        ),
    },
    Mutant {
        name: "a-hole-ends-with-a-truncation-into-it",
        file: "crates/client/src/resize.rs",
        text: "if done.has_changed {",
        replacement: "if done.has_changed || !part.is_empty() {",
        check: test(
            "gabion-sim",
            "integration",
            "races::a_hole_and_a_truncation_into_it",
        ),
    },
    Mutant {
        name: "a-stripe-that-is-gone-makes-an-update-fail",
        file: "crates/protocol/src/participant.rs",
        text: "StoreError::NoSuchStripe { stripe } => Refusal::NoSuchStripe(*stripe),",
        replacement: "StoreError::NoSuchStripe { .. } => Refusal::Invalid(error.to_string()),",
        check: test(
            "gabion-sim",
            "integration",
            "races::an_update_of_a_stripe_that_is_replaced",
        ),
    },
    Mutant {
        name: "a-block-is-replaced-by-one-of-another-size",
        file: "crates/meta/src/replacements.rs",
        text: "at == offset && old.chunk_bytes == place.chunk_bytes",
        replacement: "at == offset && old.chunk_bytes > 0 && place.chunk_bytes > 0",
        check: test(
            "gabion-meta",
            "integration",
            "conversions::a_replaced_block_keeps_its_size",
        ),
    },
    Mutant {
        name: "a-hole-is-filled-twice",
        file: "crates/meta/src/replacements.rs",
        text: "if find(txn, &layers, offset)?.is_some() {",
        replacement: "if find(txn, &layers, offset)?.is_some() && rewrite.offsets.is_empty() {",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::a_write_far_behind_the_end_leaves_a_hole",
        ),
    },
    Mutant {
        name: "a-truncation-leaves-bytes-past-the-end",
        file: "crates/meta/src/replacements.rs",
        text: "if size < file.size_bytes {",
        replacement: "if size < file.size_bytes && size == 0 {",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::a_truncation_takes_all_bytes_behind_the_end_or_does_nothing",
        ),
    },
    Mutant {
        name: "an-append-that-is-asked-for-again-grows-the-file-again",
        file: "crates/meta/src/growth.rs",
        text: "if growths.iter().any(|growth| growth.number == number) {",
        replacement: "if growths.iter().any(|growth| growth.number == number && by == 0) {",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::appends_get_ranges_of_their_own_also_after_a_lost_answer",
        ),
    },
    Mutant {
        name: "a-late-extension-drops-stripes-of-a-later-one",
        file: "crates/meta/src/puts.rs",
        text: "if step != record.step {",
        replacement: "if step > record.step {",
        check: test(
            "gabion-meta",
            "integration",
            "sizes::a_put_of_unknown_size_is_extended_once_a_step",
        ),
    },
    Mutant {
        name: "a-hole-of-an-old-layout-is-read-as-zeros",
        file: "crates/client/src/file.rs",
        text: "let layout = self.present_layout(range).await?;\n        within_file",
        replacement: "let layout = self.layout_of(range).await?;\n        within_file",
        check: process("sizes::random_changes_do_what_a_vector_of_bytes_does"),
    },
    Mutant {
        name: "a-hole-without-room-blames-the-nodes",
        file: "crates/protocol/src/coordinator/files/replace.rs",
        text: "no_room.map_or_else(|| too_few(&fleet, &error), Rejection::Final)",
        replacement: "no_room.filter(|_| false).map_or_else(|| too_few(&fleet, &error), Rejection::Final)",
        check: protocol(
            "coordinator::condition::a_write_into_a_hole_that_has_no_room_is_refused_because_of_the_disks",
        ),
    },
];
