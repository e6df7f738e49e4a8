//! The reasons for which commits of puts were refused. A refused put is aborted, so a client whose answer was lost
//! would learn only that it is unknown. They are in memory: after a restart it does.

use crate::coordinator::core::lock;
use gabion_meta::{MetaError, PutId};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Reasons that are remembered.
const COUNT_MAX: usize = 1024;

/// The last puts of which a commit was refused, the oldest first.
#[derive(Default)]
pub(super) struct DeniedPuts {
    denied: Mutex<VecDeque<(PutId, MetaError)>>,
}

impl DeniedPuts {
    /// Notes why the commit of a put is refused, unless a reason is known.
    pub(super) fn note(&self, put: PutId, reason: &MetaError) {
        let mut denied = lock(&self.denied);
        if denied.iter().any(|(known, _)| *known == put) {
            return;
        }
        if denied.len() >= COUNT_MAX {
            denied.pop_front();
        }
        denied.push_back((put, reason.clone()));
    }

    /// The reason why the commit of a put was refused.
    pub(super) fn reason(&self, put: PutId) -> Option<MetaError> {
        let denied = lock(&self.denied);
        let known = denied.iter().find(|(known, _)| *known == put);
        known.map(|(_, reason)| reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reasons_of_the_last_puts_are_remembered() {
        let denied = DeniedPuts::default();
        let count = COUNT_MAX as u64;
        let reason = |put: u64| MetaError::FileExists(put.to_string());
        for put in 0..=count {
            denied.note(PutId(put), &reason(put));
        }
        assert_eq!(denied.reason(PutId(0)), None);
        for put in 1..=count {
            denied.note(PutId(put), &reason(0));
            assert_eq!(denied.reason(PutId(put)), Some(reason(put)));
        }
    }
}
