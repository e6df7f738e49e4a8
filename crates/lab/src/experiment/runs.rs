//! Several runs of one experiment with different seeds, as one report of their means.

use super::finding::Finding;
use super::report::{Cell, Report, Table};
use crate::plot::Plot;
use crate::sample::mean_and_interval;

impl Report {
    /// One report of several runs. Figures beside the paper's and goals are means, judged as such; of a statement
    /// most runs decide. Tables and plots are means cell by cell and point by point. `is_one_enough` is whether one
    /// run suffices, so that a single one is no warning.
    ///
    /// # Panics
    /// When there is no run.
    pub fn of_runs(mut runs: Vec<Self>, is_one_enough: bool) -> Self {
        let others = runs.split_off(1);
        let mut report = runs.pop().expect("there is at least one run");
        report.by_run = std::iter::once(&report)
            .chain(&others)
            .map(Self::tally)
            .collect();
        let count = others.len() + 1;
        if count > 1 {
            report.merge(&others);
        }
        for plot in &mut report.plots {
            plot.notes.extend(match (count, is_one_enough) {
                (1, true) => None,
                (1, false) => Some("one run".to_owned()),
                _ if plot.has_samples() => {
                    Some(format!("quartiles of the samples of {count} runs"))
                }
                _ => Some(format!("mean of {count} runs, 95 % confidence intervals")),
            });
            plot.notes.extend(report.left_out.iter().cloned());
        }
        let sentence = match (count, is_one_enough) {
            (1, true) => {
                "one run suffices: the experiment has no random choices, or the paper's number of draws"
            }
            (1, false) => "one run: its figures have no confidence interval",
            _ => "figures are means of all runs, with 95 % confidence intervals",
        };
        report.setting.push(sentence.to_owned());
        if count == 1 && !is_one_enough {
            for finding in &mut report.findings {
                if finding.ours_value.is_some() {
                    finding.ours.push_str(" (one run)");
                }
            }
        }
        report
    }

    fn merge(&mut self, others: &[Self]) {
        for finding in &mut self.findings {
            let same: Vec<&Finding> = others
                .iter()
                .filter_map(|run| run.findings.iter().find(|other| other.what == finding.what))
                .collect();
            finding.merge(&same);
        }
        for goal in &mut self.goals {
            let same = others
                .iter()
                .filter_map(|run| run.goals.iter().find(|other| other.what == goal.what));
            goal.merge(&same.collect::<Vec<_>>());
        }
        for table in &mut self.tables {
            let same = others
                .iter()
                .filter_map(|run| run.tables.iter().find(|other| other.title == table.title));
            table.merge(&same.collect::<Vec<_>>());
        }
        for plot in &mut self.plots {
            let same = others
                .iter()
                .filter_map(|run| run.plots.iter().find(|other| other.name == plot.name));
            plot.merge(&same.collect::<Vec<&Plot>>());
        }
        let lines = |of: fn(&Self) -> &Vec<String>, ours: &mut Vec<String>| {
            for line in others.iter().flat_map(of) {
                if !ours.contains(line) {
                    ours.push(line.clone());
                }
            }
        };
        lines(|run| &run.setting, &mut self.setting);
        lines(|run| &run.scaled, &mut self.scaled);
        lines(|run| &run.left_out, &mut self.left_out);
        lines(|run| &run.notes, &mut self.notes);
    }
}

impl Table {
    /// Averages numbers cell by cell. Rows stand for each other if their words are the same; of a table whose rows
    /// differ from run to run, the first run's is left, and its title says so.
    fn merge(&mut self, others: &[&Self]) {
        let is_alike = |other: &&&Self| {
            self.rows.len() == other.rows.len()
                && std::iter::zip(&self.rows, &other.rows).all(|(a, b)| {
                    std::iter::zip(a, b).all(|(a, b)| a.number().is_some() == b.number().is_some())
                        && a.first().map(Cell::text) == b.first().map(Cell::text)
                })
        };
        let alike = others.iter().filter(is_alike).count();
        if alike < others.len() {
            self.title.push_str(" (first run)");
            return;
        }
        let is_mean = self
            .rows
            .iter()
            .flatten()
            .any(|cell| cell.number().is_some());
        for (at, row) in self.rows.iter_mut().enumerate() {
            for (column, cell) in row.iter_mut().enumerate() {
                let cells: Vec<&Cell> = others.iter().map(|o| &o.rows[at][column]).collect();
                cell.merge(&cells);
            }
        }
        if is_mean {
            self.title = format!("{} (mean of {} runs)", self.title, others.len() + 1);
        }
    }
}

