//! The console's page: builds it from its sources, compares the committed files, and drives it in a browser.
//!
//! `cargo build` embeds the committed files, so it needs no Node. Where npm is absent, a check is passed over with one
//! line.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The page's directory.
const PAGE: &str = "crates/console/page";
/// Directory in which a check builds it.
const BUILT: &str = "target/page";

/// Builds the page; with `checks`, elsewhere, and compares it with the committed one. `false` means that they differ.
pub(crate) fn run(root: &Path, checks: bool) -> anyhow::Result<bool> {
    if !has_npm() {
        if checks {
            return Ok(true);
        }
        bail!("the page is built by npm, which is not installed");
    }
    let page = root.join(PAGE);
    if !npm(
        &page,
        &["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
    )? {
        return Ok(false);
    }
    if !npm(&page, &["run", "--silent", "check"])? {
        return Ok(false);
    }
    if !checks {
        return npm(&page, &["run", "--silent", "build"]);
    }
    let built = root.join(BUILT);
    let directory = built.display().to_string();
    let words = [
        "run",
        "--silent",
        "build",
        "--",
        "--emptyOutDir",
        "--outDir",
    ];
    if !npm(&page, &[&words[..], &[&directory]].concat())? {
        return Ok(false);
    }
    let (built, committed) = (files(&built)?, files(&page.join("dist"))?);
    let is_same = built == committed;
    if !is_same {
        eprintln!(
            "the committed page differs from the page of its sources; run `cargo xtask page` and commit {PAGE}/dist"
        );
    }
    Ok(is_same)
}

/// Compares the page, and drives this `gabion`'s console in a browser through the loss of a node.
pub(crate) fn test(root: &Path, gabion: &Path) -> anyhow::Result<bool> {
    if !run(root, true)? {
        return Ok(false);
    }
    if !has_npm() {
        return Ok(true);
    }
    let status = Command::new("npm")
        .args(["run", "--silent", "test"])
        .env("GABION_BINARY", gabion)
        .current_dir(root.join(PAGE))
        .stdin(Stdio::null())
        .status()
        .context("cannot start npm")?;
    Ok(status.success())
}

fn has_npm() -> bool {
    let is_there = Command::new("npm").arg("--version").output().is_ok();
    if !is_there {
        eprintln!(
            "skipped: npm is not installed, so the console's page is not checked; the packages are nodejs and npm"
        );
    }
    is_there
}

fn npm(directory: &Path, words: &[&str]) -> anyhow::Result<bool> {
    let status = Command::new("npm")
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `npm {}`", words.join(" ")))?;
    Ok(status.success())
}

/// The names and the bytes of the files in a directory, in order.
fn files(directory: &Path) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let cannot = || format!("cannot read {}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let bytes = fs::read(entry.path()).with_context(cannot)?;
        files.push((PathBuf::from(entry.file_name()), bytes));
    }
    files.sort();
    Ok(files)
}
