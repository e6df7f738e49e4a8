//! The layers: ARCHITECTURE.md's crate table is the rule, and this holds the code to it.
//!
//! The table lists every crate, lowest first, and what each may use. A crate may only use crates in
//! rows above its own, so the table cannot describe a cycle. Tests may use anything above their
//! crate's row.

use std::collections::BTreeSet;

use super::manifest::{self, Section};
use super::markdown;
use super::problem::Problem;
use super::tree::Tree;

/// The document that holds the table.
const DOCUMENT: &str = "ARCHITECTURE.md";

/// The table's header.
const HEADER: [&str; 3] = ["crate", "holds", "may use"];

/// The lowest crate that may know clocks, sockets and a runtime.
const FIRST_IMPURE: &str = "wire";

/// The crate table.
pub(crate) struct Layers {
    /// Lowest first. Invariant: names are unique, and `may_use` names only earlier rows.
    rows: Vec<Layer>,
}

/// One row of the table.
struct Layer {
    name: String,
    line: usize,
    may_use: Vec<String>,
}

impl Layers {
    /// Reads the table, and says what is wrong with it.
    pub(crate) fn read(tree: &Tree) -> (Self, Vec<Problem>) {
        let mut layers = Self { rows: Vec::new() };
        let mut problems = Vec::new();
        let rows = markdown::table_rows(tree.text(DOCUMENT).unwrap_or_default(), &HEADER);
        if rows.is_empty() {
            let header = HEADER.join(" | ");
            let message =
                format!("there is no crate table; write one with the header `| {header} |`");
            problems.push(Problem::new(DOCUMENT, 1, message));
        }
        for row in &rows {
            match layers.row(row) {
                Ok(layer) => layers.rows.push(layer),
                Err(message) => problems.push(Problem::new(DOCUMENT, row.line, message)),
            }
        }
        (layers, problems)
    }

    fn row(&self, row: &markdown::Row<'_>) -> Result<Layer, String> {
        let &[name, _, may_use] = row.cells.as_slice() else {
            return Err(format!(
                "a row of the crate table has {} cells; it needs 3",
                row.cells.len()
            ));
        };
        let Some(name) = markdown::code(name) else {
            return Err(format!(
                "`{name}` is no crate's name; write it in backticks"
            ));
        };
        if self.get(name).is_some() {
            return Err(format!("`{name}` has two rows; keep one"));
        }
        let Some(may_use) = markdown::code_list(may_use) else {
            return Err(format!(
                "what `{name}` may use is not readable; write names in backticks between commas, or `-`"
            ));
        };
        if let Some(above) = may_use.iter().find(|used| self.get(used).is_none()) {
            return Err(format!(
                "`{name}` may use `{above}`, which is in no row above it; arrows go down only"
            ));
        }
        let may_use = may_use.into_iter().map(str::to_owned).collect();
        Ok(Layer {
            name: name.to_owned(),
            line: row.line,
            may_use,
        })
    }

    fn get(&self, name: &str) -> Option<&Layer> {
        self.rows.iter().find(|layer| layer.name == name)
    }

    /// The crates in rows above `name`'s.
    fn above<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let name = name.to_owned();
        self.rows
            .iter()
            .map(|layer| layer.name.as_str())
            .take_while(move |above| *above != name)
    }

    /// Whether the crate stands below `wire`, where nothing knows time, sockets or chance.
    pub(crate) fn is_pure(&self, name: &str) -> bool {
        self.above(FIRST_IMPURE).any(|pure| pure == name)
    }

    /// Holds every manifest to the table. A source cannot use what its manifest does not name.
    pub(crate) fn check(&self, tree: &Tree) -> Vec<Problem> {
        if self.rows.is_empty() {
            // `read` has said so once; a problem for each crate would only bury it.
            return Vec::new();
        }
        let mut problems = Vec::new();
        let present: BTreeSet<&str> = tree.manifests().map(|(name, ..)| name).collect();
        for layer in self
            .rows
            .iter()
            .filter(|layer| !present.contains(layer.name.as_str()))
        {
            let message = format!(
                "there is no crate `{0}` in crates/{0}; the table lists the crates that exist",
                layer.name
            );
            problems.push(Problem::new(DOCUMENT, layer.line, message));
        }
        for (name, path, text) in tree.manifests() {
            problems.extend(self.check_manifest(name, path, text));
        }
        problems
    }

    fn check_manifest(&self, name: &str, path: &str, text: &str) -> Vec<Problem> {
        let Some(layer) = self.get(name) else {
            let message = format!("crate `{name}` is not in {DOCUMENT}'s table; give it a row");
            return vec![Problem::new(path, 1, message)];
        };
        let mut problems = Vec::new();
        for dependency in manifest::dependencies(text) {
            let Some(used) = crate_of_package(dependency.name) else {
                continue;
            };
            let message = match dependency.section {
                Section::Product => layer.judge(used),
                Section::Test if self.above(name).any(|above| above == used) => None,
                Section::Test => Some(format!(
                    "tests of `{name}` may not use `{used}`, which is not below it; allowed: {}",
                    list(self.above(name))
                )),
            };
            problems.extend(message.map(|message| Problem::new(path, dependency.line, message)));
        }
        problems
    }
}

