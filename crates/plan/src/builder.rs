//! Builds plans step by step, so that planners read like the papers' descriptions.

use crate::step::{Goal, Keepings, Log, Plan, Step, StepOrder, Term, ValueId};
use gabion_layout::{ChunkIndex, Geometry, NodeId, Slices, StripeId};
use std::collections::BTreeMap;

/// Collects the steps of a plan.
#[derive(Debug)]
pub struct PlanBuilder {
    plan: Plan,
    /// Values of [`PlanBuilder::read_once`].
    read: BTreeMap<(ChunkIndex, Slices), ValueId>,
    /// Values of [`PlanBuilder::send_once`].
    sent: BTreeMap<(ValueId, NodeId), ValueId>,
}

impl PlanBuilder {
    /// A plan for `stripe`, whose chunk `j` is on `placement[j]`, with no steps yet.
    ///
    /// # Panics
    /// Unless there is one node for each chunk.
    pub fn new(stripe: StripeId, geometry: Geometry, placement: Vec<NodeId>) -> Self {
        assert_eq!(
            placement.len(),
            geometry.n(),
            "one node for each chunk of the stripe"
        );
        let plan = Plan {
            stripe,
            geometry,
            placement,
            lost: Vec::new(),
            goal: Goal::Encode,
            keepings: Keepings::default(),
            order: StepOrder::default(),
            steps: Vec::with_capacity(16),
        };
        Self {
            plan,
            read: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Declares the chunks that cannot be read.
    #[must_use]
    pub fn without(mut self, lost: Vec<ChunkIndex>) -> Self {
        self.plan.lost = lost;
        self
    }

    /// The node that holds a chunk before the plan runs.
    ///
    /// # Panics
    /// If the stripe has no such chunk.
    pub fn node_of(&self, chunk: ChunkIndex) -> NodeId {
        self.plan.placement[chunk.at()]
    }

    /// New bytes of a data chunk that the initiator gave to `node`.
    pub fn input(&mut self, node: NodeId, chunk: ChunkIndex, slices: Slices) -> ValueId {
        self.push(Step::Input {
            node,
            chunk,
            slices,
        })
    }

    /// Reads stored bytes at the chunk's node.
    ///
    /// # Panics
    /// If the stripe has no such chunk.
    pub fn read(&mut self, chunk: ChunkIndex, slices: Slices) -> ValueId {
        self.push(Step::Read {
            node: self.node_of(chunk),
            chunk,
            slices,
        })
    }

    /// Like [`PlanBuilder::read`], but a repeated call returns the same value: rows of a lost chunk
    /// whose equations overlap share reads.
    ///
    /// # Panics
    /// If the stripe has no such chunk.
    pub fn read_once(&mut self, chunk: ChunkIndex, slices: Slices) -> ValueId {
        if let Some(&value) = self.read.get(&(chunk, slices)) {
            return value;
        }
        let value = self.read(chunk, slices);
        self.read.insert((chunk, slices), value);
        value
    }

    /// Reads a whole replica of a data chunk at a node that has one.
    pub fn read_replica(&mut self, node: NodeId, chunk: ChunkIndex, slices: Slices) -> ValueId {
        self.push(Step::Read {
            node,
            chunk,
            slices,
        })
    }

    /// Reads bytes of a data chunk from a log of `node`.
    pub fn recall(&mut self, node: NodeId, log: Log, chunk: ChunkIndex, slices: Slices) -> ValueId {
        self.push(Step::Recall {
            node,
            log,
            chunk,
            slices,
        })
    }

    /// Sums coefficient times value at `node`. A single value with coefficient 1 needs no step.
    pub fn combine(&mut self, node: NodeId, terms: &[(u8, ValueId)]) -> ValueId {
        if let [(1, value)] = terms {
            return *value;
        }
        let terms = terms
            .iter()
            .map(|&(coefficient, value)| Term { coefficient, value })
            .collect();
        self.push(Step::Combine { node, terms })
    }

    /// Sends a value to `to`; makes no step if it is already there.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn send(&mut self, value: ValueId, to: NodeId) -> ValueId {
        let from = self.plan.steps[value.at()].node();
        if from == to {
            return value;
        }
        self.push(Step::Send { from, to, value })
    }

    /// Like [`PlanBuilder::send`], but a repeated call does not send the value again.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn send_once(&mut self, value: ValueId, to: NodeId) -> ValueId {
        if let Some(&sent) = self.sent.get(&(value, to)) {
            return sent;
        }
        let sent = self.send(value, to);
        self.sent.insert((value, to), sent);
        sent
    }

    /// Writes a value, at its node, as bytes of a chunk.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn write(&mut self, chunk: ChunkIndex, slices: Slices, value: ValueId) {
        let node = self.plan.steps[value.at()].node();
        self.push(Step::Write {
            node,
            chunk,
            slices,
            value,
        });
    }

    /// Appends a value, at its node, to a log.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn append(&mut self, log: Log, chunk: ChunkIndex, slices: Slices, value: ValueId) {
        let node = self.plan.steps[value.at()].node();
        self.push(Step::Append {
            node,
            log,
            chunk,
            slices,
            value,
        });
    }

    /// Delivers a value, at its node, to the initiator.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn deliver(&mut self, chunk: ChunkIndex, slices: Slices, value: ValueId) {
        let node = self.plan.steps[value.at()].node();
        self.push(Step::Deliver {
            node,
            chunk,
            slices,
            value,
        });
    }

    /// The plan for `goal`.
    #[must_use]
    pub fn finish(mut self, goal: Goal) -> Plan {
        self.plan.goal = goal;
        self.plan
    }

    fn push(&mut self, step: Step) -> ValueId {
        let id = ValueId(self.plan.steps.len() as u32);
        self.plan.steps.push(step);
        id
    }
}
