//! Labels and buckets that several metrics have, and the form of tables of metrics.

use gabion_layout::{NodeId, RackId};
use gabion_metrics::Labels;
use gabion_protocol::message::Meter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// A label with a fixed value.
pub(super) type Label = (&'static str, &'static str);

/// Shortest time that is told from shorter ones, in seconds. Each bucket is twice as long as the one before.
const FIRST_BUCKET_S: f64 = 0.000_062_5;
/// The last bucket ends at 131 s.
const BUCKET_COUNT: u16 = 22;

/// A histogram of times in seconds.
pub(super) fn times() -> Histogram {
    Histogram::new(exponential_buckets(FIRST_BUCKET_S, 2.0, BUCKET_COUNT))
}

/// Seconds of a time in microseconds.
pub(super) fn seconds_of_us(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Seconds of a time in milliseconds.
pub(super) fn seconds_of_ms(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// The label of a node.
pub(super) fn of_node(node: NodeId) -> Labels {
    vec![("node", node.0.to_string())]
}

/// A row for each node.
pub(super) fn by_node<'a, T>(
    nodes: impl IntoIterator<Item = (&'a NodeId, T)>,
    value: impl Fn(T) -> f64,
) -> impl Iterator<Item = (Labels, f64)> {
    let nodes = nodes.into_iter();
    nodes.map(move |(&node, of)| (of_node(node), value(of)))
}

/// A row for each value of a label.
pub(super) fn by_label(
    label: &'static str,
    counts: impl IntoIterator<Item = (&'static str, u64)>,
) -> impl Iterator<Item = (Labels, f64)> {
    let counts = counts.into_iter();
    counts.map(move |(of, count)| (vec![(label, of.to_owned())], count as f64))
}

/// The rows of a meter, by the racks of sender and receiver and by purpose.
pub(super) fn traffic(meter: &Meter) -> Vec<(Labels, f64)> {
    let rack =
        |rack: Option<RackId>| rack.map_or_else(|| "client".to_owned(), |rack| rack.0.to_string());
    let rows = meter.bytes.iter();
    rows.map(|(&(from, to, purpose), &bytes)| {
        let labels = vec![
            ("from_rack", rack(from)),
            ("to_rack", rack(to)),
            ("purpose", purpose.name().to_owned()),
        ];
        (labels, bytes as f64)
    })
    .collect()
}

/// Adds metrics to a page: for each the method of [`gabion_metrics::Page`], its name, its unit if it has one, its
/// help, and its value or rows.
macro_rules! add {
    ($page:ident: $($form:ident $name:literal $([$unit:expr])?: $help:literal, $value:expr;)+) => {
        $($page.$form($name, $help, $crate::metrics::labels::add!(@unit $($unit)?), $value);)+
    };
    (@unit) => { None };
    (@unit $unit:expr) => { Some($unit) };
}
pub(super) use add;
