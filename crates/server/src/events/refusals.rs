//! Events of refused peers and requests. A peer can provoke them at any rate, so each address, role and node causes at
//! most one event per minute, and there are at most 64 such events per minute.

use super::log::Happening;
use gabion_layout::NodeId;
use gabion_wire::{Role, Sender, WireError};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const AGAIN_AFTER: Duration = Duration::from_mins(1);
const SOURCE_COUNT_MAX: usize = 64;

/// When each source has caused an event.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    noted: Mutex<BTreeMap<Source, Instant>>,
}

/// The source of what is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Source {
    /// A peer that is not accepted.
    Address(IpAddr),
    /// Senders of a role, or one node.
    Sender(&'static str, Option<NodeId>),
}

impl Refusals {
    /// The event of a connection that was not accepted, if it is to be noted.
    pub(crate) fn event_of(&self, address: IpAddr, reason: &WireError) -> Option<Happening> {
        match reason {
            WireError::Untrusted(_)
            | WireError::WrongCluster { .. }
            | WireError::WrongVersion { .. }
            | WireError::UnclearVersions { .. }
            | WireError::WantsTls
            | WireError::NoTls
            | WireError::Full(_)
            | WireError::Corrupt(_) => {}
            // The peer has gone by itself, or was slow.
            _ => return None,
        }
        self.is_due(Source::Address(address), Instant::now())
            .then(|| Happening {
                is_warning: true,
                ..Happening::plain(
                    "turned_away",
                    format!("a peer at {address} was refused: {reason}"),
                )
            })
    }

    /// The event of a request that its sender may not send, if it is to be noted.
    pub(crate) fn event_of_request(&self, sender: &Sender) -> Option<Happening> {
        let role = match sender.role {
            Role::Client => "client",
            Role::Operator => "operator",
            Role::Node => "node",
            Role::Coordinator => "coordinator",
        };
        let source = Source::Sender(role, sender.node);
        self.is_due(source, Instant::now()).then(|| Happening {
            is_warning: true,
            node: sender.node,
            ..Happening::plain(
                "request_refused",
                format!("a request was refused: a {role} may not send it"),
            )
        })
    }

    fn is_due(&self, source: Source, now: Instant) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, at| now.saturating_duration_since(*at) < AGAIN_AFTER);
        if noted.len() >= SOURCE_COUNT_MAX || noted.contains_key(&source) {
            return false;
        }
        noted.insert(source, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_causes_one_event_a_minute_and_all_together_a_limited_number() {
        let refusals = Refusals::default();
        let begun = Instant::now();
        let address = |last: u8| Source::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        assert!(refusals.is_due(address(1), begun));
        assert!(!refusals.is_due(address(1), begun + Duration::from_secs(59)));
        assert!(refusals.is_due(address(1), begun + Duration::from_mins(1)));
        let later = begun + Duration::from_secs(200);
        let due = (0..200).filter(|&last| refusals.is_due(address(last), later));
        assert_eq!(due.count(), SOURCE_COUNT_MAX);
    }
}
