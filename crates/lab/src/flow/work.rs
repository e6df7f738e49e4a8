//! A cluster's work as messages and transfers that wait for each other: conversions, a limited number of them
//! in flight at once, and clients that put one file after another. It compares a run on real links with the
//! model, plan by plan (EAR, experiment B.1).
//!
//! Messages are small, but on a full link they wait in its queue. Apart from these waits and pauses that the
//! caller gives, the model contains only the transfer of bytes.

use super::agenda::Token;
use super::engine::{Engine, Sharing};
use super::fabric::Fabric;
use super::jobs::Jobs;
use super::script::Script;
use gabion_layout::NodeId;

/// Something that takes time.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// A pause in nanoseconds.
    Pause(u64),
    /// Messages to these nodes from a sender whose own links are never full. All are in flight at once.
    Ask(Vec<NodeId>),
    /// The nodes' answers.
    Answer(Vec<NodeId>),
    /// Transfers.
    Move(Script),
    /// Several, begun in their order.
    Group {
        /// They.
        works: Vec<Work>,
        /// Works under way at a time; at least 1.
        at_once: usize,
    },
}

impl Work {
    /// One after another.
    pub fn in_turn(works: Vec<Self>) -> Self {
        Self::Group { works, at_once: 1 }
    }

    /// A question to each of the nodes, and their answers.
    pub fn round(nodes: &[NodeId]) -> Self {
        Self::in_turn(vec![
            Self::Ask(nodes.to_vec()),
            Self::Answer(nodes.to_vec()),
        ])
    }
}

/// When something was done, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// When it began.
    pub begun_ns: u64,
    /// When it had ended.
    pub ended_ns: u64,
    /// The outcomes of the works of a group, in their order.
    pub parts: Vec<Done>,
}

impl Done {
    /// Returns its duration in seconds.
    pub fn seconds(&self) -> f64 {
        (self.ended_ns - self.begun_ns) as f64 / 1e9
    }
}

/// The links that work is done on.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// Its links.
    pub fabric: &'a Fabric,
    /// The way in which flows share them.
    pub sharing: Sharing,
    /// Wait of a message for a link that is full.
    pub queue_ns: u64,
}

impl Network<'_> {
    /// Does a work from its beginning to its end.
    ///
    /// # Panics
    /// When nothing of a group may be under way.
    ///
    /// ```
    /// use gabion_layout::{NodeId, Topology};
    /// use gabion_lab::flow::{Fabric, Flow, Network, Rates, Script, Sharing, Work};
    ///
    /// let rates = Rates { node_bytes_per_s: 1e9, rack_bytes_per_s: 1e9, disk_bytes_per_s: None };
    /// let fabric = Fabric::new(&Topology::uniform(2, 1), rates);
    /// let network = Network { fabric: &fabric, sharing: Sharing::MaxMin, queue_ns: 50 };
    /// let transfer = || Work::Move(Script::of(Flow::new(1000, fabric.path(NodeId(0), NodeId(1)))));
    /// let works = vec![Work::Pause(10), transfer(), transfer()];
    /// let done = network.carry_out(&Work::Group { works, at_once: 2 });
    /// let ended: Vec<u64> = done.parts.iter().map(|part| part.ended_ns).collect();
    /// // The second transfer begins when the pause ends, and both share the link from then on.
    /// assert_eq!(ended, [10, 1990, 2000]);
    /// ```
    pub fn carry_out(&self, work: &Work) -> Done {
        let mut run = Run {
            network: self,
            engine: Engine::new(self.fabric, self.sharing),
            jobs: Jobs::default(),
            parts: Vec::new(),
            ready: Vec::new(),
        };
        let root = run.add(work, None);
        run.ready.push(root);
        run.begin_ready();
        while run.parts[root as usize].ended_ns.is_none() {
            let (_, token) = run
                .engine
                .next()
                .expect("what has not ended waits for something");
            run.due(token);
            run.begin_ready();
        }
        run.done(root)
    }
}

/// A work and how far it is.
struct Part<'a> {
    work: &'a Work,
    /// The group that it is in.
    group: Option<u32>,
    /// If it is a group, its parts, and how many of them have begun and have ended.
    parts: Vec<u32>,
    begun_count: usize,
    ended_count: usize,
    begun_ns: u64,
    ended_ns: Option<u64>,
}

