//! The result of an experiment: its setting, its figures beside the paper's, tables and plots. It
//! is data; the command line prints and saves it.

use super::verdict::{Goal, Paper, Verdict, digits};
use crate::plot::Plot;
use serde::Serialize;

/// An experiment's result. Its JSON form leaves the plots out, whose values are in the tables.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// The setting, one sentence each: code, sizes, workload.
    pub setting: Vec<String>,
    /// Differences from the paper, such as smaller sizes, with their extent.
    pub scaled: Vec<String>,
    /// Our figures beside the paper's.
    pub findings: Vec<Finding>,
    /// Goals of this project, beside what is measured.
    pub goals: Vec<Goal>,
    /// The measurements.
    pub tables: Vec<Table>,
    /// Notes that a reader needs to understand the figures.
    pub notes: Vec<String>,
    /// The plots.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// One figure of the paper, and ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The meaning of the figure.
    pub what: String,
    /// Ours, as it is printed.
    pub ours: String,
    /// Ours, for programs; none if it is not a single number.
    pub ours_value: Option<f64>,
    /// The paper's, as it is printed.
    pub paper: String,
    /// The least and the most that the paper prints, for programs; none if it is not a number.
    pub paper_range: Option<(f64, f64)>,
    /// How far ours may be off to be near.
    pub tolerance: Option<String>,
    /// How ours stands to the paper's; none if they are only shown side by side.
    pub verdict: Option<Verdict>,
    /// Why ours is not near.
    pub why: Option<String>,
    /// Runs of which ours is the mean.
    pub runs: usize,
    /// Half the width of the mean's 95 % confidence interval, if there were several runs.
    pub half_interval: Option<f64>,
    #[serde(skip)]
    unit: String,
    /// What a mean is judged by.
    #[serde(skip)]
    judge: Option<Paper>,
}

impl Finding {
    /// A number with its unit, judged by what the paper prints.
    pub fn beside(what: impl Into<String>, ours: f64, unit: &str, paper: Paper) -> Self {
        Self {
            paper_range: Some(paper.range),
            tolerance: Some(paper.tolerance.to_string()),
            verdict: Some(paper.judge(ours)),
            judge: Some(paper.clone()),
            ..Self::number(what, ours, unit, paper.printed)
        }
    }

    /// A statement of the paper that holds here or does not.
    pub fn claim(
        what: impl Into<String>,
        ours: impl Into<String>,
        paper: impl Into<String>,
        holds: bool,
    ) -> Self {
        let verdict = if holds {
            Verdict::Near
        } else {
            Verdict::Opposite
        };
        Self::words(what, ours, paper).judged(verdict)
    }

    /// A number with its unit, shown beside the paper's without a verdict.
    pub fn number(
        what: impl Into<String>,
        ours: f64,
        unit: &str,
        paper: impl Into<String>,
    ) -> Self {
        Self {
            ours_value: Some(ours),
            unit: unit.to_owned(),
            ..Self::words(what, format!("{}{unit}", digits(ours)), paper)
        }
    }

    /// Words shown beside the paper's without a verdict.
    pub fn words(
        what: impl Into<String>,
        ours: impl Into<String>,
        paper: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            ours: ours.into(),
            ours_value: None,
            paper: paper.into(),
            paper_range: None,
            tolerance: None,
            verdict: None,
            why: None,
            runs: 1,
            half_interval: None,
            unit: String::new(),
            judge: None,
        }
    }

    /// Adds our number, for programs.
    #[must_use]
    pub fn with_value(mut self, ours: f64) -> Self {
        self.ours_value = Some(ours);
        self
    }

    /// Puts a mean of several runs in place of one run's figure. A statement keeps the words and the verdict of its
    /// first run.
    pub(super) fn set_mean(&mut self, (mean, half): (f64, Option<f64>), runs: usize) {
        let Some(half) = half.filter(|_| self.judge.is_some() || self.verdict.is_none()) else {
            return;
        };
        self.ours_value = Some(mean);
        self.ours = format!("{}{} +- {}", digits(mean), self.unit, digits(half));
        self.half_interval = Some(half);
        self.runs = runs;
        self.verdict = self.judge.as_ref().map(|paper| paper.judge(mean));
        if self.verdict == Some(Verdict::Near) {
            self.why = None;
        }
    }

    /// Sets the verdict.
    #[must_use]
    pub fn judged(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// Says why the figure is not near the paper's, if it is not.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        if self.verdict.is_some_and(|verdict| verdict != Verdict::Near) {
            self.why = Some(why.into());
        }
        self
    }
}

/// A table of measurements.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// What stands above it.
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

/// The mean of some values; 0 of none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_numbers_as_numbers() {
        let mut table = Table::new("t", &["scheme", "writes", "rate"]);
        table.row(["FO".into(), 3_u64.into(), 1.5.into()]);
        let finding = Finding::beside("ratio", 1.6, "x", Paper::ratio(1.631));
        let missed = finding.clone().judged(Verdict::Opposite).because("luck");
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
        assert_eq!(json["findings"][0]["tolerance"], "+- 15 %");
        assert_eq!(json["findings"][0]["why"], serde_json::Value::Null);
        assert!(json.get("plots").is_none());
    }
}
