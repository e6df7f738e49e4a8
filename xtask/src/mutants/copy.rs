//! A copy of the workspace in which mutants live.

use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The copy and what Cargo builds of it.
pub(crate) struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Brings the copy up to date with the work tree, uncommitted changes included. Files that are as they
    /// were keep their times, so that Cargo builds only what has changed.
    pub(crate) fn of(root: &Path) -> anyhow::Result<Self> {
        let directory = root.join("target").join("mutants");
        let (tree, target) = (directory.join("tree"), directory.join("target"));
        let wanted = files_of(root)?;
        for name in &wanted {
            let bytes = fs::read(root.join(name)).with_context(|| name.clone())?;
            let place = tree.join(name);
            if fs::read(&place).ok().as_ref() != Some(&bytes) {
                if let Some(parent) = place.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(&place, bytes).with_context(|| name.clone())?;
            }
        }
        remove_others(&tree, &tree, &wanted)?;
        Ok(Self { tree, target })
    }

    /// Cargo in the copy.
    pub(crate) fn cargo(&self, words: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command
            .args(words)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // Mutants need no debug information, and linking takes the longest.
            .env("CARGO_PROFILE_TEST_DEBUG", "0");
        command
    }

    /// Returns the path of the file for a check's output.
    pub(crate) fn output(&self) -> PathBuf {
        self.target.join("check-output")
    }

    /// The text of a file.
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<String> {
        fs::read_to_string(self.tree.join(name)).with_context(|| name.to_owned())
    }

    /// Replaces the text of a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.tree.join(name), text).with_context(|| name.to_owned())
    }
}

/// All files that are tracked or would be, and are there.
fn files_of(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let words = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let listed = Command::new("git").args(words).current_dir(root).output();
    let listed = listed.context("cannot start git")?;
    if !listed.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let names = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
    let names = names.split_terminator('\0').map(str::to_owned);
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}

/// Removes what the work tree does not have: Cargo would take an old file for a test.
fn remove_others(tree: &Path, directory: &Path, wanted: &BTreeSet<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.strip_prefix(tree).ok().and_then(Path::to_str);
        if path.is_dir() {
            remove_others(tree, &path, wanted)?;
        } else if !name.is_some_and(|name| wanted.contains(name)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
