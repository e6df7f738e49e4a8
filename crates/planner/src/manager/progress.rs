//! The recent rate of repairs, and the time of their end at that rate.

use std::collections::VecDeque;

/// The work of the last half minute.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// When how many bytes were done, oldest first.
    done: VecDeque<(u64, u64)>,
    /// When the work began that is under way, if any is.
    began_ms: Option<u64>,
}

/// The period of the rate, up to now.
const WINDOW_MS: u64 = 30_000;
/// A pause between two pieces of work that says nothing.
const PAUSE_MS: u64 = 2_000;

impl Progress {
    /// Notes that there is work from now on, if there was none.
    pub fn begin(&mut self, now_ms: u64) {
        self.began_ms.get_or_insert(now_ms);
    }

    /// Notes that all work is done, so that idle time does not count.
    pub fn rest(&mut self) {
        self.began_ms = None;
        self.done.clear();
    }

    /// Notes bytes that are done.
    pub fn note(&mut self, bytes: u64, now_ms: u64) {
        self.begin(now_ms);
        self.done.push_back((now_ms, bytes));
        self.forget(now_ms);
    }

    /// Bytes a second over the last half minute, or since the work began if that is later; 0 while
    /// nothing was done.
    #[must_use]
    pub fn bytes_per_s(&self, now_ms: u64) -> u64 {
        let Some(began_ms) = self.began_ms else {
            return 0;
        };
        let window_ms = now_ms.saturating_sub(began_ms).clamp(1, WINDOW_MS);
        let since_ms = now_ms.saturating_sub(window_ms);
        let recent = self.done.iter().filter(|&&(at_ms, _)| at_ms >= since_ms);
        let bytes: u64 = recent.map(|&(_, bytes)| bytes).sum();
        u64::try_from(u128::from(bytes) * 1_000 / u128::from(window_ms)).unwrap_or(u64::MAX)
    }

    /// In how many milliseconds the rest will be done at that rate; none while the rate is 0 and
    /// something is left, or nothing was done for longer than the rest should take.
    #[must_use]
    pub fn rest_ms(&self, left_bytes: u64, now_ms: u64) -> Option<u64> {
        if left_bytes == 0 {
            return Some(0);
        }
        let bytes_per_s = self.bytes_per_s(now_ms);
        let ms = (u128::from(left_bytes) * 1_000).checked_div(u128::from(bytes_per_s))?;
        let ms = u64::try_from(ms).ok()?;
        let &(last_ms, _) = self.done.back()?;
        (now_ms.saturating_sub(last_ms) <= ms.max(PAUSE_MS)).then_some(ms)
    }

    fn forget(&mut self, now_ms: u64) {
        let since_ms = now_ms.saturating_sub(WINDOW_MS);
        while self
            .done
            .front()
            .is_some_and(|&(at_ms, _)| at_ms < since_ms)
        {
            self.done.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_estimate_when_nothing_moves() {
        let mut progress = Progress::default();
        progress.begin(0);
        progress.note(30_000, 10_000);
        assert_eq!(progress.rest_ms(1_000, 11_000), Some(366));
        assert_eq!(progress.rest_ms(1_000, 12_000), Some(400));
        assert_eq!(
            progress.rest_ms(1_000, 12_500),
            None,
            "it was to be over by now"
        );
        assert_eq!(progress.rest_ms(30_000, 12_500), Some(12_500));
    }

    #[test]
    fn the_rate_is_of_the_time_with_work() {
        let mut progress = Progress::default();
        assert_eq!(progress.bytes_per_s(5_000), 0);
        assert_eq!(progress.rest_ms(10, 5_000), None);
        assert_eq!(progress.rest_ms(0, 5_000), Some(0));
        progress.begin(10_000);
        progress.note(600, 12_000);
        assert_eq!(progress.bytes_per_s(12_000), 300);
        assert_eq!(progress.rest_ms(900, 12_000), Some(3_000));
        progress.note(1_400, 20_000);
        assert_eq!(progress.bytes_per_s(20_000), 200);
        assert_eq!(
            progress.bytes_per_s(45_000),
            1_400 / 30,
            "the first is forgotten"
        );
        progress.rest();
        progress.note(100, 60_000);
        assert_eq!(progress.bytes_per_s(61_000), 100);
    }
}
