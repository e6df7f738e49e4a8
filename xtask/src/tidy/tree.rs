//! The files that tidy looks at, read into memory once.
//!
//! Holding them in memory lets each rule's test state a whole workspace in a few lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

/// Directories whose Rust sources and manifests are ours to check.
const SOURCE_DIRECTORIES: [&str; 2] = ["crates", "xtask"];

/// Documents at the top that hold the tables tidy checks against.
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "GLOSSARY.md"];

/// Files by their path from the workspace's directory, with `/` between parts.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the workspace at `root`. A missing document is left for the rule that needs it.
    pub(crate) fn load(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self {
            files: BTreeMap::new(),
        };
        for name in DOCUMENTS {
            let path = root.join(name);
            if path.exists() {
                tree.read(&path, name)?;
            }
        }
        for name in SOURCE_DIRECTORIES {
            tree.read_directory(&root.join(name), name)?;
        }
        Ok(tree)
    }

    fn read(&mut self, path: &Path, name: &str) -> anyhow::Result<()> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        self.files.insert(name.to_owned(), text);
        Ok(())
    }

    fn read_directory(&mut self, directory: &Path, name: &str) -> anyhow::Result<()> {
        let entries = fs::read_dir(directory).with_context(|| format!("cannot list {name}"))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {name}"))?;
            let Ok(file_name) = entry.file_name().into_string() else {
                continue;
            };
            let child = format!("{name}/{file_name}");
            let file_type = entry
                .file_type()
                .with_context(|| format!("cannot tell what {child} is"))?;
            if file_type.is_dir() {
                // Build output, packages and hidden directories hold nothing that was written by hand.
                let is_made = ["target", "node_modules"].contains(&file_name.as_str());
                if !is_made && !file_name.starts_with('.') {
                    self.read_directory(&entry.path(), &child)?;
                }
            } else if file_name == "Cargo.toml" || is_rust(&file_name) {
                self.read(&entry.path(), &child)?;
            }
        }
        Ok(())
    }

    /// The text of the file at `path`.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Every Rust source: its path and text.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(|(path, _)| is_rust(path))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every crate under `crates/`: its name, the path of its manifest and the manifest's text.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files.iter().filter_map(|(path, text)| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some((name, path.as_str(), text.as_str()))
        })
    }

    /// Returns the number of files that were read.
    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// A workspace in memory, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|&(path, text)| (path.to_owned(), text.to_owned()))
            .collect();
        Self { files }
    }
}

/// The crate whose directory holds `path`: one under `crates/`, or `xtask`.
pub(super) fn crate_of(path: &str) -> Option<&str> {
    let (name, _) = path
        .strip_prefix("crates/")
        .unwrap_or(path)
        .split_once('/')?;
    (path.starts_with("crates/") || name == "xtask").then_some(name)
}

fn is_rust(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_loads() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("xtask has a parent");
        let tree = Tree::load(root).expect("the workspace is readable");
        assert!(
            tree.text("xtask/src/tidy/tree.rs")
                .is_some_and(|text| text.contains("this_workspace_loads"))
        );
        assert!(tree.text("crates/codec/Cargo.toml").is_some());
        assert!(
            tree.rust_files()
                .all(|(path, _)| !path.contains("/target/"))
        );
    }

    #[test]
    fn manifests_are_those_of_crates() {
        let tree = Tree::of(&[
            ("crates/codec/Cargo.toml", "a"),
            ("crates/codec/fuzz/Cargo.toml", "b"),
            ("xtask/Cargo.toml", "c"),
        ]);
        let manifests: Vec<_> = tree.manifests().collect();
        assert_eq!(manifests, [("codec", "crates/codec/Cargo.toml", "a")]);
    }

    #[test]
    fn a_path_names_its_crate() {
        assert_eq!(crate_of("crates/codec/src/lib.rs"), Some("codec"));
        assert_eq!(crate_of("xtask/src/main.rs"), Some("xtask"));
        assert_eq!(crate_of("crates/README.md"), None);
    }
}
