//! The contents of a plot: our values, the paper's values beside them, and the mean of several runs.

use crate::sample::mean_and_interval;

/// Each line's name and points, in the order in which they are joined.
pub(super) type Points = Vec<(String, Vec<(f64, f64)>)>;

/// A plot: its contents, and the texts at its edges.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// The file's name without its ending; unique within an experiment.
    pub name: String,
    /// The text above it.
    pub title: String,
    /// The quantity on the horizontal axis, with its unit.
    pub x_label: String,
    /// The quantity on the vertical axis, with its unit.
    pub y_label: String,
    /// The contents.
    pub chart: Chart,
    /// The text below it: runs, and the parts that the scale leaves out.
    pub notes: Vec<String>,
    /// The values that the paper prints.
    pub(super) marks: Vec<Mark>,
    /// Names of groups or boxes whose data are of a stand-in.
    pub(super) stand_ins: Vec<String>,
    /// Half of each value's 95 % confidence interval, by series and position; empty for one run.
    pub(super) half_intervals: Vec<Vec<f64>>,
}

/// A value that the paper prints.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Mark {
    pub(super) at: At,
    pub(super) value: f64,
}

/// The place of a mark.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum At {
    /// On the bar of a series in a group.
    Bar { group: String, series: String },
    /// At this place of the horizontal axis.
    X(f64),
    /// On a box.
    Box(String),
}

/// The contents of a plot. All values are finite and not negative.
#[derive(Clone, PartialEq, Debug)]
pub enum Chart {
    /// Groups of bars next to each other.
    Bars {
        /// The groups, from the left.
        categories: Vec<String>,
        /// In each group one bar of each series: its name and a value for each category.
        series: Vec<(String, Vec<f64>)>,
    },
    /// Lines through points, for a horizontal axis of numbers.
    Lines {
        /// Each line's name and points, in the order in which they are joined.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// The same with a logarithmic vertical axis, for values of very different size. Points at 0
    /// are left out.
    LogLines {
        /// Each line's name and points, in the order in which they are joined.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Quartiles and whiskers of samples.
    Boxes {
        /// From the left, a name and its samples, at least one.
        samples: Vec<(String, Vec<f64>)>,
    },
}

impl Plot {
    /// A plot with this name, title, and labels of the horizontal and the vertical axis.
    pub fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        [x_label, y_label]: [&str; 2],
        chart: Chart,
    ) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            chart,
            notes: Vec::new(),
            marks: Vec::new(),
            stand_ins: Vec::new(),
            half_intervals: Vec::new(),
        }
    }

    /// A plot of [`Chart::Bars`].
    pub fn bars(
        name: impl Into<String>,
        title: impl Into<String>,
        labels: [&str; 2],
        categories: Vec<String>,
        series: Vec<(String, Vec<f64>)>,
    ) -> Self {
        Self::new(name, title, labels, Chart::Bars { categories, series })
    }

    /// A plot of [`Chart::Lines`].
    pub fn lines(
        name: impl Into<String>,
        title: impl Into<String>,
        labels: [&str; 2],
        series: Vec<(String, Vec<(f64, f64)>)>,
    ) -> Self {
        Self::new(name, title, labels, Chart::Lines { series })
    }

    /// Marks what the paper prints for the bar of a series in a group.
    pub fn mark_bar(&mut self, group: impl Into<String>, series: impl Into<String>, value: f64) {
        let at = At::Bar {
            group: group.into(),
            series: series.into(),
        };
        self.marks.push(Mark { at, value });
    }

    /// Marks what the paper prints at a place of the horizontal axis of numbers.
    pub fn mark_point(&mut self, x: f64, value: f64) {
        let at = At::X(x);
        self.marks.push(Mark { at, value });
    }

    /// Marks what the paper prints for a box.
    pub fn mark_box(&mut self, name: impl Into<String>, value: f64) {
        let at = At::Box(name.into());
        self.marks.push(Mark { at, value });
    }

    /// Adds a group of bars at the right end.
    ///
    /// # Panics
    /// When there is not a value for each series of bars.
    pub fn add_group(&mut self, name: &str, values: &[f64]) {
        let Chart::Bars { categories, series } = &mut self.chart else {
            panic!("groups are of bars");
        };
        assert_eq!(series.len(), values.len(), "a value for each series");
        categories.push(name.to_owned());
        for ((_, bars), &value) in series.iter_mut().zip(values) {
            bars.push(value);
        }
    }

    /// Marks groups or boxes of these names as those of stand-ins.
    #[must_use]
    pub fn with_stand_ins<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.stand_ins.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Whether all samples are drawn, and not their mean.
    pub(crate) const fn has_samples(&self) -> bool {
        matches!(self.chart, Chart::Boxes { .. })
    }

    /// Puts means in place of this run's values, with their confidence intervals. Samples of boxes are joined. Marks
    /// are means too, since a paper's ratio is marked in proportion to a value of ours. A plot whose contents are not
    /// alike in all runs is left as it is, and says so.
    pub(crate) fn merge(&mut self, others: &[&Self]) {
        let charts: Vec<&Chart> = others.iter().map(|other| &other.chart).collect();
        match self.chart.merge(&charts) {
            Some(half_intervals) => {
                self.half_intervals = half_intervals;
                self.merge_marks(others);
            }
            None => self.notes.push("values of the first run".to_owned()),
        }
    }

    fn merge_marks(&mut self, others: &[&Self]) {
        for mark in &mut self.marks {
            let same = |plot: &&Self| plot.marks.iter().find(|m| m.at == mark.at).map(|m| m.value);
            let values: Vec<f64> = std::iter::once(mark.value)
                .chain(others.iter().filter_map(same))
                .collect();
            mark.value = mean_and_interval(&values).0;
        }
    }
}

