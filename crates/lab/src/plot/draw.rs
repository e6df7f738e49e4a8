//! Draws the contents of a plot into its frame.

use super::axes::{Frame, round_numbers, short};
use super::canvas::{Area, Canvas};
use super::chart::{At, Chart, Plot, Points};
use super::style;
use crate::box_parts::BoxParts;
use crate::error::LabError;
use std::fmt::Display;

/// The room above the highest value, as a factor.
const HEADROOM: f64 = 1.08;
/// The share of a group's room that its bars take.
const GROUP_SHARE: f64 = 0.8;
/// Half the width of a box of a sample.
const BOX_HALF_PX: f64 = 14.0;
/// A line has no more markers than this.
const MARKERS_MAX: usize = 12;

/// The places of values on an axis: from its start to its end, at pixels.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    from_px: f64,
    to_px: f64,
}

impl Scale {
    fn px(self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.from_px + share.clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    fn ticks(self) -> Vec<(f64, String)> {
        let numbers = round_numbers(self.low, self.high);
        numbers
            .into_iter()
            .map(|number| (self.px(number), short(number)))
            .collect()
    }

    fn upright(area: Area, low: f64, high: f64) -> Self {
        Self {
            low,
            high,
            from_px: area.bottom,
            to_px: area.top,
        }
    }
}

impl Plot {
    /// The plot as an SVG document.
    ///
    /// # Errors
    /// [`LabError::Plot`] when there is nothing to draw, a value is negative or not finite, or a
    /// series has more or fewer values than there are categories.
    pub fn svg(&self) -> Result<String, LabError> {
        match &self.chart {
            Chart::Bars { categories, series } => self.draw_bars(categories, series),
            Chart::Lines { series } => {
                let top = self.top(heights(series))?;
                self.draw_lines(series, (0.0, top), |value| value)
            }
            Chart::LogLines { series } => self.draw_log_lines(series),
            Chart::Boxes { samples } => self.draw_boxes(samples),
        }
    }

    fn draw_bars(
        &self,
        categories: &[String],
        series: &[(String, Vec<f64>)],
    ) -> Result<String, LabError> {
        let count = categories.len();
        if series.iter().any(|(_, values)| values.len() != count) {
            return Err(self.refuse("each series needs a value for each category"));
        }
        let top = self.top(series.iter().flat_map(|(_, values)| values.iter().copied()))?;
        let mut frame = Frame::new(self, &self.shown(categories));
        let area = frame.area;
        let scale = Scale::upright(area, 0.0, top);
        frame.upright(&scale.ticks());
        let slot = area.width() / count as f64;
        let width = GROUP_SHARE * slot / series.len().max(1) as f64;
        let left = |group: usize, at: usize| {
            let within = (1.0 - GROUP_SHARE) / 2.0 * slot + at as f64 * width;
            area.left + group as f64 * slot + within
        };
        for (at, (name, values)) in series.iter().enumerate() {
            for (group, &value) in values.iter().enumerate() {
                let bar = Area {
                    left: left(group, at),
                    top: scale.px(value),
                    right: left(group, at) + 0.94 * width,
                    bottom: area.bottom,
                };
                style::fill(&mut frame.canvas, at, bar);
                let middle = f64::midpoint(bar.left, bar.right);
                self.draw_interval(&mut frame.canvas, (at, group), middle, value, scale);
                for mark in self.marks.iter().filter(|mark| {
                    matches!(&mark.at, At::Bar { group: g, series: s } if *g == categories[group] && s == name)
                }) {
                    style::paper(&mut frame.canvas, (middle, scale.px(mark.value)));
                }
            }
        }
        Ok(frame.finish())
    }

    fn draw_log_lines(&self, series: &Points) -> Result<String, LabError> {
        self.top(heights(series))?;
        let positive = |points: &Vec<(f64, f64)>| -> Vec<(f64, f64)> {
            points.iter().copied().filter(|(_, y)| *y > 0.0).collect()
        };
        let series: Points = series
            .iter()
            .map(|(name, points)| (name.clone(), positive(points)))
            .collect();
        let bottom = heights(&series).fold(f64::INFINITY, f64::min);
        let top = heights(&series).fold(0.0, f64::max);
        if bottom > top {
            return Err(self.refuse("nothing is above 0"));
        }
        let decades = (bottom.log10().floor(), top.log10().floor() + 1.0);
        self.draw_lines(&series, decades, f64::log10)
    }

