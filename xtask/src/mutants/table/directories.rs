//! Rules of directories.

use super::super::check::Check;
use super::super::mutant::{Mutant, protocol, test};

const fn meta(name: &'static str) -> Check {
    test("gabion-meta", "integration", name)
}

const MODEL: &str = "directories::directories_are_as_a_model_of_paths_has_them";

const ALIKE: &str = "coordinator::links::of_two_clients_that_change_a_name_alike_one_is_refused";

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
        file: "crates/meta/src/directory_rows.rs",
        text: "None => NAMES.get(txn, &(parent, key_of(name))),",
        replacement: "None => Ok(None),",
        check: meta(MODEL),
    },
    Mutant {
        name: "a-page-goes-on-at-the-start-of-a-directory",
        file: "crates/meta/src/directory_rows.rs",
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
        name: "a-directory-is-exchanged-with-one-below-it",
        file: "crates/meta/src/exchanges.rs",
        text: "for (above, below) in [(one, other), (other, one)] {",
        replacement: "for (above, below) in [(one, other)] {",
        check: meta(MODEL),
    },
    Mutant {
        name: "an-exchanged-directory-gets-too-deep",
        file: "crates/meta/src/exchanges.rs",
        text: "check_levels(&to.path, row.level_count)?;",
        replacement: "",
        check: meta("directories::an_exchange_keeps_the_limit_of_levels_on_both_sides"),
    },
    Mutant {
        name: "levels-below-an-exchanged-directory-are-not-counted",
        file: "crates/meta/src/exchanges.rs",
        text: "note_levels(txn, to.directory, row.level_count + 1)?;",
        replacement: "",
        check: meta("directories::an_exchange_keeps_the_limit_of_levels_on_both_sides"),
    },
    Mutant {
        name: "a-late-exchange-undoes-another-one",
        file: "crates/meta/src/exchanges.rs",
        text: "Some((directory, _)) if generation == Some(seen.generation) => {",
        replacement: "Some((directory, _)) => {",
        check: meta(
            "directories::a_late_exchange_changes_nothing_after_the_names_were_exchanged_back",
        ),
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
        text: "            if row.generation != generation {\n                return Err(MetaError::DirectoryRenamed(path));\n            }\n            if path == to",
        replacement: "            if path == to",
        check: meta(
            "directories::a_late_message_about_a_directory_changes_nothing_after_a_later_rename",
        ),
    },
    Mutant {
        name: "a-file-that-moved-away-is-removed-under-its-old-name",
        file: "crates/meta/src/files.rs",
        text: "let key = key_at(txn, &at, put)?;\n            let Some(key)",
        replacement: "let key = Some((file.directory, last_name(&file.name).to_owned()));\n            let Some(key)",
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
            "coordinator::names::a_change_of_attributes_that_arrives_again_undoes_no_later_one",
        ),
    },
    Mutant {
        name: "a-repeated-change-of-attributes-undoes-another-one",
        file: "crates/meta/src/inodes.rs",
        text: "if is_done(txn, number)? {",
        replacement: "if is_done(txn, number)? && attributes.version <= seen {",
        check: protocol(
            "coordinator::names::a_change_of_attributes_that_arrives_again_undoes_no_later_one",
        ),
    },
    Mutant {
        name: "a-file-goes-with-any-of-its-names",
        file: "crates/meta/src/files.rs",
        text: "    if !names.is_empty() {\n        let mut left",
        replacement: "    if false {\n        let mut left",
        check: meta("names::a_file_of_several_names_keeps_those_that_are_not_changed"),
    },
    Mutant {
        name: "a-late-removal-takes-a-name-that-was-given-again",
        file: "crates/meta/src/files.rs",
        text: "let Some(key) = key.filter(|_| file.generation == generation) else {",
        replacement: "let Some(key) = key.filter(|_| file.generation >= generation) else {",
        check: protocol(
            "coordinator::links::a_file_goes_with_its_last_name_and_no_late_request_takes_another_name_away",
        ),
    },
    Mutant {
        name: "a-late-link-is-made",
        file: "crates/meta/src/links.rs",
        text: "if file.generation != generation {",
        replacement: "if false {",
        check: protocol(
            "coordinator::links::a_file_goes_with_its_last_name_and_no_late_request_takes_another_name_away",
        ),
    },
    Mutant {
        name: "a-rename-takes-the-first-name",
        file: "crates/meta/src/hard_links.rs",
        text: "match names.iter_mut().find(|name| *name == old) {",
        replacement: "match names.iter_mut().find(|_| false) {",
        check: meta("names::a_file_of_several_names_keeps_those_that_are_not_changed"),
    },
    Mutant {
        name: "a-change-is-made-again",
        file: "crates/meta/src/changes_done.rs",
        text: "Ok(known.is_some_and(|known| known != ChangeOutcome::Refused))\n}\n\n/// The outcome",
        replacement: "Ok(known.is_some_and(|_| false))\n}\n\n/// The outcome",
        check: protocol(ALIKE),
    },
    Mutant {
        name: "another-client-s-link-counts-as-one-s-own",
        file: "crates/meta/src/links.rs",
        text: "            check_free(txn, &path)?;\n            let mut names",
        replacement: "            if crate::directories::find(txn, &path)?.is_some() {\n                return Ok(());\n            }\n            let mut names",
        check: protocol(ALIKE),
    },
    Mutant {
        name: "user-attributes-stay-when-their-inode-goes",
        file: "crates/meta/src/directories.rs",
        text: "USER_ATTRIBUTES.delete(txn, &Inode::Directory(id))?;",
        replacement: "",
        check: meta("attributes::what_users_have_given_to_an_inode_goes_with_it"),
    },
    Mutant {
        name: "the-times-of-a-directory-are-those-of-long-ago",
        file: "crates/meta/src/attributes.rs",
        text: "(0..NAMES_NS).contains(",
        replacement: "(0..1_000 * NAMES_NS).contains(",
        check: meta(
            "attributes::the_times_of_a_directory_are_exact_to_10_ms_whatever_clients_have_set",
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
