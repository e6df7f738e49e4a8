//! The distinction of series: by colour, and without colours by hatches of bars, and by dashes and markers of lines.

use super::canvas::{Area, Canvas};

/// Colours of series, in order; they differ in lightness too.
const COLOURS: [&str; 9] = [
    "#1F538D", "#F2C08A", "#529953", "#E8A0A0", "#8064A2", "#D0D0D0", "#40AAB2", "#303030",
    "#F5D5E5",
];
/// Colours of lines, which are darker than areas.
const LINE_COLOURS: [&str; 9] = [
    "#1F538D", "#C96A12", "#3B7F3C", "#BA3D3D", "#8064A2", "#777777", "#1F8890", "#141414",
    "#B84F8C",
];
const DASHES: [&str; 9] = [
    "", "7 4", "2 3", "9 3 2 3", "12 4", "4 2", "1 4", "6 6", "3 3 9 3",
];
/// Pixels between the lines of a hatch.
const HATCH_PX: f64 = 6.0;

/// The lines over an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hatch {
    None,
    Rising,
    Falling,
    Crossed,
    Level,
    Upright,
}

const HATCHES: [Hatch; 9] = [
    Hatch::None,
    Hatch::Rising,
    Hatch::None,
    Hatch::Falling,
    Hatch::None,
    Hatch::Crossed,
    Hatch::Level,
    Hatch::None,
    Hatch::Upright,
];

/// Fills an area as the bars of a series are.
pub(super) fn fill(canvas: &mut Canvas, series: usize, area: Area) {
    let style = series % COLOURS.len();
    let attributes = format!(
        "fill=\"{}\" stroke=\"#222222\" stroke-width=\"0.8\" class=\"bar\"",
        COLOURS[style]
    );
    canvas.rectangle(area, &attributes);
    canvas.path(
        &hatching(HATCHES[style], area),
        "stroke=\"#222222\" stroke-width=\"0.8\" fill=\"none\" class=\"hatch\"",
    );
}

fn hatching(hatch: Hatch, area: Area) -> Vec<Vec<(f64, f64)>> {
    let level = || {
        let rows = (1..).map(|row| area.top + f64::from(row) * HATCH_PX);
        rows.take_while(|&y| y < area.bottom)
            .map(|y| vec![(area.left, y), (area.right, y)])
            .collect()
    };
    let upright = || {
        let rows = (1..).map(|row| area.left + f64::from(row) * HATCH_PX / 1.5);
        rows.take_while(|&x| x < area.right)
            .map(|x| vec![(x, area.top), (x, area.bottom)])
            .collect()
    };
    match hatch {
        Hatch::None => Vec::new(),
        Hatch::Rising => slanted(area, true),
        Hatch::Falling => slanted(area, false),
        Hatch::Crossed => [slanted(area, true), slanted(area, false)].concat(),
        Hatch::Level => level(),
        Hatch::Upright => upright(),
    }
}

/// Lines at 45 degrees, cut at the area's edges.
fn slanted(area: Area, is_rising: bool) -> Vec<Vec<(f64, f64)>> {
    let (width, height) = (area.width(), area.height());
    let steps = (1..).map(|step| f64::from(step) * HATCH_PX);
    let offsets = steps.take_while(|&offset| offset < width + height);
    let line = |offset: f64| {
        // From the left or lower edge to the upper or right one, in distances from the lower left corner.
        let from = ((offset - height).max(0.0), offset.min(height));
        let to = (offset.min(width), (offset - width).max(0.0));
        let place = |(right, up): (f64, f64)| {
            let x = if is_rising {
                area.left + right
            } else {
                area.right - right
            };
            (x, area.top + up)
        };
        vec![place(from), place(to)]
    };
    offsets.map(line).collect()
}

/// SVG attributes of a line of a series.
pub(super) fn stroke(series: usize) -> String {
    let style = series % LINE_COLOURS.len();
    format!(
        "stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\" fill=\"none\"",
        LINE_COLOURS[style], DASHES[style]
    )
}

