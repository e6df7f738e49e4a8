//! Prometheus' conventions of names, applied to a page, and `promtool check metrics` where it is installed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Parts of names that stand for units which are not the base units.
const OTHER_UNITS: [&str; 12] = [
    "ms",
    "milliseconds",
    "us",
    "microseconds",
    "minutes",
    "hours",
    "kib",
    "mib",
    "kilobytes",
    "megabytes",
    "percent",
    "permille",
];

/// Labels that a metric must not have by itself.
const RESERVED: [&str; 4] = ["job", "instance", "quantile", "__name__"];

/// Panics with what a page does not keep of the conventions.
pub(crate) fn check(page: &str, prefix: &str) {
    let mut kinds = BTreeMap::new();
    let mut helps = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            let known = kinds.insert(name, kind);
            assert!(known.is_none(), "{name} is there twice");
            check_name(name, kind, prefix);
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help");
            assert!(help.len() > 3 && help.ends_with('.'), "{name} has no help");
            helps.insert(name, help);
        } else {
            check_sample(line, &kinds);
        }
    }
    assert!(kinds.len() > 10, "there are few metrics in {page}");
    let unexplained = kinds.keys().find(|name| !helps.contains_key(*name));
    assert_eq!(unexplained, None, "it has no help");
    ask_promtool(page);
}

fn check_name(name: &str, kind: &str, prefix: &str) {
    let is_own = name.starts_with(prefix) || name.starts_with("process_");
    assert!(is_own, "{name} is not of {prefix}");
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.chars().all(is_plain), "{name} has other characters");
    assert_eq!(
        kind == "counter",
        name.ends_with("_total"),
        "{name} is a {kind}"
    );
    let parts: Vec<&str> = name.split('_').collect();
    let unit = parts.iter().find(|part| OTHER_UNITS.contains(part));
    assert_eq!(unit, None, "{name} has a unit that is not a base unit");
    let base = name.strip_suffix("_total").unwrap_or(name);
    // Rates that are set or shown for people have a unit of two words.
    let base = base.strip_suffix("_per_second").unwrap_or(base);
    let parts: Vec<&str> = base.split('_').collect();
    for unit in ["seconds", "bytes"] {
        let count = parts.iter().filter(|part| **part == unit).count();
        let is_last = base.ends_with(unit);
        assert_eq!(
            count,
            usize::from(is_last),
            "{name} names {unit} elsewhere than last"
        );
    }
    for suffix in ["_count", "_sum", "_bucket"] {
        assert!(!name.ends_with(suffix), "{name} looks like a histogram's");
    }
}

fn check_sample(line: &str, kinds: &BTreeMap<&str, &str>) {
    let end = line.find(['{', ' ']).expect("a sample has a value");
    let name = &line[..end];
    let of_histogram = ["_count", "_sum", "_bucket"]
        .into_iter()
        .find_map(|suffix| {
            let base = name.strip_suffix(suffix)?;
            (kinds.get(base) == Some(&"histogram")).then_some(base)
        });
    let is_known = of_histogram.is_some() || kinds.contains_key(name);
    assert!(is_known, "{name} has no type");
    for label in RESERVED {
        assert!(!line.contains(&format!("{label}=\"")), "{line}");
    }
}

fn ask_promtool(page: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        println!("skipped: promtool is not installed");
        return;
    };
    let mut stdin = promtool.stdin.take().expect("stdin is piped");
    stdin.write_all(page.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "promtool: {said}"
    );
}

/// Panics if Prometheus would refuse a file of alert rules.
pub(crate) fn check_rules(path: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "rules", path])
        .output();
    let Ok(output) = promtool else {
        println!("skipped: promtool is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool: {said}");
}
