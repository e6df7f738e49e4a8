//! Rules of quotas.

use super::super::check::Check;
use super::super::mutant::{Mutant, process, test};

const OPEN_PUTS: Check = test(
    "gabion-meta",
    "integration",
    "quotas::open_puts_count_until_they_end",
);
const IN_PLACE: Check = test(
    "gabion-meta",
    "integration",
    "quotas::a_stripe_that_takes_the_place_of_another_is_never_refused",
);
const NAMES: Check = test(
    "gabion-meta",
    "integration",
    "quotas::a_file_counts_once_whatever_its_names",
);

const TREE: Check = test(
    "gabion-meta",
    "integration",
    "directory_quotas::quotas_count_what_the_tree_has",
);
const EARLY: Check = test(
    "gabion-meta",
    "integration",
    "directory_quotas::a_put_that_will_not_fit_is_refused_when_it_begins_and_again_at_its_commit",
);

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "growth-does-not-count-in-a-directory",
        file: "crates/meta/src/directory_uses.rs",
        text: "count(txn, row.quota, (row.size_bytes, present.size_bytes), (0, 0))",
        replacement: "Ok(())",
        check: TREE,
    },
    Mutant {
        name: "a-directory-gets-more-than-its-quota",
        file: "crates/meta/src/directory_uses.rs",
        text: "check_room(txn, (id, &row), (more(bytes), more(entries)))?;",
        replacement: "let _ = more;",
        check: TREE,
    },
    Mutant {
        name: "a-name-crosses-the-border-of-a-quota",
        file: "crates/meta/src/directory_uses.rs",
        text: "if record(txn, parent)?.quota == expected {",
        replacement: "if record(txn, parent)?.quota == expected || !has_own {",
        check: TREE,
    },
    Mutant {
        name: "a-directory-with-a-quota-moves-below-another",
        file: "crates/meta/src/directory_uses.rs",
        text: "if record(txn, parent)?.quota == expected {",
        replacement: "if record(txn, parent)?.quota == expected || has_own {",
        check: TREE,
    },
    Mutant {
        name: "a-quota-is-set-above-another",
        file: "crates/meta/src/directory_quotas.rs",
        text: "if let Some(other) = record(txn, *other)?.quota {",
        replacement: "if let Some(other) = record(txn, *other)?.quota.filter(|_| false) {",
        check: TREE,
    },
    Mutant {
        name: "a-file-with-a-name-outside-counts-inside",
        file: "crates/meta/src/directory_quotas.rs",
        text: "if file.link_count != *name_count {",
        replacement: "if file.link_count < *name_count {",
        check: TREE,
    },
    Mutant {
        name: "a-put-stores-bytes-that-a-directory-has-no-room-for",
        file: "crates/meta/src/puts.rs",
        text: "check_put(txn, &name, size_bytes)?;",
        replacement: "",
        check: EARLY,
    },
    Mutant {
        name: "the-place-of-a-replaced-file-does-not-count",
        file: "crates/meta/src/directory_uses.rs",
        text: "let more = size_bytes.saturating_sub(replaced.unwrap_or(0));",
        replacement: "let more = size_bytes;",
        check: EARLY,
    },
    Mutant {
        name: "a-write-stores-bytes-that-a-directory-has-no-room-for",
        file: "crates/meta/src/replacements.rs",
        text: "check_growth(txn, &record, rewrite.size.applied_to(record.size_bytes))?;",
        replacement: "",
        check: EARLY,
    },
    Mutant {
        name: "an-open-put-does-not-count",
        file: "crates/meta/src/puts.rs",
        text: "count_stripes(txn, &stripes)?;",
        replacement: "",
        check: OPEN_PUTS,
    },
    Mutant {
        name: "an-aborted-put-counts-for-ever",
        file: "crates/meta/src/puts.rs",
        text: "    uncount_stripe(txn, stripe)?;\n",
        replacement: "",
        check: OPEN_PUTS,
    },
    Mutant {
        name: "a-put-that-grows-is-not-checked",
        file: "crates/meta/src/puts.rs",
        text: "check_bytes(txn, &held, &placements, 0)?;",
        replacement: "",
        check: test(
            "gabion-meta",
            "integration",
            "quotas::a_put_that_grows_is_refused_and_keeps_what_it_has",
        ),
    },
    Mutant {
        name: "an-overwrite-needs-room-for-both-stripes",
        file: "crates/meta/src/replacements.rs",
        text: "check_bytes(txn, &held, &placements, old_bytes)?;",
        replacement: "check_bytes(txn, &held, &placements, old_bytes * 0)?;",
        check: IN_PLACE,
    },
    Mutant {
        name: "a-hole-is-filled-over-the-quota",
        file: "crates/meta/src/replacements.rs",
        text: "check_bytes(txn, &held, &placements, old_bytes)?;",
        replacement: "let _ = (old_bytes, check_bytes);",
        check: IN_PLACE,
    },
    Mutant {
        name: "files-are-not-counted-at-the-commit",
        file: "crates/meta/src/puts.rs",
        text: "if make_way(txn, &name, existing, now)? != Some(pool) {",
        replacement: "if make_way(txn, &name, existing, now)?.is_none() && now_ms == u64::MAX {",
        check: test(
            "gabion-meta",
            "integration",
            "quotas::files_are_counted_at_their_commit",
        ),
    },
    Mutant {
        name: "a-file-that-keeps-a-name-counts-as-gone",
        file: "crates/meta/src/files.rs",
        text: "Ok((file.link_count == 1).then_some(file.pool))",
        replacement: "Ok(Some(file.pool))",
        check: NAMES,
    },
    Mutant {
        name: "a-symbolic-link-is-no-file",
        file: "crates/meta/src/links.rs",
        text: "count_file(txn, &file)?;",
        replacement: "let _ = count_file;",
        check: NAMES,
    },
    Mutant {
        name: "an-append-grows-the-file-before-it-has-room",
        file: "crates/client/src/append.rs",
        text: "if anew.is_empty() {",
        replacement: "if !range.is_empty() {",
        check: process("quotas::a_full_quota_refuses_growth_and_nothing_else"),
    },
];
