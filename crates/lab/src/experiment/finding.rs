//! One figure of a paper beside ours, of one run or of several.

use super::verdict::{Paper, Verdict, digits};
use crate::sample::mean_and_interval;
use serde::Serialize;

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
    /// The least and the most that the paper prints, for programs; none if it is not a number. An end is infinite,
    /// `null` in JSON, if the paper gives a limit on one side.
    pub paper_range: Option<(f64, f64)>,
    /// The range that counts as near.
    pub tolerance: Option<String>,
    /// The verdict on ours against the paper's; none if they are only shown side by side.
    pub verdict: Option<Verdict>,
    /// The reading of the paper that it belongs to, if the experiment is judged by another reading.
    pub reading: Option<String>,
    /// The reason why ours is not near.
    pub why: Option<String>,
    /// Runs of which ours is the mean, or which a statement was checked in.
    pub runs: usize,
    /// Half the width of the mean's 95 % confidence interval, if there were several runs.
    pub half_interval: Option<f64>,
    #[serde(skip)]
    unit: String,
    /// The printed figure by which a mean is judged.
    #[serde(skip)]
    judge: Option<Paper>,
    /// The reason for a miss, kept for means, which may miss where the first run does not.
    #[serde(skip)]
    reason: Option<String>,
}

impl Finding {
    /// A number with its unit, judged by what the paper prints.
    pub fn beside(what: impl Into<String>, ours: f64, unit: &str, paper: Paper) -> Self {
        Self {
            paper_range: Some(paper.range),
            tolerance: Some(paper.accepted()),
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
        Self {
            verdict: Some(verdict),
            ..Self::words(what, ours, paper)
        }
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
            reading: None,
            why: None,
            runs: 1,
            half_interval: None,
            unit: String::new(),
            judge: None,
            reason: None,
        }
    }

    /// A figure of the paper that this scale leaves out.
    pub fn left_out(what: impl Into<String>, paper: impl Into<String>) -> Self {
        Self::words(what, "not run", paper)
    }

    /// Shows the figure as that of another reading of the paper, which the experiment is not judged by.
    #[must_use]
    pub fn reading(mut self, reading: impl Into<String>) -> Self {
        self.reading = Some(reading.into());
        self
    }

    /// Says why the figure is not near the paper's, if it is not.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.reason = Some(why.into());
        self.explain();
        self
    }

    fn explain(&mut self) {
        let is_missed = self.verdict.is_some_and(|verdict| verdict != Verdict::Near);
        self.why = self.reason.clone().filter(|_| is_missed);
    }

    /// The verdict that counts for the experiment.
    pub(super) fn counted(&self) -> Option<Verdict> {
        self.verdict.filter(|_| self.reading.is_none())
    }

    /// Puts the result of several runs in place of the first one's: the mean of numbers, judged as such, or for a
    /// statement the verdict of most runs with their number.
    pub(super) fn merge(&mut self, others: &[&Self]) {
        self.runs = others.len() + 1;
        let values: Option<Vec<f64>> = std::iter::once(self.ours_value)
            .chain(others.iter().map(|other| other.ours_value))
            .collect();
        if let Some(values) = values {
            let (mean, half) = mean_and_interval(&values);
            let half = half.unwrap_or(0.0);
            self.ours_value = Some(mean);
            self.ours = format!("{}{} +- {}", digits(mean), self.unit, digits(half));
            self.half_interval = Some(half);
            self.verdict = self.judge.as_ref().map(|paper| paper.judge(mean));
        } else if self.verdict.is_some() {
            self.vote(others);
        } else if others.iter().any(|other| other.ours != self.ours) {
            self.ours = format!("{} (first run)", self.ours);
        }
        self.explain();
    }

    /// The verdict that most runs have; of two that as many have, the worse.
    fn vote(&mut self, others: &[&Self]) {
        let votes = |verdict: Verdict| {
            let all = std::iter::once(self.verdict).chain(others.iter().map(|other| other.verdict));
            all.filter(|&vote| vote == Some(verdict)).count()
        };
        let all = [Verdict::Near, Verdict::DirectionOnly, Verdict::Opposite];
        let won = all.into_iter().max_by_key(|&verdict| votes(verdict));
        let count = won.map_or(0, votes);
        if self.verdict != won
            && let Some(other) = others.iter().find(|other| other.verdict == won)
        {
            self.ours.clone_from(&other.ours);
            self.reason.clone_from(&other.reason);
        }
        self.verdict = won;
        self.ours = format!("{} ({count} of {} runs)", self.ours, self.runs);
    }
}
