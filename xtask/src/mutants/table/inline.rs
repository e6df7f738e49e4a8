//! Rules of inline files.

use super::super::mutant::{Mutant, test, unit};

const VERSION: &str = "inline::a_write_needs_the_version_that_the_file_has";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-write-of-inline-bytes-fits-any-version",
        file: "crates/meta/src/inline.rs",
        text: "file.inline.filter(|inline| inline.version == write.version)",
        replacement: "file.inline",
        check: test("gabion-meta", "integration", VERSION),
    },
    Mutant {
        name: "a-growth-keeps-the-version-of-inline-bytes",
        file: "crates/meta/src/growth.rs",
        text: "            note_resize(txn, &mut file)?;\n            file.attributes",
        replacement: "            file.attributes",
        check: test("gabion-meta", "integration", VERSION),
    },
    Mutant {
        name: "stripes-take-the-place-of-later-inline-bytes",
        file: "crates/meta/src/inline_rows.rs",
        text: "(Some(present), Some(version)) => present.version == version,",
        replacement: "(Some(_), Some(_)) => true,",
        check: test(
            "gabion-meta",
            "integration",
            "inline::stripes_take_the_place_of_the_version_that_they_have",
        ),
    },
    Mutant {
        name: "an-append-to-inline-bytes-has-no-room",
        file: "crates/meta/src/growth.rs",
        text: "            fill_with_zeros(txn, &mut file)?;\n",
        replacement: "",
        check: test(
            "gabion-meta",
            "integration",
            "inline::an_append_gets_its_bytes_when_the_file_grows",
        ),
    },
    Mutant {
        name: "a-refused-put-of-an-inline-file-is-forgotten",
        file: "crates/meta/src/changes_done.rs",
        text: "                note(txn, number, ChangeOutcome::Refused)?;\n",
        replacement: "",
        check: test(
            "gabion-meta",
            "integration",
            "inline::a_late_copy_of_a_refused_request_has_no_effect",
        ),
    },
    Mutant {
        name: "stripes-do-not-take-inline-bytes-of-other-segments",
        file: "crates/client/src/rewrite.rs",
        text: "for slot in inline_slots(layout) {",
        replacement: "for slot in inline_slots(layout).take(0) {",
        check: unit(
            "gabion-client",
            "rewrite::tests::stripes_that_a_write_brings_take_all_inline_bytes",
        ),
    },
    Mutant {
        name: "a-hole-in-inline-bytes-lets-a-truncated-file-grow",
        file: "crates/client/src/inline.rs",
        text: "let part = ByteRange::new(0, inline_bytes).intersect(range)?;",
        replacement: "let part = ByteRange::new(0, inline_bytes.max(8000)).intersect(range)?;",
        check: test(
            "gabion-sim",
            "integration",
            "races::a_hole_in_inline_bytes_and_a_truncation",
        ),
    },
];
