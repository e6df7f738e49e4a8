//! The lifetime of a stripe with repairs: its mean time to data loss (MTTDL).
//!
//! A Markov chain. A rack of the stripe has some failed nodes, or has failed as a whole with its nodes; nodes and racks
//! fail after exponentially distributed lives and are repaired after exponentially distributed times, all of them at
//! once. Racks with the same number of chunks are not distinguished. Data is lost when more chunks are failed than the
//! code survives, and that is final.
//!
//! Times between loss and repair differ by ten orders of magnitude and more, so the chain is solved by
//! eliminating one state after another without any subtraction, which loses no digits.
//!
//! [`crate::reliability`] is about hours in which nothing is repaired, and about updates.

use std::collections::BTreeMap;

/// A stripe, with the lifetimes and repair times of its parts, in hours.
#[derive(Clone, PartialEq, Debug)]
pub struct StripeLife {
    /// Chunks in each of the stripe's racks.
    pub racks: Vec<usize>,
    /// Lost chunks that are always survived.
    pub survived: usize,
    /// Mean life of a node.
    pub node_life_hours: f64,
    /// Mean life of a rack.
    pub rack_life_hours: f64,
    /// Mean time until a failed node's chunk is there again.
    pub node_repair_hours: f64,
    /// Mean time until the chunks of a failed rack are there again.
    pub rack_repair_hours: f64,
}

/// The state of one rack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rack {
    chunk_count: usize,
    failed_count: usize,
    is_down: bool,
}

impl Rack {
    fn lost_count(self) -> usize {
        if self.is_down {
            self.chunk_count
        } else {
            self.failed_count
        }
    }
}

/// All racks, in order, so that states that differ only in which of equal racks it is are one.
type State = Vec<Rack>;

/// Rates by state number, and the rate of data loss last.
struct Chain {
    /// By state.
    to: Vec<BTreeMap<usize, f64>>,
    /// By state.
    loss: Vec<f64>,
}

impl StripeLife {
    /// The mean time to data loss in hours, of a stripe that is whole.
    ///
    /// ```
    /// use gabion_lab::mttdl::StripeLife;
    ///
    /// // Two copies, no racks to speak of: (3 a + b) / (2 a^2) with failures at a and repairs at b.
    /// let life = StripeLife {
    ///     racks: vec![1, 1],
    ///     survived: 1,
    ///     node_life_hours: 1000.0,
    ///     rack_life_hours: f64::INFINITY,
    ///     node_repair_hours: 10.0,
    ///     rack_repair_hours: 10.0,
    /// };
    /// let (a, b) = (1e-3, 0.1);
    /// let expected: f64 = (3.0 * a + b) / (2.0 * a * a);
    /// assert!((life.mttdl_hours() / expected - 1.0).abs() < 1e-12);
    /// ```
    pub fn mttdl_hours(&self) -> f64 {
        let Chain { mut to, mut loss } = self.chain();
        // By state, the mean time in it, and later in it and in states that are eliminated, times
        // the rate at which it is left.
        let mut time = vec![1.0; to.len()];
        for last in (1..to.len()).rev() {
            let leaving: f64 = to[last].values().sum::<f64>() + loss[last];
            let from_last = std::mem::take(&mut to[last]);
            for state in 0..last {
                let Some(rate) = to[state].remove(&last) else {
                    continue;
                };
                let part = rate / leaving;
                for (&next, &onward) in &from_last {
                    if next != state {
                        *to[state].entry(next).or_default() += part * onward;
                    }
                }
                loss[state] += part * loss[last];
                time[state] += part * time[last];
            }
        }
        time[0] / loss[0]
    }

