//! Rules for the crates below `wire`, which must not know some things, and for libraries, which must not link some.
//!
//! Planners, the executor, the store and the protocol's roles give equal results for equal inputs,
//! and the simulator drives them through any schedule. That holds only while they reach for nothing
//! outside their inputs: no clock, socket, thread, ambient randomness or hash order. Tests may.

use super::layers::Layers;
use super::manifest::{self, Section};
use super::problem::Problem;
use super::source::Source;
use super::tree::{Tree, crate_of};

/// The attribute in the root of each library and binary below `wire`. The workspace allows these lints, and clippy.toml
/// says what they refuse. Its tests, benches and examples may do as they like.
const DENIAL: &str =
    "#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]";

/// Begin of the names of these lints.
const LINTS: &str = "clippy::disallowed_";

/// Packages that bring a runtime, a clock, sockets, threads or ambient randomness.
const BANNED_PACKAGES: [&str; 12] = [
    "async-std",
    "chrono",
    "crossbeam",
    "fastrand",
    "getrandom",
    "mio",
    "rayon",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-util",
];

/// The one crate that may blur errors together, because a person reads them.
const BINARY: &str = "gabion";

/// Every breach of purity in the product code of the crates below `wire`.
pub(crate) fn check(tree: &Tree, sources: &[Source<'_>], layers: &Layers) -> Vec<Problem> {
    let mut problems = Vec::new();
    for source in sources {
        if crate_of(source.path).is_some_and(|name| layers.is_pure(name)) {
            problems.extend(check_source(source));
        }
    }
    for (name, path, text) in tree.manifests() {
        for dependency in manifest::dependencies(text) {
            let package = dependency.name;
            if package == "anyhow" && name != BINARY {
                let message = format!(
                    "library `{name}` may not use `anyhow`; give it an error enum, and leave `anyhow` to `{BINARY}`"
                );
                problems.push(Problem::new(path, dependency.line, message));
            }
            let banned = BANNED_PACKAGES.contains(&package);
            if banned && dependency.section == Section::Product && layers.is_pure(name) {
                let message = format!(
                    "`{name}` is below `wire` and may not use `{package}`; leave clocks, sockets, threads and chance to the crates from `wire` up"
                );
                problems.push(Problem::new(path, dependency.line, message));
            }
        }
    }
    problems
}

/// A crate's root has [`DENIAL`], and nothing in the crate allows what it denies.
fn check_source(source: &Source<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |line, message: String| {
        problems.push(Problem::new(source.path, line, message));
    };
    let is_root = ["/src/lib.rs", "/src/main.rs"]
        .iter()
        .any(|root| source.path.ends_with(root));
    if is_root && !source.text.lines().any(|line| line == DENIAL) {
        report(
            1,
            format!("a crate below `wire` denies what clippy.toml lists; write `{DENIAL}`"),
        );
    }
    for (line, text) in (1..).zip(source.text.lines()) {
        if text.contains(LINTS) && text != DENIAL && !source.is_test(line) {
            let message =
                "a crate below `wire` has no exception; return to the caller what needs one";
            report(line, message.to_owned());
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const TABLE: &str = "\
| crate | holds | may use |
|---|---|---|
| `store` | chunks | - |
| `wire` | frames | - |
| `gabion` | binary | - |
";

    fn check_tree(files: &[(&str, &str)], expected: &[(&str, usize, &str)]) {
        let mut all = vec![("ARCHITECTURE.md", TABLE)];
        all.extend_from_slice(files);
        let tree = Tree::of(&all);
        let sources = source::parse_all(&tree);
        let (layers, _) = Layers::read(&tree);
        let problems = check(&tree, &sources, &layers);
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, (path, line, start)) in problems.iter().zip(expected) {
            assert_eq!(
                (problem.path.as_str(), problem.line),
                (*path, *line),
                "{problem}"
            );
            assert!(problem.message.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn a_crate_below_wire_denies_what_clippy_knows() {
        let denies = format!("//! X.\n\n{DENIAL}\n");
        let lib = "crates/store/src/lib.rs";
        check_tree(&[(lib, &denies)], &[]);
        for root in [lib, "crates/store/src/main.rs"] {
            let start = "a crate below `wire` denies";
            check_tree(&[(root, "//! X.\n")], &[(root, 1, start)]);
        }
        check_tree(&[("crates/store/src/chunk.rs", "//! X.\n")], &[]);
        for path in [
            "crates/wire/src/lib.rs",
            "xtask/src/main.rs",
            "crates/store/benches/b.rs",
            "crates/store/tests/integration/main.rs",
        ] {
            check_tree(&[(path, "//! X.\n")], &[]);
        }
    }

    #[test]
    fn a_crate_below_wire_has_no_exception() {
        let path = "crates/store/src/chunk.rs";
        let exception = "#![allow(clippy::disallowed_types)]\n";
        check_tree(
            &[(path, exception)],
            &[(path, 1, "a crate below `wire` has no exception")],
        );
        check_tree(&[("crates/wire/src/chunk.rs", exception)], &[]);
    }

    #[test]
    fn packages_are_judged_by_layer_and_section() {
        let runtime = "[dependencies]\ntokio.workspace = true\n";
        let store = "crates/store/Cargo.toml";
        check_tree(
            &[(store, runtime)],
            &[(store, 2, "`store` is below `wire`")],
        );
        check_tree(&[("crates/wire/Cargo.toml", runtime)], &[]);
        check_tree(
            &[(store, "[dev-dependencies]\ntokio.workspace = true\n")],
            &[],
        );
    }

    #[test]
    fn anyhow_is_for_the_binary() {
        let anyhow = "[dependencies]\nanyhow.workspace = true\n";
        let wire = "crates/wire/Cargo.toml";
        check_tree(
            &[(wire, anyhow)],
            &[(wire, 2, "library `wire` may not use `anyhow`")],
        );
        check_tree(
            &[
                ("crates/gabion/Cargo.toml", anyhow),
                ("xtask/Cargo.toml", anyhow),
            ],
            &[],
        );
    }
}
