//! Several runs of one experiment with seeds of their own: means, with the interval in which the mean lies with 95 %
//! confidence (Student's t, since runs are few).

use super::report::Report;

/// Quantiles of Student's t distribution for 95 % on both sides, by degrees of freedom from 1 on; for more it is
/// taken as normal, 1.96.
const T_95: [f64; 14] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145,
];

/// The mean of some values, at least one, and half the width of its 95 % confidence interval; none of a single value.
fn mean_and_interval(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, None);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    let quantile = T_95.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean, Some(quantile * deviation / count.sqrt()))
}

impl Report {
    /// One report of several runs: the figures beside the paper's and the goals are means, judged as such; settings,
    /// tables and plots are the first run's. A figure that a run lacks is left as in the first.
    ///
    /// # Panics
    /// When there is no run.
    pub fn of_runs(mut runs: Vec<Self>) -> Self {
        let others = runs.split_off(1);
        let mut report = runs.pop().expect("there is at least one run");
        let count = others.len() + 1;
        report.setting.push(if count == 1 {
            "one run: its figures have no confidence interval".to_owned()
        } else {
            format!("{count} runs: figures are means, with 95 % confidence intervals")
        });
        for finding in &mut report.findings {
            let same = others.iter().map(|run| {
                let found = run.findings.iter().find(|other| other.what == finding.what);
                found.and_then(|other| other.ours_value)
            });
            let values: Option<Vec<f64>> =
                std::iter::once(finding.ours_value).chain(same).collect();
            if let Some(values) = values {
                finding.set_mean(mean_and_interval(&values), count);
            }
        }
        for goal in &mut report.goals {
            let same = others.iter().map(|run| {
                let found = run.goals.iter().find(|other| other.what == goal.what);
                found.and_then(|other| other.ours_value)
            });
            let values: Option<Vec<f64>> = std::iter::once(goal.ours_value).chain(same).collect();
            if let Some(values) = values {
                goal.set_mean(mean_and_interval(&values));
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Finding, Goal, Paper, Verdict};

    #[test]
    fn intervals_are_students() {
        assert_eq!(mean_and_interval(&[7.0]), (7.0, None));
        let (mean, half) = mean_and_interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12);
        // A deviation of 1, and 4.303 / sqrt(3).
        assert!((half.expect("three values") - 2.4843).abs() < 1e-3);
        let (_, half) = mean_and_interval(&[5.0; 40]);
        assert_eq!(half, Some(0.0));
    }

    #[test]
    fn means_are_judged_and_not_the_first_run() {
        let run = |saving: f64, ratio: f64| Report {
            findings: vec![
                Finding::beside("saving", saving, " %", Paper::saving(20.0)),
                Finding::words("words", "a", "b"),
            ],
            goals: vec![Goal::at_least("ratio", ratio, "x", 2.0)],
            ..Report::default()
        };
        let report = Report::of_runs(vec![run(35.0, 2.5), run(15.0, 1.7), run(16.0, 1.5)]);
        let [saving, words] = report.findings.as_slice() else {
            panic!("{report:#?}");
        };
        assert_eq!(
            (saving.verdict, saving.ours_value),
            (Some(Verdict::Near), Some(22.0))
        );
        assert_eq!((saving.ours.as_str(), saving.runs), ("22.00 % +- 28.00", 3));
        assert_eq!((words.ours.as_str(), words.runs), ("a", 1));
        assert!(!report.goals[0].is_met, "1.9 on average");
        let alone = Report::of_runs(vec![run(35.0, 2.5)]);
        assert_eq!(alone.findings[0].ours, "35.00 %");
        assert!(alone.setting[0].contains("one run"));
    }
}
