//! What a connection pays for its slices and long messages: counts of bytes, and the time of emulated links.

use crate::hello::PeerIdentity;
use crate::link::LinkTable;
use crate::meter::TrafficMeter;
use crate::writer::Toll;
use gabion_protocol::message::Purpose;
use std::sync::Arc;
use std::time::Duration;

/// Counts slices and makes bulk frames wait for the emulated links.
pub(crate) struct SliceToll {
    pub(crate) meter: Arc<TrafficMeter>,
    pub(crate) links: Option<Arc<LinkTable>>,
    /// This end of the connection.
    pub(crate) own: PeerIdentity,
    /// The other end.
    pub(crate) peer: PeerIdentity,
}

impl Toll for SliceToll {
    fn pay(&mut self, frame_bytes: u64, slice: Option<(Purpose, u64)>) -> Duration {
        if let Some((purpose, payload_bytes)) = slice {
            self.meter
                .count(self.own.rack, self.peer.rack, purpose, payload_bytes);
        }
        match &self.links {
            Some(links) => links.reserve(&self.own, &self.peer, frame_bytes),
            None => Duration::ZERO,
        }
    }
}
