//! Labels and buckets that several metrics have.

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
