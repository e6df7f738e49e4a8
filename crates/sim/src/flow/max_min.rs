//! Links that flows share fairly. Rates are found by progressive filling: the link that gives each of its
//! flows the least fixes those flows' rates, what they use elsewhere is taken off, and so on.
//!
//! Rates change only when a flow begins or ends. They are found anew for all flows then, but once for
//! all changes of one instant.

use super::engine::Token;
use super::fabric::Fabric;
use super::script::{Flow, Share};

const NS_PER_S: f64 = 1e9;

#[derive(Debug)]
struct Active {
    shares: Vec<Share>,
    token: Token,
    left_bytes: f64,
    bytes_per_s: f64,
    is_fixed: bool,
}

/// A link while rates are found.
#[derive(Clone, Debug, Default)]
struct Filling {
    left_bytes_per_s: f64,
    /// Weights of the flows whose rates are not fixed yet.
    weight: f64,
    /// The flows that cross it.
    flows: Vec<u32>,
}

/// Flows under way.
#[derive(Debug)]
pub(super) struct MaxMin {
    now_ns: u64,
    /// By link.
    bytes_per_s: Vec<f64>,
    active: Vec<Active>,
    /// By link. Invariant: empty between calls.
    filling: Vec<Filling>,
    /// Links that some flow crosses, while rates are found.
    used: Vec<u32>,
    is_stale: bool,
}

impl MaxMin {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let links = (0..fabric.link_count() as u32).map(super::LinkNumber);
        Self {
            now_ns: 0,
            bytes_per_s: links.map(|link| fabric.bytes_per_s(link)).collect(),
            active: Vec::new(),
            filling: vec![Filling::default(); fabric.link_count()],
            used: Vec::new(),
            is_stale: false,
        }
    }

    pub(super) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn start(&mut self, flow: Flow, token: Token) {
        self.active.push(Active {
            shares: flow.shares,
            token,
            left_bytes: flow.bytes,
            bytes_per_s: 0.0,
            is_fixed: false,
        });
        self.is_stale = true;
    }

    /// Ends the flow that ends first, unless the limit comes before; gives its token.
    pub(super) fn take_next(&mut self, limit_ns: Option<u64>) -> Option<Token> {
        if std::mem::take(&mut self.is_stale) {
            self.fill();
        }
        let seconds = |flow: &Active| flow.left_bytes / flow.bytes_per_s;
        let times = self.active.iter().map(seconds).enumerate();
        let (first, left_s) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let at_ns = self
            .now_ns
            .saturating_add((left_s.max(0.0) * NS_PER_S).ceil() as u64);
        if limit_ns.is_some_and(|limit_ns| limit_ns < at_ns) {
            return None;
        }
        self.advance(at_ns);
        self.is_stale = true;
        Some(self.active.swap_remove(first).token)
    }

    /// Lets bytes cross until then.
    pub(super) fn advance(&mut self, to_ns: u64) {
        let passed_s = (to_ns - self.now_ns) as f64 / NS_PER_S;
        if passed_s > 0.0 {
            for flow in &mut self.active {
                flow.left_bytes -= flow.bytes_per_s * passed_s;
            }
        }
        self.now_ns = to_ns;
    }

    /// Finds all rates.
    fn fill(&mut self) {
        for (number, flow) in self.active.iter_mut().enumerate() {
            flow.is_fixed = false;
            for share in &flow.shares {
                let link = &mut self.filling[share.link.at()];
                if link.flows.is_empty() {
                    link.left_bytes_per_s = self.bytes_per_s[share.link.at()];
                    self.used.push(share.link.0);
                }
                link.weight += share.weight;
                link.flows.push(number as u32);
            }
        }
        let mut unfixed_count = self.active.len();
        while unfixed_count > 0 {
            let (tightest, rate) = self.tightest();
            let flows = std::mem::take(&mut self.filling[tightest as usize].flows);
            for &number in &flows {
                let flow = &mut self.active[number as usize];
                if std::mem::replace(&mut flow.is_fixed, true) {
                    continue;
                }
                unfixed_count -= 1;
                flow.bytes_per_s = rate;
                for share in &flow.shares {
                    let link = &mut self.filling[share.link.at()];
                    link.weight -= share.weight;
                    link.left_bytes_per_s -= share.weight * rate;
                }
            }
            // The list goes back with its memory.
            self.filling[tightest as usize].flows = flows;
            self.filling[tightest as usize].weight = 0.0;
        }
        for link in self.used.drain(..) {
            let link = &mut self.filling[link as usize];
            link.flows.clear();
            link.weight = 0.0;
        }
    }

    /// The link that gives the least to each byte of its flows, and how much that is.
    fn tightest(&mut self) -> (u32, f64) {
        let mut best = (u32::MAX, f64::INFINITY);
        let filling = &self.filling;
        let mut at = 0;
        while let Some(&link) = self.used.get(at) {
            let Filling {
                left_bytes_per_s,
                weight,
                ..
            } = filling[link as usize];
            // What is left after all flows are fixed is rounding.
            if weight < 1e-9 {
                at += 1;
                continue;
            }
            let rate = left_bytes_per_s / weight;
            if best.0 == u32::MAX || rate < best.1 {
                best = (link, rate);
            }
            at += 1;
        }
        assert!(
            best.0 != u32::MAX,
            "a flow that is not fixed crosses a link"
        );
        (best.0, best.1.max(1e-6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{LinkNumber, Rates};
    use gabion_layout::{NodeId, Topology};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// The mark of max-min fairness: no link carries more than it can, and each flow crosses a full link
    /// on which no flow is faster.
    fn check_fair(network: &MaxMin) {
        let load = |link: usize| -> f64 {
            let shares = network.active.iter().flat_map(|flow| {
                let crossing = flow
                    .shares
                    .iter()
                    .filter(move |share| share.link.at() == link);
                crossing.map(|share| share.weight * flow.bytes_per_s)
            });
            shares.sum()
        };
        let is_full = |link: usize| load(link) > network.bytes_per_s[link] * (1.0 - 1e-9);
        for link in 0..network.bytes_per_s.len() {
            assert!(load(link) <= network.bytes_per_s[link] * (1.0 + 1e-9));
        }
        for flow in &network.active {
            let holds_back = |link: LinkNumber| {
                let crosses = |other: &&Active| other.shares.iter().any(|s| s.link == link);
                let mut others = network.active.iter().filter(crosses);
                is_full(link.at())
                    && others.all(|other| other.bytes_per_s <= flow.bytes_per_s * (1.0 + 1e-9))
            };
            assert!(
                flow.shares.iter().any(|share| holds_back(share.link)),
                "{flow:?}"
            );
        }
    }

    #[test]
    fn rates_are_max_min_fair() {
        let rates = Rates {
            node_bytes_per_s: 100.0,
            rack_bytes_per_s: 130.0,
            disk_bytes_per_s: None,
        };
        let fabric = Fabric::new(&Topology::uniform(4, 3), rates);
        for seed in 0..200 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut network = MaxMin::new(&fabric);
            for token in 0..rng.random_range(1..40) {
                let (from, to) = (rng.random_range(0..12), rng.random_range(0..11));
                let to = if to < from { to } else { to + 1 };
                let mut flow = Flow::new(1000, fabric.path(NodeId(from), NodeId(to)));
                flow.shares[0].weight = f64::from(rng.random_range(1..4));
                network.start(flow, token);
            }
            network.fill();
            check_fair(&network);
        }
    }
}