/// Draws the marker of a series.
pub(super) fn marker(canvas: &mut Canvas, series: usize, (x, y): (f64, f64)) {
    let style = series % LINE_COLOURS.len();
    let colour = LINE_COLOURS[style];
    let filled = format!("fill=\"{colour}\" stroke=\"{colour}\" class=\"marker\"");
    let hollow = format!("fill=\"#FFFFFF\" stroke=\"{colour}\" class=\"marker\"");
    let r = 3.6;
    let square = Area {
        left: x - r,
        top: y - r,
        right: x + r,
        bottom: y + r,
    };
    let up = vec![(x - r, y + r), (x + r, y + r), (x, y - r), (x - r, y + r)];
    let down = vec![(x - r, y - r), (x + r, y - r), (x, y + r), (x - r, y - r)];
    let cross = [
        vec![(x - r, y - r), (x + r, y + r)],
        vec![(x - r, y + r), (x + r, y - r)],
    ];
    match style {
        0 => canvas.circle((x, y), r, &filled),
        1 => canvas.rectangle(square, &filled),
        2 => canvas.path(&[up], &filled),
        3 => canvas.path(&[down], &hollow),
        4 => canvas.circle((x, y), r, &hollow),
        5 => canvas.rectangle(square, &hollow),
        6 => canvas.path(&[up], &hollow),
        7 => canvas.path(&cross, &filled),
        _ => canvas.path(&[down], &filled),
    }
}

/// Draws the mark of a value that the paper prints.
pub(super) fn paper(canvas: &mut Canvas, (x, y): (f64, f64)) {
    let r = 5.5;
    let diamond = vec![(x - r, y), (x, y - r), (x + r, y), (x, y + r), (x - r, y)];
    canvas.path(
        &[diamond],
        "fill=\"#FFFFFF\" stroke=\"#000000\" stroke-width=\"1.6\" class=\"paper\"",
    );
}

/// Draws the confidence interval of a value between two places, with a white edge that separates it from a dark bar. An
/// end that the axis does not reach has no cap.
pub(super) fn interval(canvas: &mut Canvas, x: f64, ends: [(f64, bool); 2]) {
    let caps = ends.iter().filter(|(_, is_on_axis)| *is_on_axis);
    let caps = caps.map(|&(y, _)| vec![(x - 3.0, y), (x + 3.0, y)]);
    let bar = ends.iter().map(|&(y, _)| (x, y)).collect();
    let paths: Vec<Vec<(f64, f64)>> = std::iter::once(bar).chain(caps).collect();
    canvas.path(
        &paths,
        "stroke=\"#FFFFFF\" stroke-width=\"3.2\" fill=\"none\" class=\"edge\"",
    );
    canvas.path(
        &paths,
        "stroke=\"#000000\" stroke-width=\"1.2\" fill=\"none\" class=\"error\"",
    );
}

/// SVG attributes of a box of a sample.
pub(super) const BOX: &str =
    "fill=\"#D9E3F0\" stroke=\"#1F538D\" stroke-width=\"1.2\" class=\"box\"";
/// SVG attributes of its whiskers.
pub(super) const WHISKER: &str = "stroke=\"#1F538D\" stroke-width=\"1.2\"";
/// SVG attributes of its median.
pub(super) const MEDIAN: &str = "stroke=\"#000000\" stroke-width=\"2.2\"";
/// SVG attributes of values far from the others.
pub(super) const OUTLIER: &str = "fill=\"none\" stroke=\"#1F538D\" class=\"outlier\"";
/// SVG attributes of the grid.
pub(super) const GRID: &str = "stroke=\"#E4E4E4\" stroke-width=\"0.7\" class=\"grid\"";
/// SVG attributes of axes.
pub(super) const AXIS: &str = "stroke=\"#444444\" stroke-width=\"1\"";
