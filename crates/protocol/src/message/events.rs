//! Pages of the coordinator's event log.

use gabion_layout::{NodeId, StripeId};
use serde::{Deserialize, Serialize};

/// An event that the coordinator has kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Its number. Numbers grow, over restarts too, and some are left out.
    pub number: u64,
    /// Its time by the coordinator's wall clock, in milliseconds since 1970.
    pub time_ms: i64,
    /// The name of its kind, such as `failed`.
    pub kind: String,
    /// Whether it reduces redundancy or free space, or a peer was turned away.
    pub is_warning: bool,
    /// The node that it concerns.
    pub node: Option<NodeId>,
    /// The stripe that it concerns.
    pub stripe: Option<StripeId>,
    /// The event in one sentence.
    pub sentence: String,
}

/// Some of the events.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<LoggedEvent>,
    /// The number after which to ask for further ones.
    pub last: u64,
    /// Whether the limit has left some out.
    pub is_cut: bool,
}
