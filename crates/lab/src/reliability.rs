//! The probability that a stripe loses data before its parity includes the newest updates: the analysis of CAU, section
//! 3.5, for any code, racks, replicas and time.
//!
//! Nodes and racks fail independently, each after an exponentially distributed life, and no repair takes place during
//! an append phase. Failures only add up, so the stripe is a Markov chain that never goes back, and data loss absorbs
//! it: it is lost by a time exactly if what has failed by then is too much. Each part has failed by time `t` with
//! probability `1 - exp(-t / life)`, whatever the others do, so the chain's distribution at `t` is a product over
//! racks, and the sum over all its states is computed as it stands: nothing is sampled and no rate is taken for a
//! probability.
//!
//! The paper counts a rack's failure as survived only if no node fails elsewhere; under [`Counting::Exact`] the
//! remaining chunks decide.

use std::collections::BTreeMap;

/// Hours of a year of 365 days.
const YEAR_HOURS: f64 = 365.0 * 24.0;

/// Data and parity nodes of a stripe in one rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RackShare {
    /// Data nodes.
    pub data: usize,
    /// Parity nodes.
    pub parity: usize,
}

/// The redundancy of the newest updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redundancy {
    /// Parity has followed: any failures that the code survives leave them.
    Parity,
    /// This number of interim replicas of each updated chunk, on parity nodes of other racks. In the
    /// worst case, which is assumed, every data chunk is updated, and any such number of those nodes
    /// hold all replicas of some chunk.
    Replicas(usize),
}

/// The failures that count as data loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    /// As CAU's formulas do: without rack failures by what is left, and with them only one rack's
    /// failure on its own is survived.
    Paper,
    /// By what is left, always.
    Exact,
}

/// A stripe and the lives of what it is on.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// The racks that hold the stripe.
    pub racks: Vec<RackShare>,
    /// Lost chunks that the code always survives.
    pub survived: usize,
    /// Mean life of a node, in hours.
    pub node_life_hours: f64,
    /// Mean life of a rack, in hours; a rack takes its nodes with it.
    pub rack_life_hours: f64,
}

impl Model {
    /// The setting of CAU's figure 5: RS(6,3), whose parity is in one of three racks of three nodes, a
    /// node's life of 10 years, and racks that fail with a probability of 0.0278 a year. (The paper
    /// prints a life of 36 years for that; its figures come from the probability.)
    pub fn figure_5() -> Self {
        let data = RackShare { data: 3, parity: 0 };
        let parity = RackShare { data: 0, parity: 3 };
        Self {
            racks: vec![data, data, parity],
            survived: 3,
            node_life_hours: 10.0 * YEAR_HOURS,
            rack_life_hours: life_hours(0.0278),
        }
    }

    /// The probability that data is lost within `hours`.
    ///
    /// ```
    /// use gabion_lab::reliability::{Counting, Model, Redundancy};
    ///
    /// let model = Model::figure_5();
    /// let loss = |redundancy| model.loss(redundancy, 18.0, Counting::Paper);
    /// assert_eq!(format!("{:.2e}", loss(Redundancy::Replicas(1))), "9.83e-7");
    /// assert_eq!(format!("{:.2e}", loss(Redundancy::Parity)), "2.24e-7");
    /// ```
    pub fn loss(&self, redundancy: Redundancy, hours: f64, counting: Counting) -> f64 {
        let failed = |life: f64| -f64::exp_m1(-hours / life);
        let (node, rack) = (failed(self.node_life_hours), failed(self.rack_life_hours));
        let mut states = BTreeMap::from([(Failures::default(), 1.0)]);
        for &share in &self.racks {
            let outcomes = rack_outcomes(share, node, rack);
            let mut next = BTreeMap::new();
            for (state, weight) in &states {
                for (outcome, probability) in &outcomes {
                    let state = state.with(outcome, share);
                    *next.entry(state).or_default() += weight * probability;
                }
            }
            states = next;
        }
        let lost = states
            .iter()
            .filter(|(state, _)| self.is_lost(state, redundancy, counting));
        lost.map(|(_, probability)| probability).sum()
    }

    fn is_lost(&self, failures: &Failures, redundancy: Redundancy, counting: Counting) -> bool {
        if counting == Counting::Paper && failures.rack_count > 0 {
            return failures.rack_count > 1 || failures.has_lone_node || {
                let one_rack = failures.data + failures.parity;
                one_rack > self.survived || failures.lose_updates(redundancy)
            };
        }
        failures.data + failures.parity > self.survived || failures.lose_updates(redundancy)
    }
}

/// The mean life, in hours, of what fails with a probability within a year.
pub fn life_hours(failure_probability_a_year: f64) -> f64 {
    -YEAR_HOURS / f64::ln_1p(-failure_probability_a_year)
}

/// The failures, as far as they decide whether data is lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Failures {
    data: usize,
    parity: usize,
    /// Racks that failed as a whole; those above 2 are not told apart.
    rack_count: usize,
    /// Whether a node failed in a rack that did not.
    has_lone_node: bool,
    /// Of the racks that lost a data node, the fewest parity nodes that one lost with it: replicas
    /// of its chunks are on the others.
    fewest_beside: Option<usize>,
}

/// The possible failures of one rack.
struct Outcome {
    data: usize,
    parity: usize,
    is_whole: bool,
}

impl Failures {
    fn with(&self, outcome: &Outcome, share: RackShare) -> Self {
        debug_assert!(outcome.data <= share.data && outcome.parity <= share.parity);
        let beside = (outcome.data > 0).then_some(outcome.parity);
        let fewest = [self.fewest_beside, beside].into_iter().flatten().min();
        Self {
            data: self.data + outcome.data,
            parity: self.parity + outcome.parity,
            rack_count: (self.rack_count + usize::from(outcome.is_whole)).min(2),
            has_lone_node: self.has_lone_node
                || !outcome.is_whole && outcome.data + outcome.parity > 0,
            fewest_beside: fewest,
        }
    }

    /// Whether some updated chunk is gone with all its replicas.
    fn lose_updates(&self, redundancy: Redundancy) -> bool {
        match (redundancy, self.fewest_beside) {
            (Redundancy::Replicas(replicas), Some(beside)) => self.parity - beside >= replicas,
            _ => false,
        }
    }
}

/// All that may happen to a rack, with probabilities that add up to 1.
fn rack_outcomes(share: RackShare, node: f64, rack: f64) -> Vec<(Outcome, f64)> {
    let whole = Outcome {
        data: share.data,
        parity: share.parity,
        is_whole: true,
    };
    let mut outcomes = vec![(whole, rack)];
    for data in 0..=share.data {
        for parity in 0..=share.parity {
            let probability = (1.0 - rack)
                * binomial(share.data, data, node)
                * binomial(share.parity, parity, node);
            let outcome = Outcome {
                data,
                parity,
                is_whole: false,
            };
            outcomes.push((outcome, probability));
        }
    }
    outcomes
}

/// The probability that `failed` of `count` parts have failed.
fn binomial(count: usize, failed: usize, probability: f64) -> f64 {
    let ways = (0..failed).fold(1.0, |ways, at| ways * (count - at) as f64 / (at + 1) as f64);
    ways * probability.powf(failed as f64) * (1.0 - probability).powf((count - failed) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_all_outcomes_add_up_to_1() {
        let share = RackShare { data: 4, parity: 2 };
        let outcomes = rack_outcomes(share, 0.3, 0.1);
        let sum: f64 = outcomes.iter().map(|(_, probability)| probability).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    }
}
