//! The measurement on HDFS as data: its setting, and the report that `LimitedLinksMeasurement.java` writes.

use crate::error::LabError;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a report must have, all of it above 0.
const NAMES: [&str; 23] = [
    "direct",
    "read.normal",
    "read.normal.cells",
    "read.agents",
    "read.agents.cells",
    "read.hadoop",
    "read.hadoop.cells",
    "one.conventional",
    "one.ppr",
    "one.pipeline",
    "one.pipeline.task",
    "one.ordered-by-hdfs",
    "one.hadoop",
    "node.conventional",
    "node.ppr",
    "node.pipeline",
    "node.ordered-by-hdfs",
    "node.hadoop-tuned",
    "node.hadoop-default",
    "core-seconds-per-gib.conventional",
    "core-seconds-per-gib.ppr",
    "core-seconds-per-gib.pipeline",
    "load",
];

/// One measurement on HDFS: a code, and the sizes.
#[derive(Clone, Debug)]
pub struct HdfsBench {
    /// A directory for its report and its log.
    pub directory: PathBuf,
    /// Blocks of a group that have data.
    pub k: u32,
    /// Blocks of a group that have parity.
    pub m: u32,
    /// Groups whose blocks a recovered `DataNode` had.
    pub group_count: u32,
    /// MiB of each of their blocks.
    pub block_mib: u32,
    /// MiB of a block that is repaired or read by itself.
    pub single_mib: u32,
    /// Rate of each `DataNode`'s link, each way, in Mbit/s.
    pub link_mbit: u32,
}

impl HdfsBench {
    /// The code as the paper writes it: `(n,k)`.
    pub fn code(&self) -> String {
        format!("({},{})", self.k + self.m, self.k)
    }
}

/// The results of one measurement by name: seconds, or what the name says.
#[derive(Clone, PartialEq, Debug)]
pub struct HdfsTimes(BTreeMap<String, f64>);

impl HdfsTimes {
    /// Reads a report: lines of a name and a number.
    ///
    /// # Errors
    /// [`LabError::HdfsReport`] if a line is malformed, or a result is absent, twice there, or not above 0.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let mut times = BTreeMap::new();
        for (line, at) in text.lines().zip(1..) {
            let wrong =
                |problem: &str| LabError::HdfsReport(format!("line {at}, '{line}', {problem}"));
            let (name, number) = line
                .split_once(' ')
                .ok_or_else(|| wrong("is no name and number"))?;
            let number: f64 = number.parse().map_err(|_| wrong("has no number"))?;
            let is_load = name == "load" && number == 0.0;
            if !number.is_finite() || (number <= 0.0 && !is_load) {
                return Err(wrong("is not above 0"));
            }
            if times.insert(name.to_owned(), number).is_some() {
                return Err(wrong("has a name for the second time"));
            }
        }
        match NAMES.iter().find(|&&name| !times.contains_key(name)) {
            None => Ok(Self(times)),
            Some(name) => Err(LabError::HdfsReport(format!("it has no line '{name}'"))),
        }
    }

    /// Results that are not measured, for tests of experiments.
    pub fn with(of: impl Fn(&str) -> f64) -> Self {
        Self(
            NAMES
                .iter()
                .map(|&name| (name.to_owned(), of(name)))
                .collect(),
        )
    }

    /// The result of this name.
    ///
    /// # Panics
    /// When no report has the name.
    pub fn of(&self, name: &str) -> f64 {
        let found = self.0.get(name);
        *found.unwrap_or_else(|| panic!("every report has a line '{name}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> String {
        let line = |(name, at): (&&str, u32)| format!("{name} {at}.500\n");
        NAMES.iter().zip(1..).map(line).collect()
    }

    fn check(text: &str, expected: &str) {
        let error = HdfsTimes::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn a_report_has_all_names_once_with_numbers() {
        let times = HdfsTimes::parse(&report()).unwrap();
        assert_eq!(times.of("direct").to_bits(), 1.5_f64.to_bits());
        assert_eq!(times.of("read.hadoop.cells").to_bits(), 7.5_f64.to_bits());
        let more = report() + "something.new 3.000\n";
        HdfsTimes::parse(&more).expect("a newer measurement may have more");
        let idle = report().replace("load 23.500", "load 0.000");
        HdfsTimes::parse(&idle).expect("nothing else runs");

        check("", "it has no line 'direct'");
        check(
            &report().replace("one.ppr 9.500\n", ""),
            "it has no line 'one.ppr'",
        );
        check(
            &report().replace("9.500", "soon"),
            "line 9, 'one.ppr soon', has no number",
        );
        check(&report().replace("9.500", "NaN"), "is not above 0");
        check(&report().replace("direct 1.500", "direct 0.000"), "line 1");
        check(&(report() + "direct 1.0\n"), "for the second time");
        check(&(report() + "\n"), "is no name and number");
    }
}
