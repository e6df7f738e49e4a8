//! Rules of snapshots and clones.

use super::super::check::Check;
use super::super::mutant::{Mutant, test};

const BYTES: Check = test(
    "gabion-meta",
    "integration",
    "snapshots::files_keep_their_bytes_and_give_all_stripes_back",
);
const REMOVED: Check = test(
    "gabion-meta",
    "integration",
    "snapshots::a_stripe_that_a_removed_file_had_is_not_updated_in_place",
);
const REFUSED: Check = test(
    "gabion-meta",
    "integration",
    "snapshots::a_snapshot_is_refused_where_it_cannot_be_made_and_changes_nothing",
);

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-primary-trusts-its-token-after-a-raise",
        file: "crates/protocol/src/primary/tokens.rs",
        text: "known.is_confirmed = false;",
        replacement: "let _ = &known;",
        check: Check::Simulator,
    },
    Mutant {
        name: "a-snapshot-does-not-stop-writers",
        file: "crates/protocol/src/coordinator/files/snapshots.rs",
        text: "self.raise_within(file, token, FROZEN_TELL_MS).await?;",
        replacement: "token.0.checked_sub(u64::MAX).map(|_| Denial::from(\"\"));",
        check: Check::Simulator,
    },
    Mutant {
        name: "a-shared-stripe-is-updated-in-place",
        file: "crates/meta/src/maps.rs",
        text: "Ok(file.owns(stripe) && !(",
        replacement: "Ok(!file.is_read_only && !(",
        check: BYTES,
    },
    Mutant {
        name: "a-copy-of-a-shared-stripe-is-updated-in-place",
        file: "crates/meta/src/replacements.rs",
        text: "COPIES.put(txn, &copy.id, &())?;",
        replacement: "",
        check: BYTES,
    },
    Mutant {
        name: "a-stripe-of-a-removed-file-is-updated-in-place",
        file: "crates/meta/src/maps.rs",
        text: "        MAPS.delete(txn, &map)?;\n        return Ok(());",
        replacement: "        MAPS.delete(txn, &map)?;
        let owns_all = |row: &mut FileRecord| row.shared_below = StripeId(0);
        return file.map_or(Ok(()), |file| change_row(txn, file, owns_all));",
        check: REMOVED,
    },
    Mutant {
        name: "a-copy-that-a-removed-file-had-is-updated-in-place",
        file: "crates/meta/src/maps.rs",
        text: "moved_count += u64::from(row.is_some());",
        replacement: "moved_count += u64::from(row.is_some());
                if let Some(extent) = row.filter(|_| record.file.is_some()) {
                    COPIES.delete(txn, &extent.stripe)?;
                }",
        check: REMOVED,
    },
    Mutant {
        name: "a-hole-over-a-shared-stripe-hides-nothing",
        file: "crates/meta/src/extents.rs",
        text: "if find(txn, below, offset)?.is_some() {",
        replacement: "if find(txn, below, offset)?.is_some() && below.len() > 9_999 {",
        check: BYTES,
    },
    Mutant {
        name: "a-map-that-takes-another-in-keeps-its-holes",
        file: "crates/meta/src/maps.rs",
        text: "if present.is_none() && find(txn, &below[1..], offset)?.is_none() {",
        replacement: "if present.is_none() && find(txn, &below, offset)?.is_none() {",
        check: BYTES,
    },
    Mutant {
        name: "a-snapshot-is-made-of-a-file-that-clients-write",
        file: "crates/meta/src/snapshots.rs",
        text: "if present.token != token || present.frozen_in.is_none() {",
        replacement: "if present.token != token {",
        check: REFUSED,
    },
    Mutant {
        name: "a-frozen-file-is-updated",
        file: "crates/meta/src/exclusive.rs",
        text: "return Err(SnapshotError::Frozen(put).into());",
        replacement: "return Ok(present.token);",
        check: REFUSED,
    },
    Mutant {
        name: "an-ended-run-freezes-a-file",
        file: "crates/meta/src/tokens.rs",
        text: "present.frozen_in.filter(|&frozen_in| frozen_in == run)",
        replacement: "present.frozen_in.filter(|&frozen_in| frozen_in <= run)",
        check: test(
            "gabion-meta",
            "integration",
            "snapshots::a_restarted_coordinator_lets_clients_write_again",
        ),
    },
];