    /// All states that can be reached, the whole stripe first.
    fn chain(&self) -> Chain {
        let rack = |&chunk_count: &usize| Rack {
            chunk_count,
            failed_count: 0,
            is_down: false,
        };
        let mut whole: State = self.racks.iter().map(rack).collect();
        whole.sort_unstable();
        let mut numbers = BTreeMap::from([(whole.clone(), 0)]);
        let mut states = vec![whole];
        let mut chain = Chain {
            to: Vec::new(),
            loss: Vec::new(),
        };
        while let Some(state) = states.get(chain.to.len()).cloned() {
            let (mut to, mut loss) = (BTreeMap::new(), 0.0);
            for (next, rate) in self.changes(&state) {
                if next.iter().map(|rack| rack.lost_count()).sum::<usize>() > self.survived {
                    loss += rate;
                    continue;
                }
                let number = *numbers.entry(next.clone()).or_insert_with(|| {
                    states.push(next);
                    states.len() - 1
                });
                *to.entry(number).or_default() += rate;
            }
            chain.to.push(to);
            chain.loss.push(loss);
        }
        chain
    }

    /// The next events, with rates.
    fn changes(&self, state: &State) -> Vec<(State, f64)> {
        let mut changes = Vec::new();
        for (at, &rack) in state.iter().enumerate() {
            let mut push = |failed_count, is_down, rate: f64| {
                if rate > 0.0 {
                    let mut next = state.clone();
                    next[at] = Rack {
                        failed_count,
                        is_down,
                        ..rack
                    };
                    next.sort_unstable();
                    changes.push((next, rate));
                }
            };
            if rack.is_down {
                push(0, false, 1.0 / self.rack_repair_hours);
                continue;
            }
            let (failed, up) = (rack.failed_count, rack.chunk_count - rack.failed_count);
            push(0, true, 1.0 / self.rack_life_hours);
            push(failed + 1, false, up as f64 / self.node_life_hours);
            if failed > 0 {
                push(failed - 1, false, failed as f64 / self.node_repair_hours);
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(racks: &[usize], survived: usize) -> StripeLife {
        StripeLife {
            racks: racks.to_vec(),
            survived,
            node_life_hours: 10.0,
            rack_life_hours: 40.0,
            node_repair_hours: 3.0,
            rack_repair_hours: 5.0,
        }
    }

    /// One chunk that nothing protects lives until its node or its rack fails.
    #[test]
    fn a_lone_chunk_lives_as_long_as_what_it_is_on() {
        let expected = 1.0 / (1.0 / 10.0 + 1.0 / 40.0);
        assert!((life(&[1], 0).mttdl_hours() - expected).abs() < 1e-12);
    }

    /// The same states without merging equal racks, solved by sweeps that converge to the answer.
    #[test]
    fn elimination_agrees_with_iteration() {
        for (racks, survived) in [(vec![2, 1, 1], 2), (vec![2, 2], 2), (vec![3, 2, 1], 3)] {
            let life = life(&racks, survived);
            let chain = life.chain();
            let mut times = vec![0.0_f64; chain.to.len()];
            for _ in 0..20_000 {
                for state in 0..times.len() {
                    let onward: f64 = chain.to[state]
                        .iter()
                        .map(|(&s, rate)| rate * times[s])
                        .sum();
                    let leaving = chain.to[state].values().sum::<f64>() + chain.loss[state];
                    times[state] = (1.0 + onward) / leaving;
                }
            }
            let found = life.mttdl_hours();
            assert!(
                (found / times[0] - 1.0).abs() < 1e-9,
                "{racks:?}: {found} {}",
                times[0]
            );
        }
    }

    #[test]
    fn more_parity_and_more_racks_live_longer() {
        let hours = |racks: &[usize], survived| life(racks, survived).mttdl_hours();
        assert!(hours(&[1, 1, 1], 1) < hours(&[1, 1, 1, 1], 2));
        assert!(hours(&[2, 2], 2) < hours(&[2, 1, 1], 2));
        assert!(hours(&[2, 1, 1], 2) < hours(&[1, 1, 1, 1], 2));
    }
}