impl Layer {
    /// The rule that forbids this crate to use `used`, if one does.
    fn judge(&self, used: &str) -> Option<String> {
        if self.may_use.iter().any(|allowed| allowed == used) {
            return None;
        }
        let allowed = list(self.may_use.iter().map(String::as_str));
        Some(format!(
            "`{}` may not use `{used}`; allowed: {allowed}",
            self.name
        ))
    }
}

/// The crate of a package such as `gabion-codec`.
fn crate_of_package(package: &str) -> Option<&str> {
    package
        .strip_prefix("gabion-")
        .filter(|name| !name.is_empty())
}

/// `a, b` for a message; `nothing` when empty.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# Crates

| crate | holds | may use |
|---|---|---|
| `codec` | kernels | - |
| `plan` | steps | `codec` |
| `wire` | frames | `plan` |
| `gabion` | binary | `codec`, `plan` |
";

    /// A tree with a crate for each row of [`TABLE`], plus `files`.
    fn problems(table: &str, files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![(DOCUMENT, table)];
        let manifests =
            ["codec", "plan", "wire", "gabion"].map(|name| format!("crates/{name}/Cargo.toml"));
        all.extend(
            manifests
                .iter()
                .filter(|manifest| files.iter().all(|(path, _)| path != manifest))
                .map(|path| (path.as_str(), "")),
        );
        all.extend_from_slice(files);
        let tree = Tree::of(&all);
        let (layers, mut problems) = Layers::read(&tree);
        problems.extend(layers.check(&tree));
        problems.iter().map(Problem::to_string).collect()
    }

    fn check(table: &str, files: &[(&str, &str)], expected: &[&str]) {
        assert_eq!(problems(table, files), expected);
    }

    #[test]
    fn allowed_dependencies_pass() {
        let files = [
            (
                "crates/plan/Cargo.toml",
                "[dependencies]\ngabion-codec.workspace = true\n",
            ),
            (
                "crates/wire/Cargo.toml",
                "[dev-dependencies]\ngabion-codec.workspace = true\n",
            ),
        ];
        check(TABLE, &files, &[]);
    }

    #[test]
    fn a_forbidden_dependency_is_reported() {
        let files = [(
            "crates/wire/Cargo.toml",
            "[dependencies]\ngabion-codec.workspace = true\n",
        )];
        let expected = ["crates/wire/Cargo.toml:2: `wire` may not use `codec`; allowed: plan"];
        check(TABLE, &files, &expected);
    }

    #[test]
    fn tests_may_not_use_what_stands_above() {
        let files = [(
            "crates/plan/Cargo.toml",
            "[dev-dependencies]\ngabion-wire.workspace = true\n",
        )];
        let expected = [
            "crates/plan/Cargo.toml:2: tests of `plan` may not use `wire`, which is not below it; allowed: codec",
        ];
        check(TABLE, &files, &expected);
    }

    #[test]
    fn crates_and_rows_match_one_to_one() {
        let table = format!("{TABLE}| `sim` | model | `plan` |\n");
        let files = [("crates/stray/Cargo.toml", "")];
        let expected = [
            "ARCHITECTURE.md:9: there is no crate `sim` in crates/sim; the table lists the crates that exist",
            "crates/stray/Cargo.toml:1: crate `stray` is not in ARCHITECTURE.md's table; give it a row",
        ];
        check(&table, &files, &expected);
    }

    #[test]
    fn a_broken_table_is_reported() {
        let wanted =
            ["there is no crate table; write one with the header `| crate | holds | may use |`"];
        let found = problems("# Nothing here\n", &[]);
        assert_eq!(
            found,
            wanted.map(|message| format!("ARCHITECTURE.md:1: {message}"))
        );

        let rows = [
            (
                "| `extra` | x | plan and below |",
                "what `extra` may use is not readable",
            ),
            (
                "| `extra` | x | `later` |",
                "`extra` may use `later`, which is in no row above it",
            ),
            (
                "| `extra` | x | `extra` |",
                "`extra` may use `extra`, which is in no row above it",
            ),
            ("| extra | x | - |", "`extra` is no crate's name"),
            ("| `plan` | x | - |", "`plan` has two rows"),
            ("| `extra` | - |", "a row of the crate table has 2 cells"),
        ];
        for (row, wanted) in rows {
            let found = problems(&format!("{TABLE}{row}\n"), &[]);
            assert_eq!(found.len(), 1, "{row}: {found:?}");
            assert!(found[0].contains(wanted), "{row}: {found:?}");
            assert!(
                found[0].starts_with("ARCHITECTURE.md:9:"),
                "{row}: {found:?}"
            );
        }
    }

    #[test]
    fn purity_ends_at_wire() {
        let (layers, _) = Layers::read(&Tree::of(&[(DOCUMENT, TABLE)]));
        let pure: Vec<bool> = ["codec", "plan", "wire", "gabion"]
            .map(|name| layers.is_pure(name))
            .to_vec();
        assert_eq!(pure, [true, true, false, false]);
    }
}
