//! The parts of the placements that users choose by name: a [`Descriptor`] for each placement of replicas, and a
//! [`LayoutDescriptor`] for each layout of the lab's stripes.

use super::rack_table::RackTable;
use super::rules::StripeRules;
use crate::PlanError;
use gabion_layout::{NodeId, ReplicaPlacement};
use rand_chacha::ChaCha8Rng;

/// A placement of replicas as all others know it. Lists of placements and help derive from it.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Its name in records and on the command line.
    pub placement: ReplicaPlacement,
    /// Its description in one line.
    pub help: &'static str,
    /// Its source.
    pub paper: &'static str,
    /// Its planner.
    pub planner: ReplicaPlanner,
}

/// The planner of a placement of replicas: it draws the nodes of the replicas of each of a stripe's blocks.
/// `per_rack` is the most replicas of a block that a rack should hold.
///
/// # Errors
/// [`PlanError::TooManyCopies`] when there are fewer nodes than replicas.
pub type ReplicaPlanner = fn(
    racks: &RackTable,
    rules: StripeRules,
    per_rack: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<Vec<NodeId>>, PlanError>;

/// A layout of the lab's stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Chunk `j` of stripe `s` is on node `(s + j) mod n`, and node `v` in rack `v / (n / racks)`.
    Rotate,
    /// Each stripe's chunks are on the same nodes in an order drawn from the seed and the stripe's
    /// number, so the order does not depend on which stripes are asked for before.
    Random {
        /// The seed.
        seed: u64,
    },
    /// Data racks and parity racks apart, every stripe alike.
    Grouped(Grouped),
}

/// Data and parity racks: counts of racks and of chunks in each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grouped {
    /// Racks that hold data, and data chunks in each.
    pub data: (u32, u32),
    /// Racks that hold parity, and parity chunks in each.
    pub parity: (u32, u32),
}

/// A layout of the lab's stripes as all others know it. Help and error sentences derive from it.
#[derive(Clone, Copy, Debug)]
pub struct LayoutDescriptor {
    /// Its forms on the command line, for a list.
    pub forms: &'static str,
    /// One of its forms, as it is printed.
    pub example: &'static str,
    /// Reads a text in one of its forms; none if the text has another form.
    pub(super) read: fn(text: &str) -> Option<Result<Layout, PlanError>>,
    /// Its description in one line.
    pub help: &'static str,
    /// Its source.
    pub paper: &'static str,
}
