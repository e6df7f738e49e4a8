//! The result of an experiment: its setting, its figures beside the paper's, tables and plots. It
//! is data; the command line prints and saves it.

use super::finding::Finding;
use super::verdict::{Goal, Verdict, digits};
use crate::plot::Plot;
use serde::Serialize;

/// An experiment's result. Its JSON form leaves the plots out, whose values are in the tables.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// The setting, one sentence each: code, sizes, workload.
    pub setting: Vec<String>,
    /// Differences from the paper, such as smaller sizes, with their extent.
    pub scaled: Vec<String>,
    /// Parts of the figure that the scale leaves out; they are printed with the figures and the plots.
    pub left_out: Vec<String>,
    /// Choices that the paper leaves open: which one the experiment is judged by, and why.
    pub readings: Vec<Reading>,
    /// Our figures beside the paper's.
    pub findings: Vec<Finding>,
    /// Goals of this project, beside what is measured.
    pub goals: Vec<Goal>,
    /// The measurements.
    pub tables: Vec<Table>,
    /// Notes that a reader needs to understand the figures.
    pub notes: Vec<String>,
    /// Verdicts of each run by itself.
    pub by_run: Vec<Tally>,
    /// The plots.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// A choice that the paper leaves open.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reading {
    /// The detail that the paper leaves open.
    pub open: String,
    /// The reading that the experiment is judged by.
    pub chosen: String,
    /// The reason if it is.
    pub why: String,
}

/// The number of findings by verdict; those of other readings are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Tally {
    /// Findings that are near.
    pub near: usize,
    /// Findings with the direction only.
    pub direction_only: usize,
    /// Findings that are opposite.
    pub opposite: usize,
    /// Findings of other readings, which are shown and not counted.
    pub other_readings: usize,
}

impl Report {
    /// The experiment's verdict: the worst of all findings of the reading that it is judged by; none if no finding
    /// has a verdict, since no paper prints figures.
    pub fn verdict(&self) -> Option<Verdict> {
        self.findings.iter().filter_map(Finding::counted).max()
    }

    /// Returns the number of findings by verdict.
    pub fn tally(&self) -> Tally {
        let count = |verdict: Verdict| {
            let counted = self.findings.iter().filter_map(Finding::counted);
            counted.filter(|&found| found == verdict).count()
        };
        let is_other = |finding: &&Finding| finding.verdict.is_some() && finding.reading.is_some();
        Tally {
            near: count(Verdict::Near),
            direction_only: count(Verdict::DirectionOnly),
            opposite: count(Verdict::Opposite),
            other_readings: self.findings.iter().filter(is_other).count(),
        }
    }

    /// Says why the figure of this name is not near the paper's, if it is not.
    pub(crate) fn explain(&mut self, what: &str, why: &str) {
        for finding in self.findings.iter_mut().filter(|f| f.what == what) {
            *finding = finding.clone().because(why);
        }
    }

    /// States a choice that the paper leaves open.
    pub(crate) fn choose(&mut self, open: &str, chosen: &str, why: &str) {
        self.readings.push(Reading {
            open: open.to_owned(),
            chosen: chosen.to_owned(),
            why: why.to_owned(),
        });
    }
}

/// A table of measurements.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// The text above it.
    pub title: String,
    /// Names of the columns, with units.
    pub columns: Vec<String>,
    /// Rows with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has not a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A whole number.
    Count(u64),
    /// Any number.
    Number(f64),
    /// Words.
    Text(String),
}

impl Cell {
    /// The cell for people.
    pub fn text(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Number(number) => digits(*number),
            Self::Text(text) => text.clone(),
        }
    }

    /// The number in the cell; none if it has words.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Paper;

    #[test]
    fn json_has_numbers_as_numbers() {
        let mut table = Table::new("t", &["scheme", "writes", "rate"]);
        table.row(["FO".into(), 3_u64.into(), 1.5.into()]);
        let finding = Finding::beside("ratio", 1.6, "x", Paper::ratio(1.631));
        let missed = Finding::claim("claim", "no", "yes", false).because("luck");
        assert_eq!(missed.why.as_deref(), Some("luck"));
        let report = Report {
            findings: vec![finding.because("nothing to explain")],
            tables: vec![table],
            ..Report::default()
        };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(
            json["tables"][0]["rows"][0],
            serde_json::json!(["FO", 3, 1.5])
        );
        assert_eq!(json["findings"][0]["ours"], "1.60x");
        assert_eq!(json["findings"][0]["ours_value"], 1.6);
        assert_eq!(json["findings"][0]["verdict"], "near");
        assert_eq!(json["findings"][0]["tolerance"], "1.39 to 1.88");
        assert_eq!(json["findings"][0]["why"], serde_json::Value::Null);
        assert!(json.get("plots").is_none());
    }

    #[test]
    fn a_cause_that_is_found_later_explains_a_miss_alone() {
        let found = |what: &str, ours: f64| Finding::beside(what, ours, " %", Paper::saving(20.0));
        let mut report = Report {
            findings: vec![
                found("near", 21.0),
                found("far", 40.0),
                found("other", 40.0),
            ],
            ..Report::default()
        };
        report.explain("near", "links");
        report.explain("far", "links");
        let whys: Vec<Option<&str>> = report.findings.iter().map(|f| f.why.as_deref()).collect();
        assert_eq!(whys, [None, Some("links"), None]);
    }

    #[test]
    fn the_worst_finding_of_the_chosen_reading_decides() {
        let found = |ours: f64| Finding::beside("saving", ours, " %", Paper::saving(20.0));
        let mut report = Report::default();
        assert_eq!(report.verdict(), None);
        report.findings = vec![
            found(21.0),
            found(-3.0).reading("rule as printed"),
            Finding::words("words", "a", "b"),
        ];
        assert_eq!(report.verdict(), Some(Verdict::Near));
        report.findings.push(found(40.0));
        assert_eq!(report.verdict(), Some(Verdict::DirectionOnly));
        let expected = Tally {
            near: 1,
            direction_only: 1,
            opposite: 0,
            other_readings: 1,
        };
        assert_eq!(report.tally(), expected);
        report.findings.push(found(-1.0));
        assert_eq!(report.verdict(), Some(Verdict::Opposite));
    }
}
