//! Plots of results: bars, lines and boxes, drawn as SVG.
//!
//! An experiment defines the contents; the appearance is decided here for all of them. Series differ by hatches, dashes
//! and markers beside their colours, so that a plot can be printed in black and white. No fonts are read: the viewer
//! sets the text.

mod axes;
mod canvas;
mod chart;
mod draw;
mod style;

pub use chart::{Chart, Plot};
