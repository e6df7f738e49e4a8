//! The form that a segment should have, and when it may change without a request: the pool's rule and
//! users' requests decide. Pure functions of times, which are milliseconds of the coordinators' running
//! time.

use gabion_layout::EncodeAfter;
use gabion_meta::RequestedForm;

/// Checks of a segment within the idle time after which it is encoded: an update is noticed at the next
/// check.
const LOOKS_WHILE_IDLE: u64 = 8;

/// A form of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Replicated,
    Encoded,
}

/// The facts about a segment that decide its form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    /// Whether its chunks are as large as the pool's.
    pub(super) is_full: bool,
    pub(super) created_ms: u64,
    /// The time since which all of it has not changed, as far as known.
    pub(super) quiet_since_ms: Option<u64>,
    pub(super) now_ms: u64,
}

/// The form that a segment should have; none if it may keep its form.
pub(super) fn wanted(
    after: EncodeAfter,
    requested: Option<RequestedForm>,
    condition: Condition,
) -> Option<Form> {
    let since_ms = match requested {
        Some(RequestedForm::Encoded) => return Some(Form::Encoded),
        Some(RequestedForm::Replicated { since_ms }) => since_ms,
        None => condition.created_ms,
    };
    let is_old = |since_ms: u64, seconds: u64| {
        condition.now_ms.saturating_sub(since_ms) >= seconds.saturating_mul(1000)
    };
    let is_due = match after {
        EncodeAfter::Age(seconds) => is_old(since_ms, seconds),
        EncodeAfter::Idle(seconds) => {
            let is_quiet = condition
                .quiet_since_ms
                .is_some_and(|since_ms| is_old(since_ms, seconds));
            is_quiet && is_old(since_ms, seconds)
        }
        EncodeAfter::Full => requested.is_none() && condition.is_full,
        EncodeAfter::Asked => false,
    };
    match requested {
        _ if is_due => Some(Form::Encoded),
        Some(_) => Some(Form::Replicated),
        None => None,
    }
}

/// The next check of replicated blocks that are not to be encoded yet. None if only a request of a user can
/// cause their encoding: such a request is noted.
pub(super) fn next_look_ms(
    after: EncodeAfter,
    requested: Option<RequestedForm>,
    condition: Condition,
) -> Option<u64> {
    let since_ms = match requested {
        Some(RequestedForm::Replicated { since_ms }) => since_ms,
        Some(RequestedForm::Encoded) | None => condition.created_ms,
    };
    match after {
        EncodeAfter::Age(seconds) => Some(since_ms.saturating_add(seconds.saturating_mul(1000))),
        EncodeAfter::Idle(seconds) => {
            let idle_ms = seconds.saturating_mul(1000);
            let quiet_since_ms = condition.quiet_since_ms.unwrap_or(condition.now_ms);
            let due_ms = quiet_since_ms.max(since_ms).saturating_add(idle_ms);
            Some(due_ms.min(condition.now_ms + idle_ms / LOOKS_WHILE_IDLE))
        }
        EncodeAfter::Full | EncodeAfter::Asked => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 s after the file was put, with no write for 30 s.
    fn at_100(is_full: bool) -> Condition {
        Condition {
            is_full,
            created_ms: 0,
            quiet_since_ms: Some(70_000),
            now_ms: 100_000,
        }
    }

    #[test]
    fn pools_say_when_and_users_overrule_them() {
        use EncodeAfter::{Age, Asked, Full, Idle};
        use Form::{Encoded, Replicated};
        let hot = |since_ms| Some(RequestedForm::Replicated { since_ms });
        for (after, requested, is_full, expected) in [
            (Age(100), None, true, Some(Encoded)),
            (Age(101), None, true, None),
            (Age(60), hot(39_000), true, Some(Encoded)),
            (Age(60), hot(41_000), true, Some(Replicated)),
            (Idle(30), None, false, Some(Encoded)),
            (Idle(31), None, false, None),
            (Idle(10), hot(95_000), true, Some(Replicated)),
            (Full, None, true, Some(Encoded)),
            (Full, None, false, None),
            (Full, hot(0), true, Some(Replicated)),
            (Asked, None, true, None),
            (Asked, Some(RequestedForm::Encoded), false, Some(Encoded)),
        ] {
            let found = wanted(after, requested, at_100(is_full));
            assert_eq!(found, expected, "{after}, {requested:?}, full: {is_full}");
        }
    }

    #[test]
    fn blocks_of_unknown_last_write_are_not_idle() {
        let condition = Condition {
            quiet_since_ms: None,
            ..at_100(true)
        };
        assert_eq!(wanted(EncodeAfter::Idle(1), None, condition), None);
    }

    #[test]
    fn blocks_are_looked_at_again_when_they_may_be_due_and_not_before() {
        use EncodeAfter::{Age, Asked, Full, Idle};
        let hot = |since_ms| Some(RequestedForm::Replicated { since_ms });
        for (after, requested, expected) in [
            (Age(101), None, Some(101_000)),
            (Age(60), hot(41_000), Some(101_000)),
            // Soon due if it stays as it is; otherwise often enough to notice that it does not.
            (Idle(32), None, Some(102_000)),
            (Idle(80), None, Some(110_000)),
            (Idle(16), hot(99_000), Some(102_000)),
            (Full, None, None),
            (Asked, None, None),
        ] {
            let found = next_look_ms(after, requested, at_100(false));
            assert_eq!(found, expected, "{after}, {requested:?}");
        }
    }

    /// A scheduler that checks only at the returned times finds every due segment, and at once if age alone
    /// decides.
    #[test]
    fn nothing_becomes_due_unnoticed() {
        for after in [EncodeAfter::Age(40), EncodeAfter::Idle(40)] {
            let condition = Condition {
                quiet_since_ms: Some(3_000),
                ..at_100(true)
            };
            let mut now_ms = 3_000;
            while wanted(
                after,
                None,
                Condition {
                    now_ms,
                    ..condition
                },
            )
            .is_none()
            {
                let next_ms = next_look_ms(
                    after,
                    None,
                    Condition {
                        now_ms,
                        ..condition
                    },
                );
                let next_ms = next_ms.expect("it will be due");
                assert!(next_ms > now_ms, "{after} at {now_ms}");
                now_ms = next_ms;
            }
            let due_ms = 40_000
                + if after == EncodeAfter::Age(40) {
                    0
                } else {
                    3_000
                };
            assert_eq!(now_ms, due_ms, "{after}");
        }
    }
}
