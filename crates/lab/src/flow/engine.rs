//! The clock of a simulation: flows that end when their bytes have crossed, and timers. The owner of a
//! simulation starts both with a token, and gets the tokens back in the order in which they are due.

use super::agenda::{Agenda, Due, Token};
use super::fabric::{Fabric, LinkNumber};
use super::max_min::MaxMin;
use super::script::Flow;
use super::slotted::Slotted;

/// The way in which flows share links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// All at once, each as fast as it can be without slowing down one that is slower: max-min fairness,
    /// as congestion control comes near it.
    MaxMin,
    /// One after another. A flow takes its links in the order of their numbers, waits in line for each,
    /// and holds all of them while a slot crosses; for its next slot it waits in line again. With slots as large as
    /// blocks, links are facilities that a transfer reserves, as in simulators of EAR's kind.
    Slotted {
        /// Bytes of a slot.
        slot_bytes: u64,
    },
}

#[derive(Debug)]
enum Network {
    MaxMin(MaxMin),
    Slotted(Slotted),
}

/// A running simulation.
///
/// ```
/// use gabion_layout::{NodeId, Topology};
/// use gabion_lab::flow::{Engine, Fabric, Flow, Rates, Sharing};
///
/// let rates = Rates { node_bytes_per_s: 100.0, rack_bytes_per_s: 100.0, disk_bytes_per_s: None };
/// let fabric = Fabric::new(&Topology::uniform(3, 1), rates);
/// let mut engine = Engine::new(&fabric, Sharing::MaxMin);
/// // Two flows into one node share its link; the shorter one ends after two seconds.
/// engine.start(Flow::new(200, fabric.path(NodeId(0), NodeId(2))), 7);
/// engine.start(Flow::new(100, fabric.path(NodeId(1), NodeId(2))), 8);
/// assert_eq!(engine.next(), Some((2_000_000_000, 8)));
/// assert_eq!(engine.next(), Some((3_000_000_000, 7)));
/// assert_eq!(engine.next(), None);
/// ```
#[derive(Debug)]
pub struct Engine {
    now_ns: u64,
    agenda: Agenda,
    network: Network,
    event_count: u64,
}

impl Engine {
    /// An engine at time 0, with nothing under way.
    ///
    /// # Panics
    /// When slots have no bytes.
    pub fn new(fabric: &Fabric, sharing: Sharing) -> Self {
        let network = match sharing {
            Sharing::MaxMin => Network::MaxMin(MaxMin::new(fabric)),
            Sharing::Slotted { slot_bytes } => Network::Slotted(Slotted::new(fabric, slot_bytes)),
        };
        Self {
            now_ns: 0,
            agenda: Agenda::default(),
            network,
            event_count: 0,
        }
    }

    /// The time, in nanoseconds.
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Events so far: flows and slots that ended, and timers.
    pub const fn event_count(&self) -> u64 {
        self.event_count
    }

    /// Returns the number of changes of flows' rates, under max-min sharing: an event changes the rates of some flows,
    /// and that is its work. Flows that take turns have no rates.
    pub const fn rate_change_count(&self) -> u64 {
        match &self.network {
            Network::MaxMin(network) => network.rate_change_count(),
            Network::Slotted(_) => 0,
        }
    }

    /// Whether a link carries all it can, or is held by a flow, at this moment.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn is_full(&mut self, link: LinkNumber) -> bool {
        match &mut self.network {
            Network::MaxMin(network) => network.is_full(link),
            Network::Slotted(network) => network.is_held(link),
        }
    }

    /// Gives the token back after this time.
    pub fn set_timer(&mut self, after_ns: u64, token: Token) {
        self.agenda
            .set(self.now_ns.saturating_add(after_ns), Due::Timer(token));
    }

    /// Begins a flow; its token comes back when it ends.
    pub fn start(&mut self, flow: Flow, token: Token) {
        if flow.shares.is_empty() || flow.bytes <= 0.0 {
            self.set_timer(0, token);
            return;
        }
        match &mut self.network {
            Network::MaxMin(network) => network.start(&flow, token),
            Network::Slotted(network) => {
                network.start(flow, token, self.now_ns, &mut self.agenda);
            }
        }
    }

    /// The next token that is due, and when; none when nothing is under way.
    #[expect(
        clippy::should_implement_trait,
        reason = "flows are started in between"
    )]
    pub fn next(&mut self) -> Option<(u64, Token)> {
        loop {
            let timer_ns = self.agenda.next_ns();
            if let Network::MaxMin(network) = &mut self.network
                && let Some(token) = network.take_next(timer_ns)
            {
                self.event_count += 1;
                self.now_ns = network.now_ns();
                return Some((self.now_ns, token));
            }
            let (at_ns, due) = self.agenda.take()?;
            self.event_count += 1;
            self.now_ns = at_ns;
            match (due, &mut self.network) {
                (Due::Timer(token), network) => {
                    if let Network::MaxMin(network) = network {
                        network.advance(at_ns);
                    }
                    return Some((at_ns, token));
                }
                (Due::Slot(flow), Network::Slotted(network)) => {
                    if let Some(token) = network.slot_ends(flow, at_ns, &mut self.agenda) {
                        return Some((at_ns, token));
                    }
                }
                (Due::Slot(_), Network::MaxMin(_)) => {
                    unreachable!("only slotted networks have slots")
                }
            }
        }
    }
}
