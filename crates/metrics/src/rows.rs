//! A metric whose values are collected when a page is made, one row for each set of labels.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// Labels of a row, in their order. An empty value is the same as no label.
pub type Labels = Vec<(&'static str, String)>;

/// The rows of one metric.
#[derive(Clone, Debug)]
pub struct Rows {
    kind: Kind,
    rows: Vec<(Labels, f64)>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Gauge,
    Counter,
}

impl Rows {
    /// Values that go up and down.
    pub fn gauge(rows: impl IntoIterator<Item = (Labels, f64)>) -> Self {
        Self::new(Kind::Gauge, rows)
    }

    /// Values that only grow while the process lives.
    pub fn counter(rows: impl IntoIterator<Item = (Labels, f64)>) -> Self {
        Self::new(Kind::Counter, rows)
    }

    fn new(kind: Kind, rows: impl IntoIterator<Item = (Labels, f64)>) -> Self {
        let rows = rows.into_iter().collect();
        Self { kind, rows }
    }
}

impl EncodeMetric for Rows {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, value) in &self.rows {
            let mut row = encoder.encode_family(labels)?;
            match self.kind {
                Kind::Gauge => row.encode_gauge(value)?,
                Kind::Counter => row.encode_counter::<NoLabelSet, _, f64>(value, None)?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        match self.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
        }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
