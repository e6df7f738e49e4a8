//! One node's part of a plan: the message from a coordinator or client to each participant.

use crate::step::{Plan, Step, StepOrder, ValueId};
use gabion_layout::{ChunkIndex, Keeping, NodeId, Slices, StripeId};
use serde::{Deserialize, Serialize};

/// One step for a participant, with its number and its stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartStep {
    /// The step's number in the plan, which is its value's name on the wire.
    pub id: ValueId,
    /// The stream of the step: positions in a chunk for steps that touch one, otherwise only the
    /// shape matters.
    pub slices: Slices,
    /// The step.
    pub step: Step,
}

/// All steps of a plan in which one node takes part, including sends to and from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The stripe.
    pub stripe: StripeId,
    /// The node whose part it is.
    pub node: NodeId,
    /// Bytes of a chunk of the stripe, so that a node can make a new one.
    pub chunk_bytes: u64,
    /// The chunk of the stripe that the node holds before the plan runs.
    pub holds: Option<ChunkIndex>,
    /// The keeping of the stripe's chunk that the node writes.
    pub keeping: Keeping,
    /// The step order.
    pub order: StepOrder,
    /// Its steps in the plan's order.
    pub steps: Vec<PartStep>,
}

impl Plan {
    /// The part of `node`; without steps if the node takes no part.
    ///
    /// # Panics
    /// If the plan is inconsistent, which [`crate::check`] finds before.
    pub fn part(&self, node: NodeId) -> Part {
        let is_mine = |step: &Step| match step {
            Step::Send { from, to, .. } => *from == node || *to == node,
            other => other.node() == node,
        };
        let streams = self.streams();
        let mine = self.steps.iter().enumerate();
        let steps = mine
            .filter(|(_, step)| is_mine(step))
            .map(|(at, step)| PartStep {
                id: ValueId(at as u32),
                slices: streams[at],
                step: step.clone(),
            })
            .collect();
        Part {
            stripe: self.stripe,
            node,
            chunk_bytes: self.geometry.chunk_bytes(),
            holds: self.holds(node),
            keeping: self.keeping_at(node),
            order: self.order,
            steps,
        }
    }

    /// The chunk that a node holds before the plan runs.
    pub fn holds(&self, node: NodeId) -> Option<ChunkIndex> {
        let held = self.placement.iter().position(|&holder| holder == node);
        held.map(ChunkIndex::new)
    }

    /// The keeping of the chunk that `node` writes; it holds one chunk of the stripe.
    fn keeping_at(&self, node: NodeId) -> Keeping {
        let written = self.steps.iter().find_map(|step| match step {
            Step::Write {
                node: at, chunk, ..
            } => (*at == node).then_some(*chunk),
            _ => None,
        });
        match written {
            Some(chunk) if self.geometry.is_data(chunk) => self.keepings.data,
            Some(_) => self.keepings.parity,
            None => Keeping::default(),
        }
    }
}
