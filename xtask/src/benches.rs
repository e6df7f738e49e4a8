//! The benchmarks that `cargo xtask bench` knows. Add one by adding a line to [`BENCHES`].
//!
//! A benchmark is a Cargo bench target with its own `main`; it prints its own table.

use std::path::Path;

use crate::steps::{self, Step};

/// One registered benchmark.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bench {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The package that holds the target.
    pub(crate) package: &'static str,
    /// The name of the bench target.
    pub(crate) target: &'static str,
}

/// Every benchmark, in the order in which `cargo xtask bench` runs them.
pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "kernel",
        package: "gabion-codec",
        target: "kernel",
    },
    Bench {
        name: "planning",
        package: "gabion-planner",
        target: "planning",
    },
    Bench {
        name: "wire",
        package: "gabion-wire",
        target: "wire",
    },
    Bench {
        name: "store",
        package: "gabion-store",
        target: "store",
    },
    Bench {
        name: "flash",
        package: "gabion-flash",
        target: "flash",
    },
    Bench {
        name: "exec",
        package: "gabion-exec",
        target: "exec",
    },
    Bench {
        name: "flow",
        package: "gabion-lab",
        target: "flow",
    },
    Bench {
        name: "counting",
        package: "gabion-lab",
        target: "counting",
    },
    Bench {
        name: "metadata",
        package: "gabion-meta",
        target: "metadata",
    },
    Bench {
        name: "database",
        package: "gabion-sql",
        target: "database",
    },
    Bench {
        name: "join",
        package: "gabion-protocol",
        target: "join",
    },
    Bench {
        name: "ticket",
        package: "gabion-protocol",
        target: "ticket",
    },
    Bench {
        name: "system",
        package: "gabion",
        target: "system",
    },
];

/// The benchmark called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Bench> {
    BENCHES.iter().find(|bench| bench.name == name)
}

/// Runs `benches` in turn, each with `arguments`; `false` means that one of them failed.
pub(crate) fn run(root: &Path, benches: &[&Bench], arguments: &[String]) -> anyhow::Result<bool> {
    let mut all_passed = true;
    for bench in benches {
        let mut words = vec![
            "bench",
            "--package",
            bench.package,
            "--bench",
            bench.target,
            "--",
        ];
        words.extend(arguments.iter().map(String::as_str));
        all_passed &= steps::run(root, &[Step::Cargo(&words)])?;
    }
    Ok(all_passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for bench in BENCHES {
            assert!(
                !bench.name.starts_with('-'),
                "`{}` would be read as a flag",
                bench.name
            );
            assert_eq!(
                find(bench.name),
                Some(bench),
                "`{}` is registered twice",
                bench.name
            );
        }
        assert_eq!(find("no such benchmark"), None);
    }
}
