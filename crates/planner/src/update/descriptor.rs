//! The parts of every update scheme: its planner, and its [`Descriptor`] for other code.

use super::appending::Appending;
use super::delta::delta;
use crate::{PlanError, Stripe, placement};
use gabion_layout::{ChunkRange, Keeping, NodeId, Topology, UpdateScheme};
use gabion_plan::{Keepings, Plan};
use rand_chacha::ChaCha8Rng;
use std::fmt::Debug;

/// The planner of an update scheme: one file beside this one, which has its [`Descriptor`] too. All schemes follow the
/// same protocol; a scheme determines how deltas reach parity nodes and where records go.
///
/// Data logging keeps new bytes in a log and parity in place. It is the example of CONTRIBUTING.md, "Add a scheme":
///
/// ```
/// use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, Keeping, NodeId, StripeId, Topology};
/// use gabion_plan::Keepings;
/// use gabion_planner::{Stripe, update::UpdatePlanner};
///
/// #[derive(Clone, Copy, Debug)]
/// struct DataLogging;
///
/// impl UpdatePlanner for DataLogging {
///     fn keepings(&self, _: u64) -> Keepings {
///         Keepings { data: Keeping::Log, parity: Keeping::InPlace }
///     }
/// }
///
/// let code = "rs(4,2)".parse().unwrap();
/// let placement: Vec<NodeId> = (0..6).map(NodeId).collect();
/// let geometry = Geometry::new(4, 2, 1, 4096).unwrap();
/// let stripe = Stripe { id: StripeId(1), geometry, code: &code, placement: &placement, lost: &[] };
/// let ranges = [ChunkRange { chunk: ChunkIndex(0), range: ByteRange::new(0, 512) }];
/// let plan = DataLogging.plan(&stripe, &Topology::uniform(3, 2), &ranges, 512).unwrap();
/// gabion_plan::check(&plan, &code).unwrap();
/// ```
pub trait UpdatePlanner: Debug + Sync {
    /// Returns the keepings of update records in chunks of a pool of the scheme, if `reserve_bytes` are reserved behind
    /// a new parity chunk.
    fn keepings(&self, reserve_bytes: u64) -> Keepings;

    /// Chooses nodes for the `k` data and `m` parity chunks of a new stripe, at most `per_rack` in a
    /// rack: at random, unless the scheme saves by racks that hold several.
    ///
    /// # Errors
    /// [`PlanError::NoRoom`] when the topology is too small.
    fn place(
        &self,
        topology: &Topology,
        (k, m): (usize, usize),
        per_rack: usize,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<NodeId>, PlanError> {
        placement::random(topology, k + m, per_rack, rng)
    }

    /// Plans an update as [`delta()`] does, with its inputs and its errors; the scheme is free
    /// to send deltas another way while no chunk is lost. The node that stages new bytes and the node
    /// that plans both call this, so that they agree on where [`gabion_plan::Step::Input`] takes them.
    ///
    /// # Errors
    /// Those of [`delta()`].
    fn plan(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        ranges: &[ChunkRange],
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        delta(stripe, topology, ranges, slice_bytes)
    }

    /// Returns the planner of the scheme's appends and commits, if parity follows later. Stripes with lost chunks are
    /// updated by [`UpdatePlanner::plan`] all the same.
    fn appending(&self) -> Option<&dyn Appending> {
        None
    }
}

/// An update scheme as all others know it. Lists of schemes, help and error sentences derive from it.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Its name in records and on the command line.
    pub scheme: UpdateScheme,
    /// Its description in one line.
    pub help: &'static str,
    /// Its source.
    pub paper: &'static str,
    /// Its planner.
    pub planner: &'static dyn UpdatePlanner,
    /// The way in which its cross-rack traffic is counted.
    pub traffic: Traffic,
}

/// The unit of planning when the traffic of a trace is counted (CAU, section 5.1; `RackCU`, section V).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Each updated chunk of a write, alone.
    EachChunk,
    /// All chunks of a stripe that a write updates.
    EachStripe,
    /// Each chunk, with its old bytes the first time.
    Originals,
    /// Each chunk with its interim replicas, and each stripe at a commit.
    AppendPhases,
}

impl Descriptor {
    /// Whether parity follows later, so that pools have append phases.
    pub fn appends(&self) -> bool {
        self.planner.appending().is_some()
    }

    /// Whether pools choose the number of interim replicas, and may have data grouping
    /// ([`Appending::is_by_rack`]).
    pub fn appends_by_rack(&self) -> bool {
        self.planner.appending().is_some_and(Appending::is_by_rack)
    }

    /// Whether records of updates stay in the nodes' logs until these exceed their limit.
    pub fn keeps_logs(&self) -> bool {
        let keepings = self.planner.keepings(1);
        [keepings.data, keepings.parity].contains(&Keeping::Log)
    }

    /// Whether parity chunks have reserved space behind them.
    pub fn reserves_space(&self) -> bool {
        matches!(self.planner.keepings(1).parity, Keeping::Reserve { .. })
    }
}
