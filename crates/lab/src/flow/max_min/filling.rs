//! Progressive filling: all flows become faster together until a link is full. The rates of its flows are then fixed,
//! while the other flows become faster until the next link is full, and so on. So the link with the smallest share per
//! flow fixes rates first; the rates of its flows are subtracted from their other links, and the link that now has the
//! smallest share is next.
//!
//! The start or end of a flow changes few other rates. A flow is filled again
//! - if it begins, or shares a link with one that begins or ends,
//! - if it shares a link with one that is filled again,
//!
//! but not if it keeps its rate regardless of changes on that link. Every link gives its flows at least an even share.
//! So a flow that is slower than this, because of *another* link, does not depend on changes here: it is filled again
//! only if the other link changes. All other flows keep their rates, which are subtracted from the capacity of their
//! links. The result equals that of filling all flows. A flow that is left out keeps its limiting link, and no flow of
//! that link is filled again. A link that limits filled flows gives them at least an even share, and the flows that are
//! left out on it are slower than an even share.
//!
//! A link with only one flow affects no other flow and is left out: the flow knows its own maximum rate. In large
//! clusters most links have only one flow.

use super::tournament::{NEVER, Tournament};
use super::{Active, Link, LinkNumber};

/// Rates that differ by less are called equal, so that rounding keeps no flow from being filled again.
const ROUNDING: f64 = 1e-12;
/// Bits of a key that say which limit it is.
const LIMIT_BITS: u32 = 32;

/// The limit that keeps flows from being faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// A link that the flow shares.
    Shared(LinkNumber),
    /// The links that the flow at this place has to itself.
    Alone(u32),
}

/// The rate of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Infinite until it is found for the first time.
    pub(super) bytes_per_s: f64,
    limit: Limit,
    /// Whether it is being found anew.
    is_open: bool,
}

impl Rate {
    /// The rate of a flow that begins.
    pub(super) const fn unknown(place: u32) -> Self {
        Self {
            bytes_per_s: f64::INFINITY,
            limit: Limit::Alone(place),
            is_open: false,
        }
    }
}

/// A link in a filling.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Whether it takes part. All else is true only if it does.
    is_in: bool,
    /// Its place among the limits.
    limit: u32,
    /// Flows whose rates are open, their weights, and what the others leave.
    open_count: u32,
    weight: f64,
    left_bytes_per_s: f64,
}

impl Part {
    /// Returns the link's share for each byte of its open flows.
    fn level(&self) -> f64 {
        self.left_bytes_per_s / self.weight
    }
}

/// Levels by which limits are ordered, and which limit it is. Numbers that are not negative are in the order of
/// their bits.
fn key(level: f64, limit: usize) -> u128 {
    u128::from(level.max(0.0).to_bits()) << LIMIT_BITS | limit as u128
}

/// A filling. In between only what begins and ends is in it; it is kept for its memory.
#[derive(Debug)]
pub(super) struct Filling {
    /// Links that ended flows have left.
    left: Vec<LinkNumber>,
    /// By link.
    parts: Vec<Part>,
    /// Flows that take part.
    flows: Vec<u32>,
    limits: Vec<Limit>,
    /// By place among limits, the levels of those that have open flows, and their places. Levels rise while slower
    /// flows are fixed, so they may be higher than is said here.
    levels: Tournament,
    /// Flows whose rates have changed, and to what.
    changed: Vec<(u32, f64)>,
}

impl Filling {
    pub(super) fn new(link_count: usize) -> Self {
        Self {
            left: Vec::new(),
            parts: vec![Part::default(); link_count],
            flows: Vec::new(),
            limits: Vec::new(),
            levels: Tournament::new(),
            changed: Vec::new(),
        }
    }

    /// A flow begins.
    pub(super) fn begin(&mut self, place: u32, rates: &mut [Rate]) {
        rates[place as usize].is_open = true;
        self.flows.push(place);
    }

    /// A flow that used this link has ended.
    pub(super) fn leave(&mut self, link: LinkNumber) {
        self.left.push(link);
    }

    /// Whether nothing has begun or ended since the last filling.
    pub(super) fn is_done(&self) -> bool {
        self.flows.is_empty() && self.left.is_empty()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self, rates: &[Rate]) -> bool {
        let is_in = self.parts.iter().any(|part| part.is_in);
        let is_open = rates.iter().any(|rate| rate.is_open);
        !is_in && !is_open && self.is_done() && self.limits.is_empty()
    }

    /// Fills again what may change. Gives the flows whose rates change, and to what; rates are as before.
    pub(super) fn run(
        &mut self,
        links: &[Link],
        flows: &[Active],
        rates: &mut [Rate],
    ) -> &[(u32, f64)] {
        self.gather(links, flows, rates);
        self.add_up(links, flows, rates);
        self.changed.clear();
        self.fill(links, flows, rates);
        self.flows.clear();
        for limit in self.limits.drain(..) {
            if let Limit::Shared(link) = limit {
                self.parts[link.at()].is_in = false;
            }
        }
        &self.changed
    }

