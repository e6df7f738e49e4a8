//! Measures a node's requests: for its metrics, for the heartbeat's latencies and counts.

use crate::locks::lock;
use crate::measure::{Answered, Measure};
use crate::message::{NodeHealth, NodeRequest, Purpose, Refusal, Served};
use crate::ports::Ports;
use std::sync::Mutex;

/// A request that is being served.
pub(super) struct Measuring {
    request: &'static str,
    purpose: Option<Purpose>,
    is_update: bool,
    began_ms: u64,
    began_us: u64,
}

impl Measuring {
    /// The request has arrived.
    pub(super) fn begin(request: &NodeRequest, ports: &dyn Ports) -> Self {
        let purpose = match request {
            NodeRequest::RunPart(part) => Some(part.purpose),
            _ => None,
        };
        Self {
            request: request.name(),
            purpose,
            is_update: matches!(request, NodeRequest::Update(_)),
            began_ms: ports.now_ms(),
            began_us: ports.now_us(),
        }
    }

    /// The request is answered.
    pub(super) fn end(
        self,
        ports: &dyn Ports,
        (health, served): (&Mutex<NodeHealth>, &Mutex<Served>),
        refusal: Option<&Refusal>,
    ) {
        // A client's other requests wait for memory only.
        let is_read = self.purpose == Some(Purpose::Client);
        if self.is_update || is_read {
            let latency_ms = ports.now_ms().saturating_sub(self.began_ms);
            lock(health).foreground.note(latency_ms);
            if refusal.is_none() {
                let mut served = lock(served);
                served.update_count += u64::from(self.is_update);
                served.read_count += u64::from(is_read);
            }
        }
        ports.measure(&Measure::Answered(Answered {
            request: self.request,
            purpose: self.purpose,
            refusal: refusal.map(Refusal::name),
            took_us: ports.now_us().saturating_sub(self.began_us),
        }));
    }
}
