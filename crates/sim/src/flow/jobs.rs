//! Scripts under way on an engine, each with an owner who hears when all of its flows have ended.

use super::engine::{Engine, Token};
use super::script::Script;

/// Bits of a token that say which flow of its script it is.
const FLOW_BITS: u32 = 16;

/// A script under way.
#[derive(Debug)]
struct Job<O> {
    script: Script,
    owner: O,
    left_count: usize,
}

/// Scripts under way. Their flows' tokens are below [`Jobs::<O>::TOKEN_END`].
#[derive(Debug)]
pub(super) struct Jobs<O> {
    jobs: Vec<Option<Job<O>>>,
    /// Places in `jobs` of those that have ended.
    free: Vec<usize>,
}

impl<O> Default for Jobs<O> {
    fn default() -> Self {
        Self {
            jobs: Vec::new(),
            free: Vec::new(),
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
        let number = self.free.pop().unwrap_or(self.jobs.len());
        if number == self.jobs.len() {
            self.jobs.push(None);
        }
        let job = self.jobs[number].insert(Job {
            left_count: flow_count,
            script,
            owner,
        });
        for flow in 0..flow_count {
            if job.script.waits[flow] == 0 {
                job.start(engine, number, flow);
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
        let place = &mut self.jobs[number];
        let job = place.as_mut().expect("a job under way");
        job.left_count -= 1;
        if job.left_count == 0 {
            self.free.push(number);
            return place.take().map(|job| job.owner);
        }
        for follower in std::mem::take(&mut job.script.followers[flow]) {
            let waits = &mut job.script.waits[follower as usize];
            *waits -= 1;
            if *waits == 0 {
                job.start(engine, number, follower as usize);
            }
        }
        None
    }
}

impl<O> Job<O> {
    fn start(&mut self, engine: &mut Engine, number: usize, flow: usize) {
        let flow_now = std::mem::take(&mut self.script.flows[flow]);
        engine.start(flow_now, (number as Token) << FLOW_BITS | flow as Token);
    }
}
