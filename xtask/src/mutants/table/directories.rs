//! Rules of directories.

use super::{Mutant, protocol, test};
use crate::mutants::check::Check;

const fn meta(name: &'static str) -> Check {
    test("gabion-meta", "integration", name)
}

const MODEL: &str = "directories::directories_are_as_a_model_of_paths_has_them";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-directory-moves-below-itself",
        file: "crates/meta/src/directories.rs",
        text: "if to.strip_prefix(&path).is_some_and(is_below) {",
        replacement: "if false && to.strip_prefix(&path).is_some_and(is_below) {",
        check: meta(MODEL),
    },
    Mutant {
        name: "a-directory-that-is-not-empty-is-removed",
        file: "crates/meta/src/directories.rs",
        text: "if !entries(txn, id, \"\", 1)?.is_empty() {",
        replacement: "if !entries(txn, id, \"\", 0)?.is_empty() {",
        check: meta(MODEL),
    },
    Mutant {
        name: "a-file-and-a-directory-have-one-name",
        file: "crates/meta/src/directories.rs",
        text: "None => NAMES.get(txn, &(parent, key_of(name))),",
        replacement: "None => Ok(None),",
        check: meta(MODEL),
    },
    Mutant {
        name: "a-page-goes-on-at-the-start-of-a-directory",
        file: "crates/meta/src/directories.rs",
        text: "let after = rest.filter(|_| key == first);",
        replacement: "let after = rest.filter(|_| false);",
        check: meta(MODEL),
    },
    Mutant {
        name: "levels-below-a-moved-directory-are-not-counted",
        file: "crates/meta/src/directories.rs",
        text: "note_levels(txn, parent, row.level_count + 1)?;",
        replacement: "",
        check: meta(MODEL),
    },
    Mutant {
        name: "a-directory-gets-too-deep",
        file: "crates/meta/src/directories.rs",
        text: "check_levels(to, row.level_count)?;",
        replacement: "check_levels(to, 0)?;",
        check: meta("directories::a_path_has_at_most_64_parts_also_after_renames"),
    },
    Mutant {
        name: "a-put-takes-a-directory-s-name",
        file: "crates/meta/src/files.rs",
        text: "Some((_, Inode::Directory(_))) => return Err(MetaError::IsADirectory(name.to_owned())),",
        replacement: "Some((_, Inode::Directory(_))) => return Ok(None),",
        check: meta(
            "directories::a_put_that_has_begun_is_refused_at_its_commit_if_a_directory_has_the_name_by_then",
        ),
    },
    Mutant {
        name: "a-late-rename-of-a-directory-undoes-a-later-one",
        file: "crates/meta/src/directories.rs",
        text: "            if row.generation != generation {\n                return Err(MetaError::DirectoryRenamed(path));\n            }\n            let is_below",
        replacement: "            let is_below",
        check: meta(
            "directories::a_late_message_about_a_directory_changes_nothing_after_a_later_rename",
        ),
    },
    Mutant {
        name: "a-file-that-moved-away-is-removed-under-its-old-name",
        file: "crates/meta/src/files.rs",
        text: "if file.name != name {",
        replacement: "if false && file.name != name {",
        check: meta(
            "directories::a_late_message_about_a_directory_changes_nothing_after_a_later_rename",
        ),
    },
    Mutant {
        name: "a-late-change-of-attributes-undoes-a-later-one",
        file: "crates/meta/src/inodes.rs",
        text: "if attributes.version != seen {",
        replacement: "if attributes.version < seen {",
        check: protocol(
            "coordinator::files::a_change_of_attributes_that_arrives_again_undoes_no_later_one",
        ),
    },
    Mutant {
        name: "a-repeated-change-of-attributes-undoes-another-one",
        file: "crates/meta/src/inodes.rs",
        text: "if numbers.contains(&number) {",
        replacement: "if numbers.contains(&number) && attributes.version <= seen {",
        check: protocol(
            "coordinator::files::a_change_of_attributes_that_arrives_again_undoes_no_later_one",
        ),
    },
    Mutant {
        name: "a-removed-name-leaves-the-times-of-its-directory",
        file: "crates/meta/src/directories.rs",
        text: "NAMES.delete(txn, key)?;\n    note_names(txn, key.0, now)",
        replacement: "NAMES.delete(txn, key)?;\n    note_names(txn, DirectoryId::ROOT, now)",
        check: meta("directories::directories_are_as_a_model_of_paths_has_them"),
    },
];
