//! Links that flows share fairly: each flow is as fast as it can be without slowing down one that is
//! slower.
//!
//! Rates change only when flows begin or end, and then not all rates; [`filling`] computes the rates that may change.
//! The end of a flow is computed when its rate changes, and a [`tournament`] of all ends gives the first. So the cost
//! of an event grows with the flows whose rates it may change, and not with the number of all flows. Flows, links and
//! the flows' shares of links refer to each other by number, so that no search is needed.

mod filling;
#[cfg(test)]
mod tests;
mod tournament;

use super::agenda::Token;
use super::fabric::{Fabric, LinkNumber};
use super::script::Flow;
use filling::{Filling, Rate};
use tournament::Tournament;

const NS_PER_S: f64 = 1e9;
/// A link with less to spare is full.
const FULL_SHARE: f64 = 1.0 - 1e-6;

/// Bits of an end that say which flow's it is: its number, of all there ever were, and its place.
const NUMBER_BITS: u32 = 40;
const PLACE_BITS: u32 = 24;

/// When a flow ends, as one number. Of flows that end at one time, that which began first comes first.
fn end(at_ns: u64, flow: &Active, place: u32) -> u128 {
    u128::from(at_ns) << (NUMBER_BITS + PLACE_BITS)
        | u128::from(flow.number) << PLACE_BITS
        | u128::from(place)
}

/// A flow's hold of a link.
#[derive(Clone, Copy, Debug)]
struct Hold {
    link: LinkNumber,
    /// The flow's place among the link's crossings.
    at: u32,
    weight: f64,
    /// The flow's rate if it had the link to itself.
    alone_bytes_per_s: f64,
}

/// A flow on a link.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    flow: u32,
    /// The link's place among the flow's holds.
    hold: u32,
    weight: f64,
}

#[derive(Debug, Default)]
struct Active {
    token: Token,
    /// Its number among all flows there ever were.
    number: u64,
    holds: Vec<Hold>,
    /// Its rate if it had all its links to itself.
    alone_bytes_per_s: f64,
    /// Bytes that were left when the rate was found.
    left_bytes: f64,
    found_ns: u64,
}

/// A link and the flows that cross it.
#[derive(Debug)]
struct Link {
    bytes_per_s: f64,
    crossings: Vec<Crossing>,
    /// The sum of the crossings' weights.
    weight: f64,
}

/// Flows in flight. State of a flow is stored at its slot, which is reused.
#[derive(Debug)]
pub(super) struct MaxMin {
    now_ns: u64,
    links: Vec<Link>,
    flows: Vec<Active>,
    /// By flow.
    rates: Vec<Rate>,
    /// By flow.
    ends: Tournament,
    /// Places of flows that have ended.
    free: Vec<u32>,
    begun_count: u64,
    rate_change_count: u64,
    filling: Filling,
}

impl MaxMin {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let links = (0..fabric.link_count() as u32).map(|number| Link {
            bytes_per_s: fabric.bytes_per_s(LinkNumber(number)),
            crossings: Vec::new(),
            weight: 0.0,
        });
        Self {
            now_ns: 0,
            links: links.collect(),
            flows: Vec::new(),
            rates: Vec::new(),
            ends: Tournament::new(),
            free: Vec::new(),
            begun_count: 0,
            rate_change_count: 0,
            filling: Filling::new(fabric.link_count()),
        }
    }

    pub(super) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Rates that were found and differ from those before.
    pub(super) const fn rate_change_count(&self) -> u64 {
        self.rate_change_count
    }

    pub(super) fn start(&mut self, flow: &Flow, token: Token) {
        let place = self.free.pop().unwrap_or(self.flows.len() as u32);
        if place as usize == self.flows.len() {
            self.flows.push(Active::default());
            self.rates.push(Rate::unknown(place));
        }
        assert!(place < 1 << PLACE_BITS, "an end has room for the place");
        assert!(self.begun_count < 1 << NUMBER_BITS, "and for the number");
        let active = &mut self.flows[place as usize];
        active.token = token;
        active.number = self.begun_count;
        active.alone_bytes_per_s = f64::INFINITY;
        active.left_bytes = flow.bytes;
        active.found_ns = self.now_ns;
        for share in &flow.shares {
            let link = &mut self.links[share.link.at()];
            let alone_bytes_per_s = link.bytes_per_s / share.weight;
            active.alone_bytes_per_s = active.alone_bytes_per_s.min(alone_bytes_per_s);
            active.holds.push(Hold {
                link: share.link,
                at: link.crossings.len() as u32,
                weight: share.weight,
                alone_bytes_per_s,
            });
            link.crossings.push(Crossing {
                flow: place,
                hold: active.holds.len() as u32 - 1,
                weight: share.weight,
            });
            link.weight += share.weight;
        }
        self.rates[place as usize] = Rate::unknown(place);
        self.begun_count += 1;
        self.filling.begin(place, &mut self.rates);
    }

    /// Ends the flow that ends first, unless the limit comes before; gives its token.
    pub(super) fn take_next(&mut self, limit_ns: Option<u64>) -> Option<Token> {
        self.find_rates();
        let first = self.ends.first()?;
        let at_ns = (first >> (NUMBER_BITS + PLACE_BITS)) as u64;
        let place = (first & ((1 << PLACE_BITS) - 1)) as u32;
        if limit_ns.is_some_and(|limit_ns| limit_ns < at_ns) {
            return None;
        }
        self.now_ns = at_ns;
        self.ends.remove(place as usize);
        let mut holds = std::mem::take(&mut self.flows[place as usize].holds);
        for hold in holds.drain(..) {
            let link = &mut self.links[hold.link.at()];
            link.crossings.swap_remove(hold.at as usize);
            if let Some(moved) = link.crossings.get(hold.at as usize) {
                self.flows[moved.flow as usize].holds[moved.hold as usize].at = hold.at;
            }
            // Adding up anew keeps rounding from growing with time.
            link.weight = link.crossings.iter().map(|crossing| crossing.weight).sum();
            if !link.crossings.is_empty() {
                self.filling.leave(hold.link);
            }
        }
        self.free.push(place);
        let flow = &mut self.flows[place as usize];
        flow.holds = holds;
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
        let load = crossings.map(|c| c.weight * self.rates[c.flow as usize].bytes_per_s);
        load.sum::<f64>() > link.bytes_per_s * FULL_SHARE
    }

    /// Finds the rates that what has begun and ended has changed, and says anew when those flows end.
    fn find_rates(&mut self) {
        if self.filling.is_done() {
            return;
        }
        let changed = self.filling.run(&self.links, &self.flows, &mut self.rates);
        self.rate_change_count += changed.len() as u64;
        for &(place, bytes_per_s) in changed {
            assert!(bytes_per_s > 0.0, "a link gives something to all its flows");
            let flow = &mut self.flows[place as usize];
            let rate = &mut self.rates[place as usize];
            if self.now_ns > flow.found_ns {
                let passed_s = (self.now_ns - flow.found_ns) as f64 / NS_PER_S;
                flow.left_bytes = (flow.left_bytes - rate.bytes_per_s * passed_s).max(0.0);
            }
            rate.bytes_per_s = bytes_per_s;
            flow.found_ns = self.now_ns;
            let left_ns = (flow.left_bytes / bytes_per_s * NS_PER_S).ceil() as u64;
            let at_ns = self.now_ns.saturating_add(left_ns);
            self.ends.set(place as usize, end(at_ns, flow, place));
        }
    }
}
