//! Events of the coordinator's log.

use gabion_protocol::message::LoggedEvent;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct EventView {
    /// Its number. Numbers grow, and some are left out.
    pub number: u64,
    /// Its time by the coordinator's clock, as RFC 3339 has it.
    pub time: String,
    /// The name of its kind, such as `failed`.
    pub kind: String,
    /// Whether it reduces redundancy or free space, or a peer was turned away.
    pub warning: bool,
    /// The node that it concerns.
    pub node: Option<u32>,
    /// The stripe that it concerns.
    pub stripe: Option<u64>,
    /// The event, in one sentence.
    pub sentence: String,
}

/// The time of an event as text.
pub fn time(event: &LoggedEvent) -> String {
    let time = Timestamp::from_millisecond(event.time_ms);
    time.map_or_else(|_| event.time_ms.to_string(), |time| format!("{time:.3}"))
}

impl EventView {
    /// A logged event.
    pub fn of(event: &LoggedEvent) -> Self {
        Self {
            number: event.number,
            time: time(event),
            kind: event.kind.clone(),
            warning: event.is_warning,
            node: event.node.map(|node| node.0),
            stripe: event.stripe.map(|stripe| stripe.0),
            sentence: event.sentence.clone(),
        }
    }
}
