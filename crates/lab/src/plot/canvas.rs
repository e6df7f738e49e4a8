//! An SVG document under construction: texts, lines and areas at pixels from the upper left corner.

use std::fmt::Write as _;

/// The part of a text that is at its place: its start, middle or end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// An area of the picture.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn width(self) -> f64 {
        self.right - self.left
    }

    pub(super) fn height(self) -> f64 {
        self.bottom - self.top
    }
}

/// The document.
pub(super) struct Canvas {
    svg: String,
}

impl Canvas {
    /// An empty picture of this size.
    pub(super) fn new(width: u32, height: u32) -> Self {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n"
        );
        Self { svg }
    }

    /// A text of this size in pixels.
    pub(super) fn text(&mut self, (x, y): (f64, f64), size: u32, anchor: Anchor, text: &str) {
        self.turned_text((x, y), 0, size, anchor, text);
    }

    /// The same, turned by degrees around its place.
    pub(super) fn turned_text(
        &mut self,
        (x, y): (f64, f64),
        degrees: i32,
        size: u32,
        anchor: Anchor,
        text: &str,
    ) {
        let turn = if degrees == 0 {
            String::new()
        } else {
            format!(" transform=\"rotate({degrees} {x:.1} {y:.1})\"")
        };
        let text = escaped(text);
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{}\"{turn}>{text}</text>",
            anchor.name()
        ));
    }

    /// A line with SVG attributes.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), attributes: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.element(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {attributes}/>"
        ));
    }

    /// A rectangle with SVG attributes.
    pub(super) fn rectangle(&mut self, area: Area, attributes: &str) {
        let (x, y, width, height) = (area.left, area.top, area.width(), area.height());
        self.element(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {attributes}/>"
        ));
    }

    /// Straight pieces, each through its points, with SVG attributes.
    pub(super) fn path(&mut self, pieces: &[Vec<(f64, f64)>], attributes: &str) {
        let mut data = String::new();
        for piece in pieces {
            for (at, (x, y)) in piece.iter().enumerate() {
                let step = if at == 0 { 'M' } else { 'L' };
                write!(data, "{step}{x:.1} {y:.1}").expect("a string takes all");
            }
        }
        if !data.is_empty() {
            self.element(format_args!("<path d=\"{data}\" {attributes}/>"));
        }
    }

    /// A circle with SVG attributes.
    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, attributes: &str) {
        self.element(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {attributes}/>"
        ));
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.svg, "{element}").expect("a string takes all");
    }

    /// The whole document.
    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// A text as SVG has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The width of a text, about, in pixels.
pub(super) fn text_width(text: &str, size: u32) -> f64 {
    0.56 * f64::from(size) * text.chars().count() as f64
}
