//! Links that flows share fairly: each flow is as fast as it can be without slowing down one that is
//! slower. Rates are found by progressive filling: the link that gives each of its flows the least fixes
//! those flows' rates, what they use elsewhere is taken off, and so on.
//!
//! Rates change only when flows begin or end, and then not all of them. Filling goes upwards, so whatever
//! is fixed below the slowest flow that begins or ends is fixed as it was; of the others, only those are
//! found anew that share links with it, directly or by way of others of them. A flow's end is reckoned
//! when its rate changes and waits in a heap; if the rate changes again the entry is passed over.

use super::engine::Token;
use super::fabric::{Fabric, LinkNumber};
use super::script::{Flow, Share};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NS_PER_S: f64 = 1e9;
/// Rates that differ by less are called equal, so that rounding keeps no flow from being found anew.
const ROUNDING: f64 = 1e-12;
/// A link with less to spare is full.
const FULL_SHARE: f64 = 1.0 - 1e-6;

#[derive(Debug)]
struct Active {
    shares: Vec<Share>,
    token: Token,
    /// Which flow it is, of all there ever were; `u64::MAX` when it has ended.
    number: u64,
    /// Infinite until it is found for the first time.
    bytes_per_s: f64,
    /// Bytes that were left when the rate was found.
    left_bytes: f64,
    found_ns: u64,
    ends_ns: u64,
    /// The last filling that found its rate.
    filling: u64,
    /// The rate by the present filling; none until it is fixed.
    next_bytes_per_s: Option<f64>,
}

/// A flow on a link.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    flow: u32,
    weight: f64,
}

#[derive(Debug)]
struct Link {
    bytes_per_s: f64,
    crossings: Vec<Crossing>,
    /// The last filling that it took part in. What follows is of that filling.
    filling: u64,
    left_bytes_per_s: f64,
    /// Weights of the flows whose rates are not fixed yet, and how many they are.
    weight: f64,
    unfixed_count: u32,
}

impl Link {
    /// Has it take part in a filling; false if it did already.
    fn joins(&mut self, filling: u64) -> bool {
        std::mem::replace(&mut self.filling, filling) != filling
    }

    /// What it gives to each byte of its flows that are not fixed yet.
    fn level(&self) -> f64 {
        self.left_bytes_per_s / self.weight
    }

    fn fix(&mut self, weight: f64, bytes_per_s: f64) {
        self.left_bytes_per_s -= weight * bytes_per_s;
        self.weight -= weight;
        self.unfixed_count -= 1;
    }
}

/// Numbers that are not negative are in the order of their bits.
fn order(level: f64) -> u64 {
    level.max(0.0).to_bits()
}

/// Flows under way.
#[derive(Debug)]
pub(super) struct MaxMin {
    now_ns: u64,
    links: Vec<Link>,
    flows: Vec<Active>,
    /// Places in `flows` of those that have ended.
    free: Vec<u32>,
    begun_count: u64,
    /// When flows end, by number and place. Those that do not say what the flow says are out of date.
    ends: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Flows that have begun since rates were found, and links of those that have begun or ended.
    begun: Vec<u32>,
    changed_links: Vec<LinkNumber>,
    /// The slowest that has ended since.
    slowest_ended_bytes_per_s: f64,
    /// The number of the present filling.
    filling: u64,
    /// Links and flows of the present filling, and links by level. Kept for their memory.
    filled_links: Vec<LinkNumber>,
    filled_flows: Vec<u32>,
    levels: BinaryHeap<Reverse<(u64, u32)>>,
}

