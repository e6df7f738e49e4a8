//! Plots of results: bars, lines and boxes, drawn as SVG.
//!
//! An experiment defines the contents; the appearance is decided here for all of them. No fonts are
//! read: the viewer sets the text.

use crate::box_parts::BoxParts;
use crate::error::LabError;
use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Display;
use std::ops::Range;

/// Width and height of every plot, in pixels.
const SIZE_PX: (u32, u32) = (960, 560);
/// The room above the highest value, as a factor.
const HEADROOM: f64 = 1.08;
/// Colours of series, in order; they differ in lightness too, for colour-blind readers.
const COLOURS: [RGBColor; 9] = [
    RGBColor(31, 83, 141),
    RGBColor(222, 132, 43),
    RGBColor(82, 153, 83),
    RGBColor(186, 61, 61),
    RGBColor(128, 100, 162),
    RGBColor(120, 120, 120),
    RGBColor(64, 170, 178),
    RGBColor(20, 20, 20),
    RGBColor(205, 110, 165),
];
/// Series next to each other in the legend, the width of one, and the height of a row of them.
const LEGEND_COLUMNS: usize = 4;
const LEGEND_COLUMN_PX: i32 = 215;
const LEGEND_ROW_PX: u32 = 22;
/// Half the width of a box of a sample.
const BOX_HALF_PX: i32 = 14;
/// With more categories than this their names stand in two rows, so that they do not touch.
const CATEGORIES_A_ROW: usize = 12;