    /// Finds all that may change, and what limits it.
    fn gather(&mut self, links: &[Link], flows: &[Active], rates: &mut [Rate]) {
        while let Some(link) = self.left.pop() {
            self.add(link, links, rates);
        }
        let mut next = 0;
        while let Some(&place) = self.flows.get(next) {
            next += 1;
            let flow = &flows[place as usize];
            let mut shared_bytes_per_s = f64::INFINITY;
            for hold in &flow.holds {
                if links[hold.link.at()].crossings.len() > 1 {
                    shared_bytes_per_s = shared_bytes_per_s.min(hold.alone_bytes_per_s);
                    self.add(hold.link, links, rates);
                }
            }
            if flow.alone_bytes_per_s < shared_bytes_per_s {
                self.limits.push(Limit::Alone(place));
            }
        }
    }

    /// Has a link take part, and those of its flows whose rates it may change.
    fn add(&mut self, number: LinkNumber, links: &[Link], rates: &mut [Rate]) {
        if std::mem::replace(&mut self.parts[number.at()].is_in, true) {
            return;
        }
        self.limits.push(Limit::Shared(number));
        let link = &links[number.at()];
        let even_bytes_per_s = link.bytes_per_s / link.weight * (1.0 - ROUNDING);
        for crossing in &link.crossings {
            let rate = &mut rates[crossing.flow as usize];
            let may_change =
                rate.bytes_per_s >= even_bytes_per_s || rate.limit == Limit::Shared(number);
            if may_change && !rate.is_open {
                rate.is_open = true;
                self.flows.push(crossing.flow);
            }
        }
    }

    /// Adds up what links have for their open flows.
    fn add_up(&mut self, links: &[Link], flows: &[Active], rates: &[Rate]) {
        let parts = &mut self.parts;
        let level = |(at, &limit): (usize, &Limit)| match limit {
            Limit::Alone(place) => key(flows[place as usize].alone_bytes_per_s, at),
            Limit::Shared(number) => {
                let link = &links[number.at()];
                let mut part = Part {
                    is_in: true,
                    limit: at as u32,
                    open_count: 0,
                    weight: 0.0,
                    left_bytes_per_s: link.bytes_per_s,
                };
                for crossing in &link.crossings {
                    let rate = &rates[crossing.flow as usize];
                    if rate.is_open {
                        part.open_count += 1;
                        part.weight += crossing.weight;
                    } else {
                        part.left_bytes_per_s -= crossing.weight * rate.bytes_per_s;
                    }
                }
                parts[number.at()] = part;
                if part.open_count == 0 {
                    return NEVER;
                }
                key(part.level(), at)
            }
        };
        self.levels
            .restart(self.limits.iter().enumerate().map(level));
    }

    /// Fixes the rates of open flows, the slowest first.
    fn fill(&mut self, links: &[Link], flows: &[Active], rates: &mut [Rate]) {
        while let Some(first) = self.levels.first() {
            let at = (first & ((1 << LIMIT_BITS) - 1)) as usize;
            let limit = self.limits[at];
            let number = match limit {
                Limit::Alone(place) => {
                    self.levels.remove(at);
                    let flow = &flows[place as usize];
                    self.fix(place, limit, flow.alone_bytes_per_s, flow, rates);
                    continue;
                }
                Limit::Shared(number) => number.at(),
            };
            let bytes_per_s = self.parts[number].level();
            let now = key(bytes_per_s, at);
            if now > first {
                self.levels.set(at, now);
                continue;
            }
            for crossing in &links[number].crossings {
                let flow = &flows[crossing.flow as usize];
                self.fix(crossing.flow, limit, bytes_per_s, flow, rates);
            }
        }
    }

    /// Fixes a flow's rate, if it is open.
    fn fix(
        &mut self,
        place: u32,
        limit: Limit,
        bytes_per_s: f64,
        flow: &Active,
        rates: &mut [Rate],
    ) {
        let rate = &mut rates[place as usize];
        if !std::mem::replace(&mut rate.is_open, false) {
            return;
        }
        rate.limit = limit;
        if rate.bytes_per_s.to_bits() != bytes_per_s.to_bits() {
            self.changed.push((place, bytes_per_s));
        }
        for hold in &flow.holds {
            let part = &mut self.parts[hold.link.at()];
            if part.is_in {
                part.open_count -= 1;
                part.weight -= hold.weight;
                part.left_bytes_per_s -= hold.weight * bytes_per_s;
                if part.open_count == 0 {
                    self.levels.remove(part.limit as usize);
                }
            }
        }
    }
}
