//! The surroundings of a plot's contents: title, legend, notes, axes with their ticks, and a light grid.

use super::canvas::{Anchor, Area, Canvas, text_width};
use super::chart::{Chart, Plot};
use super::style;

/// Width and height of every plot, in pixels.
const SIZE_PX: (u32, u32) = (960, 560);
const MARGIN_PX: f64 = 24.0;
/// The room for ticks and label of the vertical axis, and of the horizontal one.
const LEFT_PX: f64 = 84.0;
const BELOW_PX: f64 = 52.0;
const LEGEND_ROW_PX: f64 = 20.0;
const NOTE_ROW_PX: f64 = 15.0;
/// The largest size of a name that is turned.
const NAME_PX_MAX: f64 = 150.0;
const NAME_SIZE: u32 = 12;

/// The kind of a legend's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Area(usize),
    Line(usize),
    Paper,
    StandIn,
}

/// A picture with everything but its contents, and where these go.
pub(super) struct Frame {
    pub(super) canvas: Canvas,
    pub(super) area: Area,
}

impl Frame {
    /// Draws title, legend, notes and labels of a plot whose groups or boxes have these names.
    pub(super) fn new(plot: &Plot, names: &[String]) -> Self {
        let mut canvas = Canvas::new(SIZE_PX.0, SIZE_PX.1);
        let (width, height) = (f64::from(SIZE_PX.0), f64::from(SIZE_PX.1));
        canvas.text((width / 2.0, 28.0), 18, Anchor::Middle, &plot.title);
        let top = legend(&mut canvas, &keys(plot), width) + 14.0;
        let notes = lines(&plot.notes, width - 2.0 * MARGIN_PX);
        let mut bottom = height - 10.0 - NOTE_ROW_PX * notes.len() as f64;
        for (row, note) in notes.iter().enumerate() {
            let y = bottom + NOTE_ROW_PX * (row + 1) as f64;
            canvas.text((MARGIN_PX, y), 11, Anchor::Start, note);
        }
        let slot = (width - LEFT_PX - MARGIN_PX) / names.len().max(1) as f64;
        let longest = longest(names);
        let is_turned = longest > 0.94 * slot;
        let names_px = if is_turned {
            (longest * 0.64).min(NAME_PX_MAX)
        } else {
            0.0
        };
        bottom -= BELOW_PX + names_px;
        let area = Area {
            left: LEFT_PX,
            top,
            right: width - MARGIN_PX,
            bottom,
        };
        for (at, name) in names.iter().enumerate() {
            let x = area.left + slot * (at as f64 + 0.5);
            if is_turned {
                let place = (x + 4.0, bottom + 14.0);
                canvas.turned_text(place, -40, NAME_SIZE, Anchor::End, name);
            } else {
                canvas.text((x, bottom + 17.0), NAME_SIZE, Anchor::Middle, name);
            }
        }
        let below = bottom + BELOW_PX + names_px - 10.0;
        let middle = f64::midpoint(area.left, area.right);
        canvas.text((middle, below), 13, Anchor::Middle, &plot.x_label);
        let middle = f64::midpoint(area.top, area.bottom);
        canvas.turned_text((20.0, middle), -90, 13, Anchor::Middle, &plot.y_label);
        Self { canvas, area }
    }

    /// Draws the vertical axis with its ticks and grid; the contents are drawn over them.
    pub(super) fn upright(&mut self, ticks: &[(f64, String)]) {
        let Area { left, right, .. } = self.area;
        for (y, text) in ticks {
            self.canvas.line((left, *y), (right, *y), style::GRID);
            self.canvas.line((left - 4.0, *y), (left, *y), style::AXIS);
            self.canvas
                .text((left - 8.0, y + 4.0), 12, Anchor::End, text);
        }
    }

    /// Draws the ticks and grid of an axis of numbers.
    pub(super) fn level(&mut self, ticks: &[(f64, String)]) {
        let Area { top, bottom, .. } = self.area;
        for (x, text) in ticks {
            self.canvas.line((*x, top), (*x, bottom), style::GRID);
            self.canvas
                .line((*x, bottom), (*x, bottom + 4.0), style::AXIS);
            self.canvas
                .text((*x, bottom + 18.0), 12, Anchor::Middle, text);
        }
    }

