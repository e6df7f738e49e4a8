//! `cargo xtask tidy`: the rules that rustc, clippy and rustfmt do not know.
//!
//! - [`circles`]: files of a crate that import each other.
//! - [`layers`]: which crate may use which, as ARCHITECTURE.md's own table says.
//! - [`purity`]: which crates have clippy refuse clocks, sockets, threads, ambient randomness and hash order.
//! - [`shape`]: file headers, lengths of files and functions, module names.
//! - [`glossary`]: one word for one thing, as GLOSSARY.md's own table says.
//!
//! Each rule reads a [`Tree`] of files in memory and returns every [`Problem`] it finds; nothing
//! stops at the first one. The two tables live in documents that people read, so that the documents
//! cannot go stale without a failing check.

mod circles;
mod glossary;
mod layers;
mod manifest;
mod markdown;
mod problem;
mod purity;
mod shape;
mod source;
mod tree;

use std::path::Path;

use self::problem::Problem;
use self::tree::Tree;

/// Checks the workspace at `root` and prints every problem; `false` means that there were some.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::load(root)?;
    let problems = check(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => println!("tidy: {} files, no problems", tree.file_count()),
        count => println!("tidy: {} files, {count} problems", tree.file_count()),
    }
    Ok(problems.is_empty())
}

/// Every problem in `tree`, ordered by path and line.
fn check(tree: &Tree) -> Vec<Problem> {
    let sources = source::parse_all(tree);
    let (layers, mut problems) = layers::Layers::read(tree);
    problems.extend(layers.check(tree));
    problems.extend(circles::check(&sources));
    problems.extend(purity::check(tree, &sources, &layers));
    problems.extend(shape::check(&sources));
    problems.extend(glossary::check(tree, &sources));
    problems.sort();
    problems.dedup();
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest workspace that breaks no rule.
    const CLEAN: [(&str, &str); 4] = [
        (
            "ARCHITECTURE.md",
            "| crate | holds | may use |\n|---|---|---|\n| `codec` | kernels | - |\n| `wire` | frames | - |\n",
        ),
        (
            "GLOSSARY.md",
            "| term | meaning | source | not |\n|---|---|---|---|\n| helper | a node | ECPipe 2.2 | `provider` |\n",
        ),
        (
            "crates/codec/Cargo.toml",
            "[package]\nname = \"gabion-codec\"\n",
        ),
        (
            "crates/wire/Cargo.toml",
            "[package]\nname = \"gabion-wire\"\n",
        ),
    ];

    #[test]
    fn a_clean_workspace_has_no_problems() {
        assert_eq!(check(&Tree::of(&CLEAN)), []);
    }

    #[test]
    fn all_problems_are_reported_at_once_and_in_order() {
        let mut files = CLEAN.to_vec();
        files.push((
            "crates/codec/src/lib.rs",
            "use std::collections::BTreeMap;\nmod utils;\nfn provider() {}\n",
        ));
        let problems = check(&Tree::of(&files));
        let places: Vec<(&str, usize)> = problems
            .iter()
            .map(|problem| (problem.path.as_str(), problem.line))
            .collect();
        let path = "crates/codec/src/lib.rs";
        assert_eq!(
            places,
            [(path, 1), (path, 1), (path, 2), (path, 3)],
            "{problems:#?}"
        );
    }
}
