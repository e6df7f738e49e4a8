//! Counts the payload bytes of outgoing slices, so that the traffic can be compared with the plan's cost by
//! `gabion_plan`.

use gabion_layout::RackId;
use gabion_protocol::message::{Meter, Purpose};
use std::sync::{Mutex, PoisonError};

/// The counts of one process, shared by its connections.
///
/// A slice counts when it is handed to the socket, so its receiver finds it counted. Headers,
/// credits and messages do not count, since plans do not contain them.
#[derive(Debug, Default)]
pub struct TrafficMeter {
    sent: Mutex<Meter>,
}

impl TrafficMeter {
    /// Counts one slice.
    pub(crate) fn count(
        &self,
        from: Option<RackId>,
        to: Option<RackId>,
        purpose: Purpose,
        payload_bytes: u64,
    ) {
        // A panic cannot leave a sum of counters half changed.
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.count(from, to, purpose, payload_bytes);
    }

    /// The bytes sent so far.
    pub fn snapshot(&self) -> Meter {
        self.sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