impl Chart {
    /// The mean of this and other charts, and half of the values' intervals; none where they are not alike.
    fn merge(&mut self, others: &[&Self]) -> Option<Vec<Vec<f64>>> {
        let names = self.names();
        if others.iter().any(|other| other.names() != names) {
            return None;
        }
        if let Self::Boxes { samples } = self {
            for (at, (_, values)) in samples.iter_mut().enumerate() {
                for other in others {
                    if let Self::Boxes { samples } = other {
                        values.extend(&samples[at].1);
                    }
                }
            }
            return Some(Vec::new());
        }
        let mut all = vec![self.values()];
        all.extend(others.iter().map(|other| other.values()));
        let mut half_intervals = Vec::new();
        for (line, of_line) in self.values_mut().into_iter().enumerate() {
            let mut halves = Vec::new();
            for (at, value) in of_line.into_iter().enumerate() {
                let runs: Vec<f64> = all.iter().map(|values| values[line][at]).collect();
                let (mean, half) = mean_and_interval(&runs);
                *value = mean;
                halves.push(half.unwrap_or(0.0));
            }
            half_intervals.push(halves);
        }
        Some(half_intervals)
    }

    /// All names, and the places on an axis of numbers.
    fn names(&self) -> (Vec<&str>, Vec<&str>, Vec<u64>) {
        match self {
            Self::Bars { categories, series } => (
                categories.iter().map(String::as_str).collect(),
                series.iter().map(|(name, _)| name.as_str()).collect(),
                Vec::new(),
            ),
            Self::Lines { series } | Self::LogLines { series } => (
                Vec::new(),
                series.iter().map(|(name, _)| name.as_str()).collect(),
                series
                    .iter()
                    .flat_map(|(_, points)| points.iter().map(|point| point.0.to_bits()))
                    .collect(),
            ),
            Self::Boxes { samples } => (
                samples.iter().map(|(name, _)| name.as_str()).collect(),
                Vec::new(),
                Vec::new(),
            ),
        }
    }

    /// The values of each series.
    fn values(&self) -> Vec<Vec<f64>> {
        match self {
            Self::Bars { series, .. } => series.iter().map(|(_, values)| values.clone()).collect(),
            Self::Lines { series } | Self::LogLines { series } => series
                .iter()
                .map(|(_, points)| points.iter().map(|point| point.1).collect())
                .collect(),
            Self::Boxes { samples } => samples.iter().map(|(_, values)| values.clone()).collect(),
        }
    }

    fn values_mut(&mut self) -> Vec<Vec<&mut f64>> {
        match self {
            Self::Bars { series, .. } => series
                .iter_mut()
                .map(|(_, values)| values.iter_mut().collect())
                .collect(),
            Self::Lines { series } | Self::LogLines { series } => series
                .iter_mut()
                .map(|(_, points)| points.iter_mut().map(|point| &mut point.1).collect())
                .collect(),
            Self::Boxes { samples } => samples
                .iter_mut()
                .map(|(_, values)| values.iter_mut().collect())
                .collect(),
        }
    }
}
