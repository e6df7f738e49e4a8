//! The table of mutants: the files `xtask/mutants/*.toml`, a file for each area. Each `[[mutant]]` is one record.
//!
//! The files are read when the command runs, so that a new mutant, or a new file of mutants, changes no Rust.

use super::check::Check;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::{Document, Table};

/// One way to break the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The behaviour of the code then, in a few words with dashes.
    pub(crate) name: String,
    /// Below the workspace's directory.
    pub(crate) file: String,
    /// Occurs once in the file.
    pub(crate) text: String,
    /// Stands there instead.
    pub(crate) replacement: String,
    /// Has to fail then, and passes otherwise.
    pub(crate) check: Check,
}

/// The keys of a record; each is required.
const KEYS: [&str; 5] = ["name", "file", "text", "replacement", "check"];

/// Reads the table of the workspace at `root`, in the order of the files' names.
pub(super) fn read(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let directory = root.join("xtask").join("mutants");
    let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    let mut table = Vec::new();
    for path in paths {
        let records = fs::read_to_string(&path).map_err(anyhow::Error::from);
        let records = records.and_then(|text| parse(&text));
        table.extend(records.with_context(|| path.display().to_string())?);
    }
    Ok(table)
}

/// The records of one file.
fn parse(text: &str) -> anyhow::Result<Vec<Mutant>> {
    let document = Document::parse(text)?;
    let mut mutants = Vec::new();
    for (key, item) in document.iter() {
        let records = item.as_array_of_tables().filter(|_| key == "mutant");
        let Some(records) = records else {
            bail!("`{key}` is unknown; each record begins with [[mutant]]");
        };
        for record in records {
            let begins = record.span().map_or(0, |span| span.start);
            let line = 1 + text[..begins].matches('\n').count();
            mutants.push(mutant(record).with_context(|| format!("the mutant in line {line}"))?);
        }
    }
    Ok(mutants)
}

/// The mutant of one record.
fn mutant(record: &Table) -> anyhow::Result<Mutant> {
    if let Some((key, _)) = record.iter().find(|(key, _)| !KEYS.contains(key)) {
        bail!("`{key}` is unknown; the keys are {}", KEYS.join(", "));
    }
    let field = |key: &str| {
        let value = record.get(key);
        let value = value.with_context(|| format!("`{key}` is missing"))?;
        let value = value.as_str();
        let value = value.with_context(|| format!("`{key}` is not a string"))?;
        anyhow::Ok(value.to_owned())
    };
    let check = field("check")?;
    Ok(Mutant {
        name: field("name")?,
        file: field("file")?,
        text: field("text")?,
        replacement: field("replacement")?,
        check: Check::parse(&check).with_context(|| {
            format!("`{check}` is no check; write PACKAGE TARGET TEST or simulator")
        })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "\n# Of the disk.\n[[mutant]]\nname = \"m\"\nfile = \"f\"\n\
                          text = '''\n    \"a\\n\";\n    b'''\nreplacement = ''\ncheck = \"gabion bin a::b\"\n";

    fn check_error(text: &str, expected: &str) {
        let error = parse(text).expect_err(text);
        assert_eq!(format!("{error:#}"), expected);
    }

    #[test]
    fn the_text_of_a_record_is_taken_literally() {
        let expected = Mutant {
            name: "m".to_owned(),
            file: "f".to_owned(),
            text: "    \"a\\n\";\n    b".to_owned(),
            replacement: String::new(),
            check: Check::Test {
                package: "gabion".to_owned(),
                target: "bin".to_owned(),
                name: "a::b".to_owned(),
            },
        };
        assert_eq!(parse(RECORD).expect("a record"), [expected]);
    }

    #[test]
    fn a_wrong_record_is_refused_by_its_line() {
        let without = RECORD.replace("file = \"f\"\n", "");
        check_error(&without, "the mutant in line 3: `file` is missing");
        let second = format!("{RECORD}{}", RECORD.replace("\"f\"", "7"));
        let sentence = "the mutant in line 13: `file` is not a string";
        check_error(&second, sentence);
        let unknown = RECORD.replace("file =", "path =");
        let sentence = "the mutant in line 3: `path` is unknown; \
                        the keys are name, file, text, replacement, check";
        check_error(&unknown, sentence);
        let check = RECORD.replace("gabion bin a::b", "seeds");
        let sentence = "the mutant in line 3: `seeds` is no check; \
                        write PACKAGE TARGET TEST or simulator";
        check_error(&check, sentence);
        let sentence = "`mutants` is unknown; each record begins with [[mutant]]";
        check_error(&RECORD.replace("[[mutant]]", "[[mutants]]"), sentence);
        assert!(parse("[[mutant]\n").is_err());
    }
}