impl Cell {
    fn merge(&mut self, others: &[&Self]) {
        if others.iter().all(|other| *other == self) {
            return;
        }
        let all: Option<Vec<f64>> = std::iter::once(self.number())
            .chain(others.iter().map(|other| other.number()))
            .collect();
        *self = match all {
            Some(values) => Self::Number(mean_and_interval(&values).0),
            None => Self::Text(format!("{} (first run)", self.text())),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Goal, Paper, Verdict};

    fn run(saving: f64, ratio: f64, holds: bool) -> Report {
        let mut table = Table::new("rates", &["scheme", "rate", "source"]);
        table.row(["FO".into(), saving.into(), format!("{ratio}").into()]);
        let sides = vec![("ours".to_owned(), vec![saving])];
        let claim = if holds { "so it is" } else { "it is not" };
        let saved = Finding::beside("saving", saving, " %", Paper::saving(20.0));
        Report {
            scaled: vec![format!("one in {ratio}"), "no network".to_owned()],
            findings: vec![
                saved.because("sizes"),
                Finding::words("words", "a", "b"),
                Finding::claim("claim", claim, "it is", holds),
            ],
            goals: vec![Goal::at_least("ratio", ratio, "x", 2.0)],
            tables: vec![table],
            plots: vec![Plot::bars(
                "p",
                "t",
                ["x", "y"],
                vec!["FO".to_owned()],
                sides,
            )],
            left_out: vec!["no 10 Gb/s".to_owned()],
            ..Report::default()
        }
    }

    #[test]
    fn means_are_judged_and_not_the_first_run() {
        let runs = vec![
            run(35.0, 2.5, false),
            run(15.0, 1.7, true),
            run(16.0, 1.5, true),
        ];
        let report = Report::of_runs(runs, false);
        let [saving, words, claim] = report.findings.as_slice() else {
            panic!("{report:#?}");
        };
        assert_eq!(
            (saving.verdict, saving.ours_value, &saving.why),
            (Some(Verdict::Near), Some(22.0), &None)
        );
        assert_eq!((saving.ours.as_str(), saving.runs), ("22.00 % +- 28.00", 3));
        assert_eq!(words.ours, "a");
        assert_eq!(claim.verdict, Some(Verdict::Near));
        assert_eq!(claim.ours, "so it is (2 of 3 runs)");
        assert!(!report.goals[0].is_met, "1.9 on average");
        let near: Vec<usize> = report.by_run.iter().map(|tally| tally.near).collect();
        assert_eq!(near, [0, 2, 2], "each run by itself: {:?}", report.by_run);
    }

    #[test]
    fn a_mean_that_misses_has_the_reason_that_its_first_run_did_not_need() {
        let report = Report::of_runs(vec![run(20.0, 2.5, true), run(60.0, 2.5, true)], false);
        assert_eq!(report.findings[0].verdict, Some(Verdict::DirectionOnly));
        assert_eq!(report.findings[0].why.as_deref(), Some("sizes"));
    }

    #[test]
    fn tables_plots_and_differences_are_of_all_runs() {
        let report = Report::of_runs(vec![run(10.0, 2.5, true), run(20.0, 1.5, true)], false);
        let table = &report.tables[0];
        assert_eq!(table.title, "rates (mean of 2 runs)");
        let cells: Vec<String> = table.rows[0].iter().map(Cell::text).collect();
        assert_eq!(cells, ["FO", "15.00", "2.5 (first run)"]);
        assert_eq!(report.scaled, ["one in 2.5", "no network", "one in 1.5"]);
        let svg = report.plots[0].svg().expect("it can be drawn");
        assert!(svg.contains("mean of 2 runs"), "{svg}");
        assert!(svg.contains("no 10 Gb/s"), "{svg}");
        assert!(svg.contains("class=\"error\""), "{svg}");
    }

    #[test]
    fn a_figure_of_one_run_says_so_unless_one_suffices() {
        let alone = Report::of_runs(vec![run(35.0, 2.5, true)], false);
        assert_eq!(alone.findings[0].ours, "35.00 % (one run)");
        assert!(alone.setting[0].contains("no confidence interval"));
        assert!(alone.plots[0].svg().unwrap().contains("one run"));
        let exact = Report::of_runs(vec![run(35.0, 2.5, true)], true);
        assert_eq!(exact.findings[0].ours, "35.00 %");
        assert!(exact.setting[0].contains("suffices"));
    }
}
