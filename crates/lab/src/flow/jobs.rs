//! Running scripts on an engine, each with an owner that learns when all of its flows have ended.

use super::agenda::Token;
use super::engine::Engine;
use super::script::{Connection, Script};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Bits of a token that say which flow of its script it is.
const FLOW_BITS: u32 = 16;

/// A script under way.
#[derive(Debug)]
struct Job<O> {
    script: Script,
    owner: O,
    left_count: usize,
}

type Lines = BTreeMap<Connection, VecDeque<(usize, usize)>>;

/// Scripts under way. Their flows' tokens are below [`Jobs::<O>::TOKEN_END`].
#[derive(Debug)]
pub(super) struct Jobs<O> {
    under_way: Vec<Option<Job<O>>>,
    /// Places in `under_way` of those that have ended.
    free: Vec<usize>,
    /// By connection that carries a flow, the jobs and flows that wait for it.
    lines: Lines,
}

impl<O> Default for Jobs<O> {
    fn default() -> Self {
        Self {
            under_way: Vec::new(),
            free: Vec::new(),
            lines: BTreeMap::new(),
        }
    }
}

impl<O> Jobs<O> {
    /// Tokens from here on are never those of flows.
    pub(super) const TOKEN_END: Token = 1 << 62;

    /// Begins a script. One without flows has ended at once, and its owner is given back.
    pub(super) fn begin(&mut self, engine: &mut Engine, script: Script, owner: O) -> Option<O> {
        let flow_count = script.flows.len();
        assert!(flow_count < 1 << FLOW_BITS, "a token has room for the flow");
        if flow_count == 0 {
            return Some(owner);
        }
        let number = self.free.pop().unwrap_or(self.under_way.len());
        if number == self.under_way.len() {
            self.under_way.push(None);
        }
        let job = self.under_way[number].insert(Job {
            left_count: flow_count,
            script,
            owner,
        });
        for flow in 0..flow_count {
            if job.script.waits[flow] == 0 {
                job.start(&mut self.lines, engine, number, flow);
            }
        }
        None
    }

    /// A flow has ended: begins what waited for it. Gives the owner back if it was the script's last.
    pub(super) fn flow_ends(&mut self, engine: &mut Engine, token: Token) -> Option<O> {
        let (number, flow) = (
            (token >> FLOW_BITS) as usize,
            (token & ((1 << FLOW_BITS) - 1)) as usize,
        );
        let job = self.under_way[number].as_mut().expect("a job under way");
        job.left_count -= 1;
        let has_ended = job.left_count == 0;
        let followers = std::mem::take(&mut job.script.followers[flow]);
        if let Some(&connection) = job.script.connections.get(flow) {
            self.release(engine, connection);
        }
        let place = &mut self.under_way[number];
        if has_ended {
            self.free.push(number);
            return place.take().map(|job| job.owner);
        }
        let job = place.as_mut().expect("a job under way");
        for follower in followers {
            let waits = &mut job.script.waits[follower as usize];
            *waits -= 1;
            if *waits == 0 {
                job.start(&mut self.lines, engine, number, follower as usize);
            }
        }
        None
    }

    /// A connection has carried a flow: it takes the next.
    fn release(&mut self, engine: &mut Engine, connection: Connection) {
        let line = self.lines.get_mut(&connection);
        match line.expect("a connection that carried a flow").pop_front() {
            Some((number, flow)) => {
                let job = self.under_way[number].as_mut();
                job.expect("a job under way").send(engine, number, flow);
            }
            None => {
                self.lines.remove(&connection);
            }
        }
    }
}

impl<O> Job<O> {
    /// Begins a flow, or has it wait for its connection.
    fn start(&mut self, lines: &mut Lines, engine: &mut Engine, number: usize, flow: usize) {
        match self
            .script
            .connections
            .get(flow)
            .map(|own| lines.entry(*own))
        {
            Some(Entry::Occupied(mut line)) => line.get_mut().push_back((number, flow)),
            Some(Entry::Vacant(free)) => {
                free.insert(VecDeque::new());
                self.send(engine, number, flow);
            }
            None => self.send(engine, number, flow),
        }
    }

    fn send(&mut self, engine: &mut Engine, number: usize, flow: usize) {
        let flow_now = std::mem::take(&mut self.script.flows[flow]);
        engine.start(flow_now, (number as Token) << FLOW_BITS | flow as Token);
    }
}