/// A plot: its contents, and the texts at its edges.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// The file's name without its ending; unique within an experiment.
    pub name: String,
    /// What stands above it.
    pub title: String,
    /// The quantity on the horizontal axis, with its unit.
    pub x_label: String,
    /// The quantity on the vertical axis, with its unit.
    pub y_label: String,
    /// The contents.
    pub chart: Chart,
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
    /// Lines through points.
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

    /// The plot as an SVG document.
    ///
    /// # Errors
    /// [`LabError::Plot`] when there is nothing to draw, a value is negative or not finite, or a
    /// series has more or fewer values than there are categories.
    pub fn svg(&self) -> Result<String, LabError> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE_PX).into_drawing_area();
            area.fill(&WHITE).map_err(|error| self.refuse(error))?;
            match &self.chart {
                Chart::Bars { categories, series } => self.draw_bars(&area, categories, series)?,
                Chart::Lines { series } => {
                    let top = self.top(heights(series))?;
                    self.draw_lines(&area, series, 0.0..top, &|value| short(*value))?;
                }
                Chart::LogLines { series } => self.draw_log_lines(&area, series)?,
                Chart::Boxes { samples } => self.draw_boxes(&area, samples)?,
            }
            area.present().map_err(|error| self.refuse(error))?;
        }
        Ok(text)
    }

    fn draw_bars(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        categories: &[String],
        series: &[(String, Vec<f64>)],
    ) -> Result<(), LabError> {
        if series
            .iter()
            .any(|(_, values)| values.len() != categories.len())
        {
            return Err(self.refuse("each series needs a value for each category"));
        }
        let top = self.top(series.iter().flat_map(|(_, values)| values.iter().copied()))?;
        let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
        let area = &self.draw_legend(area, &names)?;
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(60)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..categories.len() as f64, 0.0..top)
            .map_err(|error| self.refuse(error))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .x_desc(self.x_label.as_str())
            .y_desc(self.y_label.as_str())
            .y_label_formatter(&|value| short(*value))
            .draw()
            .map_err(|error| self.refuse(error))?;
        let centred = ("sans-serif", 13)
            .into_text_style(area)
            .pos(Pos::new(HPos::Center, VPos::Top));
        let names = categories.iter().enumerate().map(|(at, name)| {
            let below = (at as f64 + 0.5, 0.0);
            let is_lower = categories.len() > CATEGORIES_A_ROW && at % 2 == 1;
            let y = if is_lower { 21 } else { 6 };
            EmptyElement::at(below) + Text::new(name.clone(), (0, y), centred.clone())
        });
        chart
            .draw_series(names)
            .map_err(|error| self.refuse(error))?;
        let width = 0.8 / series.len().max(1) as f64;
        for (at, (_, values)) in series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let bars = values.iter().enumerate().map(|(group, &value)| {
                let left = group as f64 + 0.1 + at as f64 * width;
                Rectangle::new([(left, 0.0), (left + width * 0.92, value)], colour.filled())
            });
            chart
                .draw_series(bars)
                .map_err(|error| self.refuse(error))?;
        }
        Ok(())
    }

    fn draw_log_lines(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        series: &[(String, Vec<(f64, f64)>)],
    ) -> Result<(), LabError> {
        self.top(heights(series))?;
        let logarithms = |points: &Vec<(f64, f64)>| -> Vec<(f64, f64)> {
            let positive = points.iter().filter(|(_, y)| *y > 0.0);
            positive.map(|&(x, y)| (x, y.log10())).collect()
        };
        let series: Vec<(String, Vec<(f64, f64)>)> = series
            .iter()
            .map(|(name, points)| (name.clone(), logarithms(points)))
            .collect();
        let bottom = heights(&series).fold(f64::INFINITY, f64::min);
        let top = heights(&series).fold(f64::NEG_INFINITY, f64::max);
        if bottom > top {
            return Err(self.refuse("nothing is above 0"));
        }
        let decades = bottom.floor()..(top.floor() + 1.0);
        self.draw_lines(area, &series, decades, &|value| {
            format!("{:.0e}", 10_f64.powf(*value))
        })
    }

    fn draw_lines(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        series: &[(String, Vec<(f64, f64)>)],
        vertical: Range<f64>,
        y_mark: &dyn Fn(&f64) -> String,
    ) -> Result<(), LabError> {
        let across = || series.iter().flat_map(|(_, points)| points).map(|p| p.0);
        self.top(across())?;
        let left = across().fold(f64::INFINITY, f64::min);
        let right = across().fold(left, f64::max);
        let right = if right > left { right } else { left + 1.0 };
        let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
        let area = &self.draw_legend(area, &names)?;
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(left..right, vertical)
            .map_err(|error| self.refuse(error))?;
        chart
            .configure_mesh()
            .x_desc(self.x_label.as_str())
            .y_desc(self.y_label.as_str())
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&y_mark)
            .draw()
            .map_err(|error| self.refuse(error))?;
        for (at, (_, points)) in series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            chart
                .draw_series(line)
                .map_err(|error| self.refuse(error))?;
        }
        Ok(())
    }

    /// Draws the title and below it the names of all series with their colours; returns the
    /// remaining area, which the legend cannot cover.
    fn draw_legend<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        names: &[&str],
    ) -> Result<DrawingArea<SVGBackend<'a>, Shift>, LabError> {
        let area = area
            .titled(&self.title, ("sans-serif", 20))
            .map_err(|error| self.refuse(error))?;
        let rows = names.len().div_ceil(LEGEND_COLUMNS) as u32;
        let (legend, below) = area.split_vertically(rows * LEGEND_ROW_PX + 4);
        let text = ("sans-serif", 13)
            .into_text_style(&legend)
            .pos(Pos::new(HPos::Left, VPos::Center));
        let places = (0_i32..).flat_map(|row| {
            let y = row * LEGEND_ROW_PX.cast_signed() + LEGEND_ROW_PX.cast_signed() / 2;
            (0_i32..)
                .take(LEGEND_COLUMNS)
                .map(move |column| (88 + column * LEGEND_COLUMN_PX, y))
        });
        for ((&name, (x, y)), colour) in names.iter().zip(places).zip(COLOURS.iter().cycle()) {
            legend
                .draw(&Rectangle::new(
                    [(x, y - 5), (x + 12, y + 5)],
                    colour.filled(),
                ))
                .map_err(|error| self.refuse(error))?;
            legend
                .draw(&Text::new(name, (x + 18, y), text.clone()))
                .map_err(|error| self.refuse(error))?;
        }
        Ok(below)
    }

    fn draw_boxes(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        samples: &[(String, Vec<f64>)],
    ) -> Result<(), LabError> {
        if samples.iter().any(|(_, values)| values.is_empty()) {
            return Err(self.refuse("each box needs a sample"));
        }
        let top = self.top(
            samples
                .iter()
                .flat_map(|(_, values)| values.iter().copied()),
        )?;
        let names: Vec<&str> = samples.iter().map(|(name, _)| name.as_str()).collect();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(names.as_slice().into_segmented(), 0.0..top as f32)
            .map_err(|error| self.refuse(error))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc(self.x_label.as_str())
            .y_desc(self.y_label.as_str())
            .y_label_formatter(&|value| short(f64::from(*value)))
            .draw()
            .map_err(|error| self.refuse(error))?;
        for (at, ((_, values), name)) in samples.iter().zip(&names).enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let parts = BoxParts::of(values);
            let centre = |value: f32| (SegmentValue::CenterOf(name), value);
            let upright = |[from, to]: [f32; 2], width: u32, style: ShapeStyle| {
                PathElement::new(vec![centre(from), centre(to)], style.stroke_width(width))
            };
            let across = |value: f32, half: i32, width: u32| {
                let line = vec![(-half, 0), (half, 0)];
                EmptyElement::at(centre(value)) + PathElement::new(line, colour.stroke_width(width))
            };
            let [low, lower, median, upper, high] = parts.five;
            let [whiskers, filled] = [colour.to_rgba(), colour.mix(0.35)];
            chart
                .draw_series([
                    upright([low, lower], 1, whiskers.into()),
                    upright([upper, high], 1, whiskers.into()),
                    upright([lower, upper], 2 * BOX_HALF_PX as u32, filled.into()),
                ])
                .map_err(|error| self.refuse(error))?;
            chart
                .draw_series([
                    across(low, BOX_HALF_PX / 2, 1),
                    across(high, BOX_HALF_PX / 2, 1),
                    across(median, BOX_HALF_PX, 2),
                ])
                .map_err(|error| self.refuse(error))?;
            let outliers = parts.outliers.iter();
            chart
                .draw_series(outliers.map(|&value| Circle::new(centre(value), 3, colour)))
                .map_err(|error| self.refuse(error))?;
        }
        Ok(())
    }

    /// The end of an axis from 0.
    fn top(&self, values: impl Iterator<Item = f64>) -> Result<f64, LabError> {
        let mut highest: Option<f64> = None;
        for value in values {
            if !value.is_finite() || value < 0.0 {
                return Err(self.refuse(format!("{value} cannot be drawn")));
            }
            highest = Some(highest.map_or(value, |h| h.max(value)));
        }
        match highest {
            None => Err(self.refuse("there is nothing to draw")),
            Some(0.0) => Ok(1.0),
            Some(highest) => Ok(highest * HEADROOM),
        }
    }

    fn refuse(&self, why: impl Display) -> LabError {
        LabError::Plot {
            name: self.name.clone(),
            why: why.to_string(),
        }
    }
}

