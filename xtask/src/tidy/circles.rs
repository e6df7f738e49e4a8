//! Circles: files of a crate that import each other, directly or through others.
//!
//! To understand one file of a circle is to read them all. The crates in [`WITHOUT`] have none, and the others none of
//! more than a few files.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::Problem;
use super::source::Source;
use super::tree::crate_of;

/// Most files of a circle in a crate that is not in [`WITHOUT`].
const FILE_COUNT_MAX: usize = 3;

/// Crates without any circle: each file of them can be read with what it imports, and nothing more.
const WITHOUT: [&str; 5] = ["client", "meta", "protocol", "store", "xtask"];

/// The files of one crate that each file names in its code, by their paths.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Every circle that is larger than its crate may have, told at its first file.
pub(crate) fn check(sources: &[Source<'_>]) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Vec<&Source<'_>>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test(1)) {
        if let Some(name) = crate_of(source.path) {
            crates.entry(name).or_default().push(source);
        }
    }
    let mut problems = Vec::new();
    for (name, sources) in crates {
        let allowed = if WITHOUT.contains(&name) {
            1
        } else {
            FILE_COUNT_MAX
        };
        for circle in circles(&imports(&sources)) {
            if circle.len() > allowed {
                let message = format!(
                    "{} files import each other in a circle ({}); crate `{name}` may have circles of at most {allowed}",
                    circle.len(),
                    circle.join(", "),
                );
                problems.push(Problem::new(circle[0], 1, message));
            }
        }
    }
    problems
}

/// Imports between the crate's files.
fn imports<'a>(sources: &[&Source<'a>]) -> Imports<'a> {
    let modules: BTreeMap<Vec<&str>, &'a str> = sources
        .iter()
        .map(|source| (module_of(source.path), source.path))
        .collect();
    let imported = |source: &&Source<'a>| {
        let own = module_of(source.path);
        let paths = source.paths().into_iter();
        let paths = paths.filter(|path| !source.is_test(path.line));
        let files = paths.filter_map(|path| {
            let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
            file_of(&own, &segments, &modules)
        });
        let others = files.filter(|file| *file != source.path);
        (source.path, others.collect())
    };
    sources.iter().map(imported).collect()
}

/// The module that a file is: `["a", "b"]` for `src/a/b.rs` and `src/a/b/mod.rs`.
fn module_of(path: &str) -> Vec<&str> {
    let (_, inside) = path.split_once("/src/").unwrap_or(("", path));
    let mut names: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    if matches!(names.last(), Some(&("mod" | "lib" | "main"))) {
        names.pop();
    }
    names
}

/// The file that a path in module `own` leads into, if it is one of the crate.
fn file_of<'a>(
    own: &[&str],
    path: &[&str],
    modules: &BTreeMap<Vec<&str>, &'a str>,
) -> Option<&'a str> {
    let mut target: Vec<&str> = match path {
        // A lone name may be anything, such as the `crate` of `pub(crate)`.
        [_] => return None,
        ["crate", ..] => Vec::new(),
        ["self" | "super", ..] => own.to_vec(),
        [first, ..] if modules.contains_key(&[own, &[*first]].concat()) => own.to_vec(),
        _ => return None,
    };
    for name in path {
        match *name {
            "crate" | "self" => {}
            "super" => drop(target.pop()),
            name => target.push(name),
        }
    }
    loop {
        if let Some(file) = modules.get(&target) {
            return Some(file);
        }
        target.pop()?;
    }
}

/// The largest sets of files that all lead to each other, each in order.
fn circles<'a>(imports: &Imports<'a>) -> Vec<Vec<&'a str>> {
    let reached: Imports<'a> = imports
        .keys()
        .map(|&file| (file, reach(imports, file)))
        .collect();
    let mut found = Vec::new();
    for (file, ahead) in &reached {
        let is_in_circle = |other: &&&str| reached[**other].contains(file);
        let circle: Vec<&str> = ahead.iter().filter(is_in_circle).copied().collect();
        if circle.first() == Some(file) {
            found.push(circle);
        }
    }
    found
}

/// The files that `file` leads to; itself only if one of them leads back.
fn reach<'a>(imports: &Imports<'a>, file: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = vec![file];
    while let Some(file) = next.pop() {
        for &imported in imports.get(file).into_iter().flatten() {
            if found.insert(imported) {
                next.push(imported);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::super::tree::Tree;
    use super::*;

    fn check_files(files: &[(&str, &str)], expected: &[&str]) {
        let tree = Tree::of(files);
        let problems = check(&source::parse_all(&tree));
        let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        check_files(
            &[
                ("crates/store/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
                ("crates/store/src/a.rs", "use crate::b::{C, d::E};\n"),
                ("crates/store/src/b/mod.rs", "mod d;\nuse d::E;\n"),
                (
                    "crates/store/src/b/d.rs",
                    "fn f() { super::super::c::g(); }\n",
                ),
                ("crates/store/src/c.rs", "use crate::a::H;\n"),
            ],
            &[
                "crates/store/src/a.rs:1: 4 files import each other in a circle \
                 (crates/store/src/a.rs, crates/store/src/b/d.rs, crates/store/src/b/mod.rs, crates/store/src/c.rs); \
                 crate `store` may have circles of at most 1",
            ],
        );
    }

    #[test]
    fn tests_other_crates_and_names_of_values_make_no_circle() {
        check_files(
            &[
                ("crates/store/src/lib.rs", "mod a;\nmod b;\n"),
                ("crates/store/src/a.rs", "use crate::b::B;\n"),
                (
                    "crates/store/src/b.rs",
                    "use gabion_plan::a::A;\nfn f(a: u8) -> u8 { a }\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}\n",
                ),
                ("crates/store/tests/t/main.rs", "mod a;\nuse crate::a::A;\n"),
                ("crates/store/tests/t/a.rs", "use crate::B;\n"),
            ],
            &[],
        );
    }

    #[test]
    fn a_few_files_may_import_each_other_where_nothing_else_is_said() {
        let two = [
            (
                "crates/codec/src/lib.rs",
                "mod a;\nuse a::B;\npub struct C;\n",
            ),
            ("crates/codec/src/a.rs", "use crate::C;\n"),
        ];
        check_files(&two, &[]);
    }

    #[test]
    fn files_of_xtask_may_not_import_each_other_either() {
        check_files(
            &[
                ("xtask/src/main.rs", "mod table;\n"),
                (
                    "xtask/src/table.rs",
                    "mod rows;\nuse self::rows::R;\npub struct T;\n",
                ),
                ("xtask/src/table/rows.rs", "use super::T;\n"),
            ],
            &[
                "xtask/src/table.rs:1: 2 files import each other in a circle \
                 (xtask/src/table.rs, xtask/src/table/rows.rs); crate `xtask` may have circles of at most 1",
            ],
        );
    }
}
