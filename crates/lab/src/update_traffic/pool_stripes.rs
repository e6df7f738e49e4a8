//! Stripes where a pool of an update scheme would put them: at random over all nodes, or as the scheme places.

use super::layout::generator;
use super::scheme::scheme;
use crate::error::LabError;
use gabion_codec::Code;
use gabion_layout::{Geometry, NodeId, Survive, Topology};
use gabion_planner::pool;
use gabion_planner::update::UpdatePlanner;

/// The stripes of a pool, without an end.
#[derive(Clone, Debug)]
pub struct PoolStripes {
    code: Code,
    geometry: Geometry,
    topology: Topology,
    per_rack: usize,
    planner: &'static dyn UpdatePlanner,
    seed: u64,
}

impl PoolStripes {
    /// The stripes of a pool with this code and promise under the update scheme `name`. The seed decides all that the
    /// scheme leaves to chance.
    ///
    /// # Errors
    /// [`LabError::UnknownScheme`]; [`LabError::ChunksOnly`] for a variant that no pool has; [`LabError::Plan`] when
    /// the code does not keep the promise on this topology.
    pub fn new(
        (code, geometry): (Code, Geometry),
        topology: Topology,
        survive: Survive,
        name: &str,
        seed: u64,
    ) -> Result<Self, LabError> {
        let planner = scheme(name)?.of_pools()?.planner;
        Ok(Self {
            per_rack: pool::fit(&code, survive, &topology)?,
            code,
            geometry,
            topology,
            planner,
            seed,
        })
    }

    /// The code.
    pub const fn code(&self) -> &Code {
        &self.code
    }

    /// The stripes' shape.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The nodes and their racks.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The nodes of a stripe's chunks, the same whenever it is asked for.
    ///
    /// # Errors
    /// [`LabError::Plan`] when the topology has no room, which [`PoolStripes::new`] has ruled out.
    pub fn placement(&self, stripe: u64) -> Result<Vec<NodeId>, LabError> {
        let shape = (self.geometry.k(), self.geometry.m());
        let mut rng = generator(self.seed, stripe);
        let placed = self
            .planner
            .place(&self.topology, shape, self.per_rack, &mut rng)?;
        Ok(placed)
    }
}
