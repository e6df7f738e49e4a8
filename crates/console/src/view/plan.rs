//! A plan as a graph, with its cost.

use gabion_client::Planned;
use gabion_layout::NodeId;
use gabion_plan::{Cost, drawn, title};
use serde::Serialize;
use utoipa::ToSchema;

/// The cost of a plan; bytes are payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct CostView {
    /// Bytes between nodes of different racks.
    pub cross_rack_bytes: u64,
    /// Bytes between nodes of one rack.
    pub inner_rack_bytes: u64,
    /// Bytes between a node and the client.
    pub client_bytes: u64,
    /// Bytes read from disks.
    pub read_bytes: u64,
    /// Bytes written to disks.
    pub write_bytes: u64,
    /// Reads.
    pub read_count: u64,
    /// Writes.
    pub write_count: u64,
}

/// The use of a value by a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct UseView {
    /// The step that makes the value.
    pub step: u32,
    /// Its factor in GF(2^8).
    pub coefficient: u8,
    /// Bytes that move between nodes for it; 0 if it stays.
    pub sent_bytes: u64,
    /// Whether they cross racks.
    pub crosses_racks: bool,
}

/// A step. Its number is its position.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct StepView {
    /// The node with the step's result; null for the client.
    pub node: Option<u32>,
    /// Its rack.
    pub rack: Option<u32>,
    /// The step as a verb.
    pub verb: &'static str,
    /// The rest of the sentence.
    pub object: String,
    /// The values that it uses.
    pub uses: Vec<UseView>,
}

/// A plan, which has been checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct PlanView {
    /// Its goal, in words.
    pub title: String,
    /// Its code.
    pub code: String,
    /// Its cost.
    pub cost: CostView,
    /// Its steps.
    pub steps: Vec<StepView>,
}

impl PlanView {
    /// A plan as the cluster would run it now.
    pub fn of(planned: &Planned) -> Self {
        let cost = Cost::of(&planned.plan, &planned.topology);
        let steps = drawn(&planned.plan, &planned.topology).into_iter();
        let steps = steps.map(|step| StepView {
            node: (step.node != NodeId::CLIENT).then_some(step.node.0),
            rack: step.rack.map(|rack| rack.0),
            verb: step.verb,
            object: step.object,
            uses: step
                .uses
                .into_iter()
                .map(|used| UseView {
                    step: used.step.0,
                    coefficient: used.coefficient,
                    sent_bytes: used.sent_bytes,
                    crosses_racks: used.crosses_racks,
                })
                .collect(),
        });
        Self {
            title: title(&planned.plan),
            code: planned.code.to_string(),
            cost: CostView {
                cross_rack_bytes: cost.cross_rack_bytes,
                inner_rack_bytes: cost.inner_rack_bytes,
                client_bytes: cost.client_bytes,
                read_bytes: cost.read_bytes,
                write_bytes: cost.write_bytes,
                read_count: cost.read_count,
                write_count: cost.write_count,
            },
            steps: steps.collect(),
        }
    }
}