impl MaxMin {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let links = (0..fabric.link_count() as u32).map(|number| Link {
            bytes_per_s: fabric.bytes_per_s(LinkNumber(number)),
            crossings: Vec::new(),
            filling: 0,
            left_bytes_per_s: 0.0,
            weight: 0.0,
            unfixed_count: 0,
        });
        Self {
            now_ns: 0,
            links: links.collect(),
            flows: Vec::new(),
            free: Vec::new(),
            begun_count: 0,
            ends: BinaryHeap::new(),
            begun: Vec::new(),
            changed_links: Vec::new(),
            slowest_ended_bytes_per_s: f64::INFINITY,
            filling: 0,
            filled_links: Vec::new(),
            filled_flows: Vec::new(),
            levels: BinaryHeap::new(),
        }
    }

    pub(super) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn start(&mut self, flow: Flow, token: Token) {
        let place = self.free.pop().unwrap_or(self.flows.len() as u32);
        for share in &flow.shares {
            let crossings = &mut self.links[share.link.at()].crossings;
            crossings.push(Crossing {
                flow: place,
                weight: share.weight,
            });
            self.changed_links.push(share.link);
        }
        let active = Active {
            shares: flow.shares,
            token,
            number: self.begun_count,
            bytes_per_s: f64::INFINITY,
            left_bytes: flow.bytes,
            found_ns: self.now_ns,
            ends_ns: u64::MAX,
            filling: 0,
            next_bytes_per_s: None,
        };
        if place as usize == self.flows.len() {
            self.flows.push(active);
        } else {
            self.flows[place as usize] = active;
        }
        self.begun_count += 1;
        self.begun.push(place);
    }

    /// Ends the flow that ends first, unless the limit comes before; gives its token.
    pub(super) fn take_next(&mut self, limit_ns: Option<u64>) -> Option<Token> {
        self.find_rates();
        let (ends_ns, place) = loop {
            let &Reverse((ends_ns, number, place)) = self.ends.peek()?;
            let flow = &self.flows[place as usize];
            if (flow.number, flow.ends_ns) == (number, ends_ns) {
                break (ends_ns, place);
            }
            self.ends.pop();
        };
        if limit_ns.is_some_and(|limit_ns| limit_ns < ends_ns) {
            return None;
        }
        self.ends.pop();
        self.now_ns = ends_ns;
        let flow = &mut self.flows[place as usize];
        flow.number = u64::MAX;
        for share in &flow.shares {
            let crossings = &mut self.links[share.link.at()].crossings;
            let at = crossings.iter().position(|other| other.flow == place);
            crossings.swap_remove(at.expect("a flow crosses its links"));
            self.changed_links.push(share.link);
        }
        self.slowest_ended_bytes_per_s = self.slowest_ended_bytes_per_s.min(flow.bytes_per_s);
        self.free.push(place);
        Some(flow.token)
    }

    /// Lets bytes cross until then, before which no flow ends.
    pub(super) const fn advance(&mut self, to_ns: u64) {
        self.now_ns = to_ns;
    }

    /// Whether flows use all that a link carries.
    pub(super) fn is_full(&mut self, link: LinkNumber) -> bool {
        self.find_rates();
        let link = &self.links[link.at()];
        let crossings = link.crossings.iter();
        let load = crossings.map(|c| c.weight * self.flows[c.flow as usize].bytes_per_s);
        load.sum::<f64>() > link.bytes_per_s * FULL_SHARE
    }

    /// Finds the rates that what has begun and ended may have changed.
    fn find_rates(&mut self) {
        if self.changed_links.is_empty() {
            return;
        }
        let least_bytes_per_s = self.least_change();
        self.filling += 1;
        self.filled_links.clear();
        self.filled_flows.clear();
        self.begun.clear();
        for link in self.changed_links.drain(..) {
            if self.links[link.at()].joins(self.filling) {
                self.filled_links.push(link);
            }
        }
        self.gather(least_bytes_per_s);
        self.fill();
        self.reckon_ends();
    }

    /// A rate below which nothing changes: that of the slowest flow which has begun or ended. What begins
    /// is no faster than what its links give to it while all that is slower on them stays as it is.
    fn least_change(&mut self) -> f64 {
        let mut least = std::mem::replace(&mut self.slowest_ended_bytes_per_s, f64::INFINITY);
        for &place in &self.begun {
            for share in &self.flows[place as usize].shares {
                least = least.min(self.level_on(share.link));
            }
        }
        least * (1.0 - ROUNDING)
    }

    /// The rate at which a link is full if none of its flows is faster, and none than it is now.
    fn level_on(&self, link: LinkNumber) -> f64 {
        let link = &self.links[link.at()];
        let mut level = 0.0;
        loop {
            let (mut left, mut weight) = (link.bytes_per_s, 0.0);
            for crossing in &link.crossings {
                let bytes_per_s = self.flows[crossing.flow as usize].bytes_per_s;
                if bytes_per_s < level {
                    left -= crossing.weight * bytes_per_s;
                } else {
                    weight += crossing.weight;
                }
            }
            let next = left / weight;
            // One flow at least has just begun, so there is a weight. The level rises with each turn
            // in which more flows turn out to be slower.
            if next <= level {
                return level;
            }
            level = next;
        }
    }

    /// Adds all that may change: flows of at least this rate on links of the filling, and their links.
    fn gather(&mut self, least_bytes_per_s: f64) {
        let mut next = 0;
        while let Some(&number) = self.filled_links.get(next) {
            next += 1;
            let link = &mut self.links[number.at()];
            let crossings = std::mem::take(&mut link.crossings);
            let (mut left, mut weight, mut unfixed_count) = (link.bytes_per_s, 0.0, 0);
            for crossing in &crossings {
                let flow = &mut self.flows[crossing.flow as usize];
                if flow.bytes_per_s < least_bytes_per_s {
                    left -= crossing.weight * flow.bytes_per_s;
                    continue;
                }
                weight += crossing.weight;
                unfixed_count += 1;
                if flow.filling == self.filling {
                    continue;
                }
                flow.filling = self.filling;
                flow.next_bytes_per_s = None;
                self.filled_flows.push(crossing.flow);
                for share in &flow.shares {
                    if self.links[share.link.at()].joins(self.filling) {
                        self.filled_links.push(share.link);
                    }
                }
            }
            let link = &mut self.links[number.at()];
            link.crossings = crossings;
            link.left_bytes_per_s = left;
            link.weight = weight;
            link.unfixed_count = unfixed_count;
            if unfixed_count > 0 {
                let level = order(link.level());
                self.levels.push(Reverse((level, number.0)));
            }
        }
    }

    /// Fixes the rates of the filling's flows, the slowest first.
    fn fill(&mut self) {
        while let Some(Reverse((level, number))) = self.levels.pop() {
            let link = &mut self.links[number as usize];
            if link.unfixed_count == 0 {
                continue;
            }
            // Levels rise when slower flows of theirs are fixed.
            let bytes_per_s = link.level();
            if order(bytes_per_s) > level {
                self.levels.push(Reverse((order(bytes_per_s), number)));
                continue;
            }
            let crossings = std::mem::take(&mut link.crossings);
            for crossing in &crossings {
                let flow = &mut self.flows[crossing.flow as usize];
                if flow.filling != self.filling || flow.next_bytes_per_s.is_some() {
                    continue;
                }
                flow.next_bytes_per_s = Some(bytes_per_s);
                for share in &flow.shares {
                    self.links[share.link.at()].fix(share.weight, bytes_per_s);
                }
            }
            self.links[number as usize].crossings = crossings;
        }
    }

    /// Says anew when flows end whose rates have changed.
    fn reckon_ends(&mut self) {
        for &place in &self.filled_flows {
            let flow = &mut self.flows[place as usize];
            let next = flow.next_bytes_per_s.take();
            let bytes_per_s = next.expect("each flow crosses a link, which fixes it");
            assert!(bytes_per_s > 0.0, "a link gives something to all its flows");
            if bytes_per_s.to_bits() == flow.bytes_per_s.to_bits() {
                continue;
            }
            if self.now_ns > flow.found_ns {
                let passed_s = (self.now_ns - flow.found_ns) as f64 / NS_PER_S;
                flow.left_bytes = (flow.left_bytes - flow.bytes_per_s * passed_s).max(0.0);
            }
            flow.bytes_per_s = bytes_per_s;
            flow.found_ns = self.now_ns;
            let left_ns = (flow.left_bytes / bytes_per_s * NS_PER_S).ceil() as u64;
            flow.ends_ns = self.now_ns.saturating_add(left_ns);
            self.ends.push(Reverse((flow.ends_ns, flow.number, place)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Rates;
    use gabion_layout::{NodeId, Topology};
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// By flow, its rate as plain progressive filling finds it: all flows at once, step by step.
    fn plainly(network: &MaxMin) -> Vec<Option<f64>> {
        let is_there = |flow: &Active| flow.number != u64::MAX;
        let mut rates: Vec<Option<f64>> = vec![None; network.flows.len()];
        loop {
            let mut tightest: Option<(f64, usize)> = None;
            for (number, link) in network.links.iter().enumerate() {
                let (mut left, mut weight) = (link.bytes_per_s, 0.0);
                for crossing in &link.crossings {
                    match rates[crossing.flow as usize] {
                        Some(rate) => left -= rate * crossing.weight,
                        None => weight += crossing.weight,
                    }
                }
                if weight > 0.0 && tightest.is_none_or(|(rate, _)| left / weight < rate) {
                    tightest = Some((left / weight, number));
                }
            }
            let Some((rate, number)) = tightest else {
                let flows = network.flows.iter().zip(&rates);
                assert!(flows.into_iter().all(|(f, r)| is_there(f) == r.is_some()));
                return rates;
            };
            for crossing in &network.links[number].crossings {
                rates[crossing.flow as usize].get_or_insert(rate);
            }
        }
    }

    fn check(network: &mut MaxMin) {
        network.find_rates();
        let all = network.flows.iter().zip(plainly(network));
        for (flow, plain) in all.filter_map(|(flow, plain)| Some((flow, plain?))) {
            let distance = (flow.bytes_per_s - plain).abs();
            assert!(distance <= plain * 1e-9, "{flow:?}, plainly {plain}");
        }
        let all_links = (0..network.links.len() as u32).map(LinkNumber);
        for link in all_links.collect::<Vec<_>>() {
            let crossings = network.links[link.at()].crossings.iter();
            let load = crossings.map(|c| c.weight * network.flows[c.flow as usize].bytes_per_s);
            let load: f64 = load.sum();
            let carried = network.links[link.at()].bytes_per_s;
            assert!(load <= carried * (1.0 + 1e-9));
            assert_eq!(network.is_full(link), load > carried * FULL_SHARE);
        }
    }

    fn any_flow(fabric: &Fabric, node_count: u32, rng: &mut ChaCha8Rng) -> Flow {
        let mut flow = Flow::default();
        // Several paths at once are a plan that streams.
        for _ in 0..[1, 1, 1, 3][rng.random_range(0..4)] {
            let (from, to) = (
                rng.random_range(0..node_count),
                rng.random_range(0..node_count - 1),
            );
            let to = if to < from { to } else { to + 1 };
            for link in fabric.path(NodeId(from), NodeId(to)) {
                if flow.shares.iter().all(|share| share.link != link) {
                    let weight = f64::from(rng.random_range(1..4_u32));
                    flow.shares.push(Share { link, weight });
                }
            }
        }
        flow.shares.sort_by_key(|share| share.link);
        flow.bytes = rng.random_range(1.0..1000.0);
        flow
    }

    proptest! {
        #[test]
        fn whatever_begins_and_ends_rates_are_those_of_plain_filling(
            seed: u64,
            (racks, per_rack) in (1_u32..6, 2_u32..5),
            rack_bytes_per_s in 30.0..300.0,
            at_once in 1_u64..60,
        ) {
            let rates = Rates {
                node_bytes_per_s: 100.0,
                rack_bytes_per_s,
                disk_bytes_per_s: None,
            };
            let fabric = Fabric::new(&Topology::uniform(racks, per_rack), rates);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut network = MaxMin::new(&fabric);
            let mut under_way = 0_u64;
            for token in 0..100 {
                for _ in 0..rng.random_range(0..=2).min(at_once - under_way) {
                    network.start(any_flow(&fabric, racks * per_rack, &mut rng), token);
                    under_way += 1;
                }
                check(&mut network);
                if rng.random_bool(0.3) {
                    // Somebody's timer comes before the next end.
                    let now_ns = network.now_ns();
                    let limit_ns = now_ns + 1;
                    if network.take_next(Some(limit_ns)).is_some() {
                        under_way -= 1;
                    } else {
                        network.advance(limit_ns);
                    }
                }
                for _ in 0..rng.random_range(0..=2) {
                    under_way -= u64::from(network.take_next(None).is_some());
                }
            }
            while network.take_next(None).is_some() {
                under_way -= 1;
                check(&mut network);
            }
            prop_assert_eq!(under_way, 0);
        }
    }

    #[test]
    fn all_bytes_cross_at_the_rates_that_were_found() {
        let rates = Rates {
            node_bytes_per_s: 100.0,
            rack_bytes_per_s: 100.0,
            disk_bytes_per_s: None,
        };
        let fabric = Fabric::new(&Topology::uniform(1, 3), rates);
        let mut network = MaxMin::new(&fabric);
        let flow = |bytes, from| Flow::new(bytes, fabric.path(NodeId(from), NodeId(2)));
        network.start(flow(300, 0), 1);
        assert_eq!(network.take_next(Some(1_000_000_000)), None);
        network.advance(1_000_000_000);
        network.start(flow(50, 1), 2);
        // 200 and 50 bytes are left, at 50 each; then 150 at 100.
        assert_eq!(
            (network.take_next(None), network.now_ns()),
            (Some(2), 2_000_000_000)
        );
        assert_eq!(
            (network.take_next(None), network.now_ns()),
            (Some(1), 3_500_000_000)
        );
        assert_eq!(network.take_next(None), None);
    }
}
