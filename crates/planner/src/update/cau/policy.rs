//! The time of CAU's commits: after `u_s` stripes (section 5.1), when the log is full, when the oldest update is
//! old (section 3.1), or on request. A pure rule: the caller that applies updates keeps the phase's
//! figures and asks before each update.

use gabion_layout::AppendSpec;

/// Limits of an append phase; one that is none never ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommitPolicy {
    /// The most stripes with appended updates, `u_s`.
    pub stripes_max: Option<u64>,
    /// The most bytes that the append logs may hold.
    pub log_bytes_max: Option<u64>,
    /// The longest that an update may wait for its parity, in the caller's ticks.
    pub age_max: Option<u64>,
}

impl CommitPolicy {
    /// The limits of a pool, with milliseconds for ticks.
    pub const fn of(spec: &AppendSpec) -> Self {
        Self {
            stripes_max: Some(spec.stripes_max),
            log_bytes_max: Some(spec.log_bytes_max),
            age_max: Some(spec.age_max_s.saturating_mul(1000)),
        }
    }
}

/// The cause of the end of an append phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trigger {
    /// A commit was requested.
    Demand,
    /// One more stripe would be too many.
    Stripes,
    /// The logs would grow too large.
    LogBytes,
    /// The oldest update has waited long enough.
    Age,
}

/// The appended updates since the last commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AppendPhase {
    /// Stripes with appended updates.
    pub stripe_count: u64,
    /// Bytes in append logs.
    pub log_bytes: u64,
    /// When the oldest of the updates came, in the caller's ticks; none when there is none.
    pub oldest_at: Option<u64>,
    /// Whether a commit has been asked for.
    pub is_demanded: bool,
}

impl AppendPhase {
    /// Takes note of an appended update.
    pub fn note(&mut self, is_new_stripe: bool, bytes: u64, now: u64) {
        self.stripe_count += u64::from(is_new_stripe);
        self.log_bytes += bytes;
        self.oldest_at.get_or_insert(now);
    }
}

impl CommitPolicy {
    /// Whether to commit before an update of `bytes` more is appended at `now`, to a stripe that has
    /// none yet or to one that has. Nothing that is not there is ever committed.
    ///
    /// ```
    /// use gabion_planner::update::cau::{AppendPhase, CommitPolicy, Trigger};
    ///
    /// let policy = CommitPolicy { stripes_max: Some(2), ..CommitPolicy::default() };
    /// let mut phase = AppendPhase::default();
    /// phase.note(true, 4096, 10);
    /// phase.note(true, 4096, 20);
    /// assert_eq!(policy.before(&phase, false, 4096, 30), None);
    /// assert_eq!(policy.before(&phase, true, 4096, 30), Some(Trigger::Stripes));
    /// ```
    pub fn before(
        &self,
        phase: &AppendPhase,
        is_new_stripe: bool,
        bytes: u64,
        now: u64,
    ) -> Option<Trigger> {
        let exceeds = |value: u64, limit: Option<u64>| limit.is_some_and(|limit| value > limit);
        let stripes = phase.stripe_count + u64::from(is_new_stripe);
        let due = self.at(phase, now);
        match due {
            _ if phase.stripe_count == 0 => None,
            Some(_) => due,
            None if exceeds(stripes, self.stripes_max) => Some(Trigger::Stripes),
            None if exceeds(phase.log_bytes.saturating_add(bytes), self.log_bytes_max) => {
                Some(Trigger::LogBytes)
            }
            None => None,
        }
    }

    /// Whether to commit at `now` although no update comes.
    pub fn at(&self, phase: &AppendPhase, now: u64) -> Option<Trigger> {
        let oldest_at = phase.oldest_at?;
        let age = now.saturating_sub(oldest_at);
        if phase.is_demanded {
            Some(Trigger::Demand)
        } else if self.age_max.is_some_and(|limit| age >= limit) {
            Some(Trigger::Age)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase() -> AppendPhase {
        let mut phase = AppendPhase::default();
        phase.note(true, 100, 1000);
        phase.note(false, 100, 2000);
        phase
    }

    #[test]
    fn without_limits_only_demand_commits() {
        let (policy, mut phase) = (CommitPolicy::default(), phase());
        assert_eq!(policy.before(&phase, true, u64::MAX, u64::MAX), None);
        phase.is_demanded = true;
        assert_eq!(policy.before(&phase, false, 1, 2000), Some(Trigger::Demand));
        assert_eq!(policy.at(&phase, 2000), Some(Trigger::Demand));
    }

    #[test]
    fn logs_fill_up_to_the_byte_and_updates_age_from_the_oldest() {
        let policy = CommitPolicy {
            log_bytes_max: Some(250),
            age_max: Some(5000),
            ..CommitPolicy::default()
        };
        assert_eq!(policy.before(&phase(), false, 50, 3000), None);
        assert_eq!(
            policy.before(&phase(), false, 51, 3000),
            Some(Trigger::LogBytes)
        );
        assert_eq!(policy.at(&phase(), 5999), None);
        assert_eq!(policy.at(&phase(), 6000), Some(Trigger::Age));
    }

    #[test]
    fn an_empty_phase_is_never_committed() {
        let policy = CommitPolicy {
            stripes_max: Some(0),
            log_bytes_max: Some(0),
            age_max: Some(0),
        };
        let empty = AppendPhase {
            is_demanded: true,
            ..AppendPhase::default()
        };
        assert_eq!(policy.before(&empty, true, 1, 0), None);
        assert_eq!(policy.at(&empty, 0), None);
    }
}
