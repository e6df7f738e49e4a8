//! Logs lasting problems from time to time.

use std::time::Duration;
use tokio::time::Instant;

/// Logs a lasting problem at once, and then each minute.
#[derive(Default)]
pub(crate) struct Complaint {
    /// The last logged problem, with its time.
    told: Option<(String, Instant)>,
}

impl Complaint {
    const AGAIN_AFTER: Duration = Duration::from_mins(1);

    /// Whether to log it now: it is a new problem, or was last logged a minute ago.
    pub(crate) fn is_due(&mut self, what: &str, now: Instant) -> bool {
        let was_told = self.told.as_ref().is_some_and(|(told, at)| {
            told == what && now.saturating_duration_since(*at) < Self::AGAIN_AFTER
        });
        if !was_told {
            self.told = Some((what.to_owned(), now));
        }
        !was_told
    }
}
