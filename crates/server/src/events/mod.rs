//! The coordinator's event log: what happens to nodes, disks, repairs, settings and certificates, kept over restarts.
//!
//! [`EventLog`] keeps the last events in memory, and a thread writes them to files, so that no role waits for a disk.
//! There may be thousands of repairs and conversions of single stripes, so they have their own share of the log. Events
//! that peers can provoke also have their own share. So neither kind displaces other events.

mod file;
mod log;
mod orders;
mod refusals;

pub(crate) use log::{EventLog, Happening};
pub(crate) use orders::{STORE_FAILED, order_of};
pub(crate) use refusals::Refusals;

use crate::metrics::CoordinatorWork;
use crate::own_disk::OwnDisk;
use gabion_protocol::event::Event;
use gabion_protocol::measure::Measure;
use gabion_protocol::message::{EventPage, ask};
use gabion_wire::Observer;
use std::sync::Arc;

/// Passes what the coordinator's role tells to the event log, and to the metrics if there are some.
pub(crate) struct CoordinatorObserver {
    pub(crate) log: Arc<EventLog>,
    pub(crate) work: Option<Arc<CoordinatorWork>>,
    pub(crate) disk: Arc<OwnDisk>,
}

impl Observer for CoordinatorObserver {
    fn measured(&self, measure: &Measure<'_>) {
        if let Some(work) = &self.work {
            work.measured(measure);
        }
    }

    fn happened(&self, event: &Event) {
        self.log.note(Happening::of(event));
    }

    fn event_page(&self, asked: &ask::Events) -> EventPage {
        self.log.page(asked)
    }

    fn full_metadata_disk(&self) -> Option<String> {
        self.disk.full()
    }
}
