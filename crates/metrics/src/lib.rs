//! A process's metrics as text that Prometheus reads, served by HTTP.
//!
//! Figures of two kinds make a [`Page`]: counters and histograms that last, and [`Rows`] that are collected when the
//! page is asked for. This crate knows neither the cluster nor any gateway's protocol.

mod accept;
mod page;
mod process;
mod rows;
mod scrape;

pub use accept::passing;
pub use page::{Form, Page};
pub use process::add_process;
pub use rows::{Labels, Rows};
pub use scrape::{Exposed, serve_metrics};
