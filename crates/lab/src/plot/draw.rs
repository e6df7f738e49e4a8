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
/// The share of a bar's place that it fills.
const BAR_SHARE: f64 = 0.94;
/// Half the width of a box of a sample.
const BOX_HALF_PX: f64 = 14.0;
/// A line has no more markers than this; its intervals are at its markers.
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

    fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
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
            let gap = (1.0 - BAR_SHARE) / 2.0 * width;
            let within = (1.0 - GROUP_SHARE) / 2.0 * slot + at as f64 * width + gap;
            area.left + group as f64 * slot + within
        };
        for (at, (name, values)) in series.iter().enumerate() {
            for (group, &value) in values.iter().enumerate() {
                let bar = Area {
                    left: left(group, at),
                    top: scale.px(value),
                    right: left(group, at) + BAR_SHARE * width,
                    bottom: area.bottom,
                };
                style::fill(&mut frame.canvas, at, bar);
                let middle = f64::midpoint(bar.left, bar.right);
                let ends = self.interval((at, group), value);
                draw_interval(&mut frame.canvas, middle, ends, scale);
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
        let marked = self.marks.iter().map(|mark| mark.value);
        let positive = || {
            let all = heights(series).chain(marked.clone());
            all.filter(|&height| height > 0.0)
        };
        let bottom = positive().fold(f64::INFINITY, f64::min);
        let top = positive().fold(0.0, f64::max);
        if heights(series).all(|height| height <= 0.0) {
            return Err(self.refuse("nothing is above 0"));
        }
        let decades = (bottom.log10().floor(), top.log10().floor() + 1.0);
        self.draw_lines(series, decades, f64::log10)
    }

    /// Lines whose heights are turned into the axis's values by `height`; points without a value there are left out.
    fn draw_lines(
        &self,
        series: &Points,
        (low, high): (f64, f64),
        height: fn(f64) -> f64,
    ) -> Result<String, LabError> {
        let is_log = height(10.0) < 10.0;
        let is_shown = |&(_, y): &(f64, f64)| !is_log || y > 0.0;
        let all = series.iter().flat_map(|(_, points)| points);
        let across = || all.clone().copied().filter(is_shown).map(|p| p.0);
        self.top(across())?;
        let start = across().fold(f64::INFINITY, f64::min);
        let end = across().fold(start, f64::max);
        let mut frame = Frame::new(self, &[]);
        let area = frame.area;
        let scale = Scale::upright(area, low, high);
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
            // Intervals are numbered as all points are, shown or not.
            let shown = || {
                points
                    .iter()
                    .copied()
                    .enumerate()
                    .filter(|(_, p)| is_shown(p))
            };
            let line: Vec<(f64, f64)> = shown().map(|(_, point)| place(point)).collect();
            let step = line.len().div_ceil(MARKERS_MAX).max(1);
            let canvas = &mut frame.canvas;
            canvas.path(&[line], &style::stroke(at));
            // Lines of many points begin with different ones, so that their intervals are not on top of each other.
            for (number, (x, y)) in shown().skip(at % step).step_by(step) {
                style::marker(canvas, at, place((x, y)));
                let ends = self.interval((at, number), y);
                draw_interval(
                    canvas,
                    level.px(x),
                    ends.map(|ends| ends.map(height)),
                    scale,
                );
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

    /// The ends of the interval of a value, if it has one.
    fn interval(&self, (series, at): (usize, usize), value: f64) -> Option<[f64; 2]> {
        let half = *self.half_intervals.get(series)?.get(at)?;
        (half > 0.0).then_some([(value - half).max(0.0), value + half])
    }

    /// The end of an axis from 0, above all values and the paper's.
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

/// Draws the interval between two ends at a place across. On a logarithmic axis an end at 0 is below the axis.
fn draw_interval(canvas: &mut Canvas, x: f64, ends: Option<[f64; 2]>, scale: Scale) {
    if let Some(ends) = ends {
        let places = ends.map(|end| (scale.px(end), scale.contains(end)));
        style::interval(canvas, x, places);
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