/// The values of all points.
fn heights(series: &[(String, Vec<(f64, f64)>)]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|(_, points)| points).map(|p| p.1)
}

/// A number for an axis: no more digits than tell marks apart.
fn short(value: f64) -> String {
    if value != 0.0 && value < 0.001 {
        return format!("{value:.1e}");
    }
    let digits = format!("{value:.3}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(chart: Chart) -> Plot {
        Plot {
            name: "p".to_owned(),
            title: "A title".to_owned(),
            x_label: "scheme".to_owned(),
            y_label: "MB/s".to_owned(),
            chart,
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn bars_have_their_heights_names_and_legend() {
        let svg = plot(Chart::Bars {
            categories: names(&["FO", "PLR"]),
            series: vec![
                ("disk".to_owned(), vec![1.0, 2.0]),
                ("model".to_owned(), vec![2.0, 4.0]),
            ],
        })
        .svg()
        .unwrap();
        for text in ["A title", "FO", "PLR", "disk", "model", "MB/s"] {
            assert!(svg.contains(text), "{text}");
        }
        let height = |colour: &str| -> Vec<f64> {
            let rects = svg
                .lines()
                .filter(|line| line.contains(colour) && line.contains("<rect"));
            let height = |line: &str| {
                line.split("height=\"")
                    .nth(1)?
                    .split('"')
                    .next()?
                    .parse()
                    .ok()
            };
            rects
                .filter_map(height)
                .filter(|h: &f64| *h > 20.0)
                .collect()
        };
        let disk = height("#1F538D");
        assert_eq!(disk.len(), 2, "{svg}");
        assert!((disk[1] / disk[0] - 2.0).abs() < 0.02, "{disk:?}");
    }

    #[test]
    fn lines_and_boxes_are_drawn() {
        let lines = plot(Chart::Lines {
            series: vec![("merge".to_owned(), vec![(0.0, 1.0), (41.0, 0.1)])],
        });
        assert!(lines.svg().unwrap().contains("<polyline"));
        let boxes = plot(Chart::Boxes {
            samples: vec![("k=12".to_owned(), vec![1.0, 2.0, 3.0, 9.0])],
        });
        let svg = boxes.svg().unwrap();
        assert!(svg.contains("k=12"));
        assert_eq!(
            svg.matches("<circle").count(),
            1,
            "9 is far from the others"
        );
    }

    #[test]
    fn marks_have_the_digits_that_tell_them_apart() {
        let marks = [0.0, 0.5, 1.0, 1.25, 0.002, 0.000_12, 1400.0].map(short);
        assert_eq!(marks, ["0", "0.5", "1", "1.25", "0.002", "1.2e-4", "1400"]);
    }

    #[test]
    fn values_of_very_different_size_are_apart_on_a_logarithmic_axis() {
        let svg = plot(Chart::LogLines {
            series: vec![
                (
                    "large".to_owned(),
                    vec![(0.0, 0.0), (1.0, 1e-3), (2.0, 2e-3)],
                ),
                ("small".to_owned(), vec![(1.0, 1e-6), (2.0, 2e-6)]),
            ],
        })
        .svg()
        .unwrap();
        for text in ["1e-6", "1e-3", "large", "small"] {
            assert!(svg.contains(text), "{text}");
        }
        let none = Chart::LogLines {
            series: vec![("zero".to_owned(), vec![(1.0, 0.0)])],
        };
        let error = plot(none).svg().unwrap_err().to_string();
        assert!(error.contains("nothing is above 0"), "{error}");
    }

    #[test]
    fn what_cannot_be_drawn_is_refused_in_words() {
        let bars = |values: Vec<f64>| Chart::Bars {
            categories: names(&["a", "b"]),
            series: vec![("s".to_owned(), values)],
        };
        for (chart, expected) in [
            (bars(vec![1.0]), "a value for each category"),
            (bars(vec![1.0, f64::NAN]), "NaN cannot be drawn"),
            (bars(vec![1.0, -1.0]), "-1 cannot be drawn"),
            (Chart::Lines { series: vec![] }, "nothing to draw"),
            (
                Chart::Boxes {
                    samples: vec![("x".to_owned(), vec![])],
                },
                "needs a sample",
            ),
        ] {
            let error = plot(chart).svg().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