struct Run<'a> {
    network: &'a Network<'a>,
    engine: Engine,
    jobs: Jobs<u32>,
    parts: Vec<Part<'a>>,
    /// Parts that begin now, the next one last.
    ready: Vec<u32>,
}

impl<'a> Run<'a> {
    fn add(&mut self, work: &'a Work, group: Option<u32>) -> u32 {
        let number = self.parts.len() as u32;
        self.parts.push(Part {
            work,
            group,
            parts: Vec::new(),
            begun_count: 0,
            ended_count: 0,
            begun_ns: 0,
            ended_ns: None,
        });
        if let Work::Group { works, at_once } = work {
            assert!(*at_once > 0, "something of a group may be under way");
            let parts = works.iter().map(|work| self.add(work, Some(number)));
            let parts: Vec<u32> = parts.collect();
            self.parts[number as usize].parts = parts;
        }
        number
    }

    fn begin_ready(&mut self) {
        while let Some(number) = self.ready.pop() {
            self.begin(number);
        }
    }

    fn begin(&mut self, number: u32) {
        let now_ns = self.engine.now_ns();
        let part = &mut self.parts[number as usize];
        part.begun_ns = now_ns;
        match part.work {
            Work::Pause(ns) => self.wait(*ns, number),
            Work::Ask(nodes) => {
                let waits_ns = self.queues_ns(nodes, |node| (NodeId::CLIENT, node));
                self.wait(waits_ns, number);
            }
            Work::Answer(nodes) => {
                let waits_ns = self.queues_ns(nodes, |node| (node, NodeId::CLIENT));
                self.wait(waits_ns, number);
            }
            Work::Move(script) => {
                let ended = self.jobs.begin(&mut self.engine, script.clone(), number);
                if let Some(number) = ended {
                    self.end(number);
                }
            }
            Work::Group { works, .. } if works.is_empty() => self.end(number),
            Work::Group { at_once, .. } => {
                let first = &part.parts[..part.parts.len().min(*at_once)];
                part.begun_count = first.len();
                self.ready.extend(first.iter().rev());
            }
        }
    }

    fn wait(&mut self, ns: u64, number: u32) {
        let token = Jobs::<u32>::TOKEN_END + Token::from(number);
        self.engine.set_timer(ns, token);
    }

    /// The time until the last of the nodes is reached: a message waits for a full link.
    fn queues_ns(&mut self, nodes: &[NodeId], ends: impl Fn(NodeId) -> (NodeId, NodeId)) -> u64 {
        let waits_ns = nodes.iter().map(|&node| {
            let (from, to) = ends(node);
            let links = self.network.fabric.path(from, to).into_iter();
            let full = links.filter(|&link| self.engine.is_full(link));
            full.count() as u64 * self.network.queue_ns
        });
        waits_ns.max().unwrap_or(0)
    }

    fn due(&mut self, token: Token) {
        let ended = match token.checked_sub(Jobs::<u32>::TOKEN_END) {
            Some(number) => Some(number as u32),
            None => self.jobs.flow_ends(&mut self.engine, token),
        };
        if let Some(number) = ended {
            self.end(number);
        }
    }

    fn end(&mut self, number: u32) {
        let now_ns = self.engine.now_ns();
        let part = &mut self.parts[number as usize];
        part.ended_ns = Some(now_ns);
        let Some(group) = part.group else {
            return;
        };
        let of_group = &mut self.parts[group as usize];
        of_group.ended_count += 1;
        if let Some(&next) = of_group.parts.get(of_group.begun_count) {
            of_group.begun_count += 1;
            self.ready.push(next);
        } else if of_group.ended_count == of_group.parts.len() {
            self.end(group);
        }
    }

    fn done(&self, number: u32) -> Done {
        let part = &self.parts[number as usize];
        Done {
            begun_ns: part.begun_ns,
            ended_ns: part.ended_ns.expect("the group has ended"),
            parts: part.parts.iter().map(|&part| self.done(part)).collect(),
        }
    }
}
