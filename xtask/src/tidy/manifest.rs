//! The dependencies that a Cargo manifest names, each with its line.
//!
//! Cargo is the judge of manifests; this reads only the sections and keys that Cargo has already
//! accepted, and keeps the line numbers that a TOML parser would drop.

/// When a dependency is compiled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Into the library or binary, or into its build script.
    Product,
    /// Into tests, benches and examples only.
    Test,
}

/// One dependency.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency<'a> {
    /// The line that names it, counted from 1.
    pub(crate) line: usize,
    /// The package's name, also where the manifest renames it.
    pub(crate) name: &'a str,
    /// When it is compiled in.
    pub(crate) section: Section,
}

/// Every dependency in `manifest`.
pub(crate) fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut dependencies = Vec::new();
    let mut section = None;
    // Inside `[dependencies.NAME]` the keys are the dependency's own.
    let mut own_table = false;
    for (index, line) in manifest.lines().enumerate() {
        let line_number = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or(header);
            let (found, name) = section_of(header);
            section = found;
            own_table = name.is_some();
            if let (Some(section), Some(name)) = (section, name) {
                dependencies.push(Dependency {
                    line: line_number,
                    name,
                    section,
                });
            }
        } else if let (Some(section), Some((key, value))) = (section, line.split_once('=')) {
            let renamed = if own_table {
                (key.trim() == "package").then(|| quoted(value)).flatten()
            } else {
                let renaming = value
                    .split_once("package")
                    .map(|(_, rest)| rest.trim_start());
                renaming
                    .filter(|rest| rest.starts_with('='))
                    .and_then(quoted)
            };
            let key_name = key
                .split('.')
                .next()
                .unwrap_or(key)
                .trim()
                .trim_matches('"');
            let name = renamed.or((!own_table).then_some(key_name));
            dependencies.extend(name.map(|name| Dependency {
                line: line_number,
                name,
                section,
            }));
        }
    }
    dependencies
}

/// Returns the section of a table header, and the dependency that it names if it names one.
fn section_of(header: &str) -> (Option<Section>, Option<&str>) {
    let kinds = [
        ("dev-dependencies", Section::Test),
        ("build-dependencies", Section::Product),
        ("dependencies", Section::Product),
    ];
    for (word, section) in kinds {
        if header == word || header.ends_with(&format!(".{word}")) {
            return (Some(section), None);
        }
        let own_table = header.split_once(&format!("{word}."));
        if let Some((before, name)) = own_table
            && (before.is_empty() || before.ends_with('.'))
        {
            return (Some(section), Some(name.trim_matches('"')));
        }
    }
    (None, None)
}

/// The first quoted text in `value`.
fn quoted(value: &str) -> Option<&str> {
    value.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_naming_a_dependency() {
        let manifest = r#"
[package]
name = "gabion-x"

[dependencies]
# gabion-comment = "1"
gabion-a.workspace = true
gabion-b = { path = "../b", features = ["package"] }
c = { package = "gabion-c", path = "../c" }

[dependencies.gabion-d]
path = "../d"

[build-dependencies]
gabion-e = "1"

[target.'cfg(unix)'.dependencies]
gabion-f.workspace = true

[dev-dependencies]
gabion-g.workspace = true

[dev-dependencies.h]
package = "gabion-h"

[features]
gabion-not = []
"#;
        let found: Vec<_> = dependencies(manifest)
            .into_iter()
            .filter(|dependency| dependency.name.starts_with("gabion"))
            .map(|dependency| (dependency.line, dependency.name, dependency.section))
            .collect();
        let expected = [
            (7, "gabion-a", Section::Product),
            (8, "gabion-b", Section::Product),
            (9, "gabion-c", Section::Product),
            (11, "gabion-d", Section::Product),
            (15, "gabion-e", Section::Product),
            (18, "gabion-f", Section::Product),
            (21, "gabion-g", Section::Test),
            (24, "gabion-h", Section::Test),
        ];
        assert_eq!(found, expected);
    }
}
