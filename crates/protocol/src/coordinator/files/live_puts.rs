//! Puts with the time of their client's last message.

use crate::coordinator::leases::occupied::Occupation;
use crate::coordinator::options::CoordinatorOptions;
use gabion_meta::{Existing, PutRecord, PutTarget, RelativePath};

/// A put with the time of its client's last message.
#[derive(Debug)]
pub(super) struct LivePut {
    pub(super) heard_ms: u64,
    /// The stripes that it is to replace, if that was begun in this run of the coordinator. Those of
    /// an earlier run need no guard: a node that takes one of their leases ends the replacement.
    pub(super) occupation: Option<Occupation>,
    /// The name of its file, and which files it replaces there; none if it replaces no file.
    pub(super) replaces: Option<(RelativePath, Existing)>,
    checked: Checked,
}

/// Which stored stripes of a put can be decoded for certain.
#[derive(Clone, Copy, Debug)]
struct Checked {
    /// The lost stripes of the cluster by then; none for a put of an earlier run.
    loss_count: Option<u64>,
    /// Those before this offset in the file.
    upto: u64,
}

impl LivePut {
    /// One that begins now, when this many stripes were found lost.
    pub(super) fn new(
        heard_ms: u64,
        loss_count: u64,
        replaces: Option<(RelativePath, Existing)>,
    ) -> Self {
        Self {
            heard_ms,
            occupation: None,
            replaces,
            checked: Checked {
                loss_count: Some(loss_count),
                upto: u64::MAX,
            },
        }
    }

    /// One of an earlier run of the coordinator. Its stored stripes may have been lost since.
    pub(super) fn of_earlier_run(put: PutRecord, heard_ms: u64) -> Self {
        let replaces = match put.target {
            PutTarget::New { at, existing, .. } => {
                (existing != Existing::Stays).then_some((at, existing))
            }
            PutTarget::Stripes(_) => None,
        };
        Self {
            checked: Checked {
                loss_count: None,
                upto: 0,
            },
            ..Self::new(heard_ms, 0, replaces)
        }
    }

    /// Whether its client is silent for too long. A replacement blocks other writers.
    pub(super) const fn is_silent(&self, now_ms: u64, options: &CoordinatorOptions) -> bool {
        let timeout_ms = match self.occupation {
            Some(_) => options.replacement_timeout_ms,
            None => options.put_timeout_ms,
        };
        now_ms.saturating_sub(self.heard_ms) >= timeout_ms
    }

    /// Its client could not be heard for some time.
    pub(super) fn give_time(&mut self, extra_ms: u64) {
        self.heard_ms = self.heard_ms.saturating_add(extra_ms);
    }

    /// The offset from which on its stored stripes are to be looked at, since some stripes were found lost; none if
    /// there is nothing to look at.
    pub(super) fn unchecked_from(&mut self, loss_count: u64) -> Option<u64> {
        if self.checked.loss_count != Some(loss_count) {
            self.checked = Checked {
                loss_count: Some(loss_count),
                upto: 0,
            };
        }
        (self.checked.upto < u64::MAX).then_some(self.checked.upto)
    }

    /// Its stored stripes before an offset can be decoded, when this many stripes were found lost.
    pub(super) fn note_checked(&mut self, loss_count: u64, upto: u64) {
        if self.checked.loss_count == Some(loss_count) {
            self.checked.upto = self.checked.upto.max(upto);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_stripes_are_looked_at_again_after_each_loss_and_some_at_a_time() {
        let mut put = LivePut::new(0, 5, None);
        assert_eq!(put.unchecked_from(5), None);
        assert_eq!(put.unchecked_from(6), Some(0));
        put.note_checked(6, 512);
        // A repeated request goes on.
        assert_eq!(put.unchecked_from(6), Some(512));
        // A stripe was lost while the next ones were read.
        assert_eq!(put.unchecked_from(7), Some(0));
        put.note_checked(6, 1_024);
        assert_eq!(put.unchecked_from(7), Some(0));
        put.note_checked(7, u64::MAX);
        assert_eq!(put.unchecked_from(7), None);
    }
}
