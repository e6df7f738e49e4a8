//! `cargo xtask mutants`: breaks the code in one place at a time and shows which check notices.
//!
//! A mutant is a text of one file and its replacement ([`table`]). Mutants break the rules on which the promises of the
//! documents rest, above all that of docs/update-protocol.md. Each is applied in a copy of the
//! workspace below `target/mutants`, which has a target directory of its own, so that the work tree is
//! never touched. Then the mutant's own check runs: a named test, or up to 300 seeds of the simulator.

mod check;
mod copy;
mod table;

use self::check::{Check, Verdict};
use self::copy::Copy;
use self::table::Mutant;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

/// The mutants to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// None: print their names.
    List,
    /// These.
    Only(Vec<String>),
    /// All.
    All,
}

/// Tries the chosen mutants; `false` means that one of them was not noticed.
pub(crate) fn run(root: &Path, choice: &Choice) -> anyhow::Result<bool> {
    let table = table::read(root)?;
    let chosen: Vec<&Mutant> = match choice {
        Choice::All => table.iter().collect(),
        Choice::Only(names) => named(names, &table)?,
        Choice::List => {
            for mutant in &table {
                println!("{:<40} {}", mutant.name, mutant.check);
            }
            return Ok(true);
        }
    };
    let copy = Copy::of(root).context("cannot copy the workspace")?;
    if !all_pass(&chosen, &copy)? {
        return Ok(false);
    }
    let mut all_noticed = true;
    let mut rows = Vec::new();
    for mutant in chosen {
        let begun = Instant::now();
        let verdict = try_mutant(&copy, mutant)?;
        all_noticed &= verdict.is_noticed();
        let file = mutant.file.trim_start_matches("crates/");
        rows.push(format!(
            "| {} | `{file}` | {} | {verdict} |",
            mutant.name, mutant.check
        ));
        let outcome = if verdict.is_noticed() {
            "caught"
        } else {
            "NOT CAUGHT"
        };
        let seconds = begun.elapsed().as_secs();
        eprintln!("{outcome} in {seconds} s: {}", rows[rows.len() - 1]);
    }
    println!("| mutant | in | check | message |\n|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(all_noticed)
}

/// The mutants of these names.
fn named<'a>(names: &[String], table: &'a [Mutant]) -> anyhow::Result<Vec<&'a Mutant>> {
    let find = |name: &String| {
        let found = table.iter().find(|mutant| mutant.name == *name);
        found.with_context(|| {
            format!("there is no mutant `{name}`; see `cargo xtask mutants --list`")
        })
    };
    names.iter().map(find).collect()
}

/// Whether the checks pass without any mutant: one that fails anyway notices nothing. Those of one binary run
/// together.
fn all_pass(chosen: &[&Mutant], copy: &Copy) -> anyhow::Result<bool> {
    let mut binaries: BTreeMap<_, BTreeSet<&Check>> = BTreeMap::new();
    for check in chosen.iter().map(|mutant| &mutant.check) {
        binaries.entry(check.binary()).or_default().insert(check);
    }
    let mut all_pass = true;
    for ((package, target), checks) in binaries {
        let checks: Vec<&Check> = checks.into_iter().collect();
        let verdict = check::run_together(&checks, copy)?;
        if verdict != Verdict::Passed {
            eprintln!("{package}, {target}: {verdict} without any mutant");
            all_pass = false;
        }
    }
    Ok(all_pass)
}

fn try_mutant(copy: &Copy, mutant: &Mutant) -> anyhow::Result<Verdict> {
    let sound = copy.read(&mutant.file)?;
    let Some(broken) = broken(&sound, mutant) else {
        return Ok(Verdict::NotApplicable);
    };
    copy.write(&mutant.file, &broken)?;
    let verdict = mutant.check.run(copy);
    copy.write(&mutant.file, &sound)?;
    verdict
}

/// The file with the mutant in it; none unless its text is there exactly once.
fn broken(sound: &str, mutant: &Mutant) -> Option<String> {
    let is_once = sound.matches(&mutant.text).count() == 1;
    is_once.then(|| sound.replacen(&mutant.text, &mutant.replacement, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        manifest.parent().expect("a workspace")
    }

    #[test]
    fn the_text_of_every_mutant_occurs_exactly_once() {
        for mutant in &table::read(root()).expect("a table") {
            let sound = std::fs::read_to_string(root().join(&mutant.file)).expect(&mutant.file);
            let broken = broken(&sound, mutant);
            let broken = broken.unwrap_or_else(|| {
                panic!(
                    "{}: its text is not in {} exactly once; change the mutant with the code",
                    mutant.name, mutant.file
                )
            });
            assert_ne!(broken, sound, "{} changes nothing", mutant.name);
        }
    }

    #[test]
    fn every_mutant_has_a_name_of_its_own() {
        let table = table::read(root()).expect("a table");
        assert!(!table.is_empty());
        let names: BTreeSet<&str> = table.iter().map(|mutant| mutant.name.as_str()).collect();
        assert_eq!(names.len(), table.len());
    }

    #[test]
    fn a_text_that_is_missing_or_there_twice_makes_no_mutant() {
        let mutant = Mutant {
            name: "m".to_owned(),
            file: "f".to_owned(),
            text: "a < b".to_owned(),
            replacement: "a <= b".to_owned(),
            check: Check::Simulator,
        };
        assert_eq!(
            broken("if a < b {}", &mutant).as_deref(),
            Some("if a <= b {}")
        );
        assert_eq!(broken("if a > b {}", &mutant), None);
        assert_eq!(broken("a < b && a < b", &mutant), None);
    }
}
