//! The order and the speed of shrinking and merging reserves: the largest gain first, in idle time, within a budget
//! (thesis, section 7.2.2).

use super::policy::Review;
use gabion_layout::ChunkId;

/// Times that a merge moves the bytes of a record: it reads the record, reads what it changes, and writes that.
const MERGE_PASSES: u64 = 3;
/// The cost of shrinking beside the merge: a block of metadata.
const SHRINK_BYTES: u64 = 4096;

/// One reserve that a review wants to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// The parity chunk.
    pub chunk: ChunkId,
    /// The work to do.
    pub review: Review,
}

impl Task {
    /// Bytes that the disk moves for it.
    pub const fn cost_bytes(&self) -> u64 {
        SHRINK_BYTES.saturating_add(self.review.merge_bytes.saturating_mul(MERGE_PASSES))
    }

    /// Returns the gain for each byte moved: the cost-benefit policy of log-structured file systems, free space times
    /// age over cost. Free is the space that is given back and that the next period may use again; the age is the time
    /// since the reserve was last used, so that one in use, which will soon hold records again, comes later.
    fn gain(&self) -> f64 {
        let free_bytes = self.review.freed_bytes + self.review.merge_bytes;
        let age = f64::from(self.review.idle_periods) + 1.0;
        free_bytes as f64 * age / self.cost_bytes() as f64
    }
}

/// The remaining work after reviews, best first.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    /// Worst first, so that the best is taken off the end.
    tasks: Vec<Task>,
}

impl Agenda {
    /// Takes on what the reviews of a period found, in the place of older tasks of the same chunks.
    pub fn add(&mut self, tasks: impl IntoIterator<Item = Task>) {
        let new: Vec<Task> = tasks
            .into_iter()
            .filter(|task| !task.review.is_idle())
            .collect();
        let mut renewed: Vec<ChunkId> = new.iter().map(|task| task.chunk).collect();
        renewed.sort_unstable();
        self.tasks
            .retain(|task| renewed.binary_search(&task.chunk).is_err());
        self.tasks.extend(new);
        // Equal gains in the order of chunks, so that equal inputs give equal agendas.
        self.tasks
            .sort_by(|a, b| a.gain().total_cmp(&b.gain()).then(b.chunk.cmp(&a.chunk)));
    }

    /// The best task, if the budget pays for it.
    pub fn take(&mut self, budget: &mut Budget) -> Option<Task> {
        self.tasks.pop_if(|best| budget.pay(best.cost_bytes()))
    }

    /// Takes off what was planned for a chunk, which has grown or is gone.
    pub fn forget(&mut self, chunk: ChunkId) {
        self.tasks.retain(|task| task.chunk != chunk);
    }

    /// Returns the number of remaining tasks.
    pub const fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether nothing is left to do.
    pub const fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

/// Bytes that maintenance may move. A quiet disk's unused budget accumulates up to one second's
/// share; a task that costs more is paid off afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    bytes_per_s: u64,
    /// Negative while a large task is being paid off.
    balance_bytes: i64,
}

impl Budget {
    /// An empty budget that fills at this rate.
    pub const fn new(bytes_per_s: u64) -> Self {
        Self {
            bytes_per_s,
            balance_bytes: 0,
        }
    }

    /// Lets idle time pass. Time in which updates came does not count: call this for the rest only.
    pub fn pass(&mut self, idle_ms: u64) {
        let most = i64::try_from(self.bytes_per_s).unwrap_or(i64::MAX);
        let earned = u128::from(self.bytes_per_s) * u128::from(idle_ms) / 1000;
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.balance_bytes = self.balance_bytes.saturating_add(earned).min(most);
    }

    /// Pays for a task if anything is left to pay with.
    fn pay(&mut self, cost_bytes: u64) -> bool {
        let is_able = self.balance_bytes > 0;
        if is_able {
            let cost = i64::try_from(cost_bytes).unwrap_or(i64::MAX);
            self.balance_bytes = self.balance_bytes.saturating_sub(cost);
        }
        is_able
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{ChunkIndex, StripeId};

    fn task(stripe: u64, freed_bytes: u64, merge_bytes: u64, idle_periods: u32) -> Task {
        Task {
            chunk: ChunkId {
                stripe: StripeId(stripe),
                index: ChunkIndex(4),
            },
            review: Review {
                reserved_bytes: 0,
                freed_bytes,
                merges: merge_bytes > 0,
                merge_bytes,
                idle_periods,
            },
        }
    }

    fn order(agenda: &mut Agenda) -> Vec<u64> {
        let mut rich = Budget::new(u64::MAX / 2);
        rich.pass(1000);
        std::iter::from_fn(|| agenda.take(&mut rich))
            .map(|task| task.chunk.stripe.0)
            .collect()
    }

    #[test]
    fn most_gain_for_least_cost_comes_first() {
        let mut agenda = Agenda::default();
        agenda.add([
            task(1, 0, 1 << 20, 0),
            task(2, 1 << 20, 1 << 20, 0),
            task(3, 1 << 20, 0, 5),
            task(4, 1 << 20, 0, 9),
            task(5, 0, 0, 9),
            task(6, 1 << 20, 0, 5),
        ]);
        assert_eq!(agenda.len(), 5, "one has nothing to do");
        assert_eq!(order(&mut agenda), [4, 3, 6, 2, 1]);
    }

    #[test]
    fn a_new_review_replaces_the_old_one() {
        let mut agenda = Agenda::default();
        agenda.add([task(1, 1 << 20, 0, 0), task(2, 1 << 20, 0, 0)]);
        agenda.add([task(1, 1 << 20, 0, 7)]);
        agenda.forget(task(2, 0, 0, 0).chunk);
        assert_eq!(order(&mut agenda), [1]);
        assert!(agenda.is_empty());
    }

    #[test]
    fn the_budget_bounds_bytes_and_lets_large_tasks_through() {
        let mut agenda = Agenda::default();
        agenda.add((0..10).map(|stripe| task(stripe, 0, 1 << 20, 0)));
        let mut budget = Budget::new(10 << 20);
        assert_eq!(agenda.take(&mut budget), None, "no idle time yet");
        let mut done_count = 0;
        for _ in 0..20 {
            budget.pass(100);
            done_count += std::iter::from_fn(|| agenda.take(&mut budget)).count();
        }
        // Two seconds at 10 MiB/s, and a bit over 3 MiB each; the last is paid off afterwards.
        assert_eq!(done_count, 7);
        let mut poor = Budget::new(1);
        poor.pass(1000);
        assert!(agenda.take(&mut poor).is_some(), "a budget only delays");
        poor.pass(1000);
        assert_eq!(agenda.take(&mut poor), None);
    }
}