    /// Draws both axes and ends the picture.
    pub(super) fn finish(mut self) -> String {
        let Area {
            left,
            top,
            right,
            bottom,
        } = self.area;
        self.canvas.line((left, top), (left, bottom), style::AXIS);
        self.canvas
            .line((left, bottom), (right, bottom), style::AXIS);
        self.canvas.finish()
    }
}

fn longest(names: &[String]) -> f64 {
    let widths = names.iter().map(|name| text_width(name, NAME_SIZE));
    widths.fold(0.0, f64::max)
}

/// Texts cut into lines of at most this width, at their words.
fn lines(texts: &[String], width: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for text in texts {
        let mut line = String::new();
        for word in text.split(' ') {
            if !line.is_empty() && text_width(&format!("{line} {word}"), 11) > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

fn keys(plot: &Plot) -> Vec<(Key, String)> {
    let mut keys: Vec<(Key, String)> = match &plot.chart {
        Chart::Bars { series, .. } => {
            let names = series.iter().map(|(name, _)| name.clone()).enumerate();
            names.map(|(at, name)| (Key::Area(at), name)).collect()
        }
        Chart::Lines { series } | Chart::LogLines { series } => {
            let names = series.iter().map(|(name, _)| name.clone()).enumerate();
            names.map(|(at, name)| (Key::Line(at), name)).collect()
        }
        Chart::Boxes { .. } => Vec::new(),
    };
    if !plot.marks.is_empty() {
        keys.push((Key::Paper, "the paper's".to_owned()));
    }
    if !plot.stand_ins.is_empty() {
        keys.push((Key::StandIn, "stand-in".to_owned()));
    }
    keys
}

/// Draws keys and names in rows below the title; gives where they end.
fn legend(canvas: &mut Canvas, keys: &[(Key, String)], width: f64) -> f64 {
    let (mut x, mut y) = (LEFT_PX, 50.0);
    for (key, name) in keys {
        let needed = 34.0 + text_width(name, 12) + 18.0;
        if x > LEFT_PX && x + needed > width - MARGIN_PX {
            x = LEFT_PX;
            y += LEGEND_ROW_PX;
        }
        let middle = (x + 13.0, y - 4.0);
        match *key {
            Key::Area(series) => {
                let area = Area {
                    left: x,
                    top: y - 11.0,
                    right: x + 26.0,
                    bottom: y + 2.0,
                };
                style::fill(canvas, series, area);
            }
            Key::Line(series) => {
                let line = vec![(x, middle.1), (x + 26.0, middle.1)];
                canvas.path(&[line], &style::stroke(series));
                style::marker(canvas, series, middle);
            }
            Key::Paper => style::paper(canvas, middle),
            Key::StandIn => canvas.text((middle.0, y + 2.0), 16, Anchor::Middle, "*"),
        }
        canvas.text((x + 32.0, y), 12, Anchor::Start, name);
        x += needed;
    }
    y
}

/// Round numbers from `low` to `high`, about six.
pub(super) fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 6.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    let step = steps.into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * decade);
    let first = (low / step - 1e-9).ceil();
    let numbers = (0..20).map(|at| (first + f64::from(at)) * step);
    numbers
        .take_while(|&number| number <= high + 1e-9 * step)
        .collect()
}

/// A number for an axis: no more digits than tell marks apart.
pub(super) fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.001 {
        return format!("{value:.1e}");
    }
    let digits = format!("{value:.3}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    if digits == "-0" { "0" } else { digits }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_the_digits_that_tell_them_apart() {
        let marks = [0.0, 0.5, 1.0, 1.25, 0.002, 0.000_12, 1400.0].map(short);
        assert_eq!(marks, ["0", "0.5", "1", "1.25", "0.002", "1.2e-4", "1400"]);
    }

    #[test]
    fn ticks_are_round() {
        let texts = |low, high| -> Vec<String> {
            round_numbers(low, high).into_iter().map(short).collect()
        };
        assert_eq!(texts(0.0, 1.08), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(texts(6.0, 10.0), ["6", "7", "8", "9", "10"]);
    }

    #[test]
    fn notes_are_cut_at_words() {
        let note = "one two three".to_owned();
        assert_eq!(lines(&[note], 45.0), ["one two", "three"]);
    }
}