    /// Lines whose heights are turned into the axis's values by `height`.
    fn draw_lines(
        &self,
        series: &Points,
        (low, high): (f64, f64),
        height: fn(f64) -> f64,
    ) -> Result<String, LabError> {
        let across = || series.iter().flat_map(|(_, points)| points).map(|p| p.0);
        self.top(across())?;
        let start = across().fold(f64::INFINITY, f64::min);
        let end = across().fold(start, f64::max);
        let mut frame = Frame::new(self, &[]);
        let area = frame.area;
        let scale = Scale::upright(area, low, high);
        let is_log = height(10.0) < 10.0;
        let ticks = if is_log {
            let decades = (0..=(high - low) as u32).map(|decade| low + f64::from(decade));
            decades
                .map(|at| (scale.px(at), format!("{:.0e}", 10_f64.powf(at))))
                .collect()
        } else {
            scale.ticks()
        };
        frame.upright(&ticks);
        let level = Scale {
            low: start,
            high: if end > start { end } else { start + 1.0 },
            from_px: area.left + 12.0,
            to_px: area.right - 12.0,
        };
        frame.level(&level.ticks());
        let place = |(x, y): (f64, f64)| (level.px(x), scale.px(height(y)));
        for (at, (_, points)) in series.iter().enumerate() {
            let line: Vec<(f64, f64)> = points.iter().copied().map(place).collect();
            frame
                .canvas
                .path(std::slice::from_ref(&line), &style::stroke(at));
            for &spot in line.iter().step_by(line.len().div_ceil(MARKERS_MAX).max(1)) {
                style::marker(&mut frame.canvas, at, spot);
            }
            for (number, (&(x, _), &(_, y))) in line.iter().zip(points).enumerate() {
                if !is_log {
                    self.draw_interval(&mut frame.canvas, (at, number), x, y, scale);
                }
            }
        }
        for mark in &self.marks {
            if let At::X(x) = mark.at {
                style::paper(&mut frame.canvas, place((x, mark.value)));
            }
        }
        Ok(frame.finish())
    }

    fn draw_boxes(&self, samples: &[(String, Vec<f64>)]) -> Result<String, LabError> {
        if samples.iter().any(|(_, values)| values.is_empty()) {
            return Err(self.refuse("each box needs a sample"));
        }
        let values = samples
            .iter()
            .flat_map(|(_, values)| values.iter().copied());
        let top = self.top(values)?;
        let names: Vec<String> = samples.iter().map(|(name, _)| name.clone()).collect();
        let mut frame = Frame::new(self, &self.shown(&names));
        let area = frame.area;
        let scale = Scale::upright(area, 0.0, top);
        frame.upright(&scale.ticks());
        let width_px = area.width() / samples.len() as f64;
        for (at, (name, values)) in samples.iter().enumerate() {
            let x = area.left + width_px * (at as f64 + 0.5);
            draw_box(&mut frame.canvas, x, values, scale);
            for mark in &self.marks {
                if matches!(&mark.at, At::Box(marked) if marked == name) {
                    // Beside the box, so that both are seen.
                    let spot = (x + 1.8 * BOX_HALF_PX, scale.px(mark.value));
                    style::paper(&mut frame.canvas, spot);
                }
            }
        }
        Ok(frame.finish())
    }

    /// Names as they are shown: those of stand-ins with an asterisk.
    fn shown(&self, names: &[String]) -> Vec<String> {
        let show = |name: &String| {
            let mark = if self.stand_ins.contains(name) {
                "*"
            } else {
                ""
            };
            format!("{name}{mark}")
        };
        names.iter().map(show).collect()
    }

    fn draw_interval(
        &self,
        canvas: &mut Canvas,
        (series, at): (usize, usize),
        x: f64,
        value: f64,
        scale: Scale,
    ) {
        let half = self.half_intervals.get(series).and_then(|all| all.get(at));
        if let Some(&half) = half.filter(|half| **half > 0.0) {
            let ends = [(value - half).max(0.0), value + half];
            style::interval(canvas, x, ends.map(|end| scale.px(end)));
        }
    }

    /// The end of an axis from 0, above all values, their intervals and the paper's.
    fn top(&self, values: impl Iterator<Item = f64>) -> Result<f64, LabError> {
        let mut highest: Option<f64> = None;
        for value in values {
            if !value.is_finite() || value < 0.0 {
                return Err(self.refuse(format!("{value} cannot be drawn")));
            }
            highest = Some(highest.map_or(value, |h| h.max(value)));
        }
        let Some(highest) = highest else {
            return Err(self.refuse("there is nothing to draw"));
        };
        let marked = self.marks.iter().map(|mark| mark.value);
        let above = marked.fold(highest, f64::max);
        // A wide interval is cut at the axis's end, so that values stay visible.
        Ok(if above > 0.0 { above * HEADROOM } else { 1.0 })
    }

    fn refuse(&self, why: impl Display) -> LabError {
        LabError::Plot {
            name: self.name.clone(),
            why: why.to_string(),
        }
    }
}

fn draw_box(canvas: &mut Canvas, x: f64, values: &[f64], scale: Scale) {
    let parts = BoxParts::of(values);
    let [low, lower, median, upper, high] = parts.five.map(|value| scale.px(value));
    canvas.line((x, low), (x, lower), style::WHISKER);
    canvas.line((x, upper), (x, high), style::WHISKER);
    for y in [low, high] {
        let half = BOX_HALF_PX / 2.0;
        canvas.line((x - half, y), (x + half, y), style::WHISKER);
    }
    let area = Area {
        left: x - BOX_HALF_PX,
        top: upper,
        right: x + BOX_HALF_PX,
        bottom: lower,
    };
    canvas.rectangle(area, style::BOX);
    canvas.line(
        (x - BOX_HALF_PX, median),
        (x + BOX_HALF_PX, median),
        style::MEDIAN,
    );
    for &value in &parts.outliers {
        canvas.circle((x, scale.px(value)), 3.0, style::OUTLIER);
    }
}

/// The values of all points.
fn heights(series: &Points) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|(_, points)| points).map(|p| p.1)
}

#[cfg(test)]
mod tests;
