//! The changes that this client has made itself, which the coordinator tells it of, too.

use gabion_meta::Changed;
use gabion_protocol::locks::lock;
use gabion_protocol::message::Change;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Numbers of own changes that are remembered. The coordinator tells of a change soon after it was made.
const OWN_COUNT: usize = 4_096;

/// The numbers of this client's last changes: the coordinator tells of them too.
#[derive(Debug, Default)]
pub(crate) struct OwnChanges(Mutex<VecDeque<u64>>);

impl OwnChanges {
    /// A change is about to be requested.
    pub(crate) fn note(&self, number: u64) {
        let mut numbers = lock(&self.0);
        numbers.push_back(number);
        if numbers.len() > OWN_COUNT {
            numbers.pop_front();
        }
    }

    /// The changes without those of this client.
    pub(crate) fn leave_out(&self, changes: Vec<Change>) -> Vec<Changed> {
        let own = lock(&self.0);
        let is_own = |change: &Change| change.number.is_some_and(|number| own.contains(&number));
        let others = changes.into_iter().filter(|change| !is_own(change));
        others.map(|change| change.changed).collect()
    }
}
