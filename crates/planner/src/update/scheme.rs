//! What an update scheme is to everyone else, and the register of schemes.

use super::{Appending, cau, delta, fl, fo, parix, pl, plr, rackcu};
use crate::{PlanError, Stripe, placement};
use gabion_codec::Code;
use gabion_layout::{AppendSpec, ChunkRange, NodeId, ReserveSpec, Topology, UpdateScheme};
use gabion_plan::{Keepings, Plan};
use rand_chacha::ChaCha8Rng;
use std::fmt::Debug;

/// An update scheme: one file beside this one and its line in [`scheme`]. All of them follow the same
/// protocol; a scheme says how deltas come to parity nodes and where records go.
pub trait Scheme: Debug + Sync {
    /// How chunks of a pool of the scheme keep the records of updates, if `reserve_bytes` are
    /// reserved behind a new parity chunk.
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

    /// Plans an update as [`super::delta`] does, with its inputs and its errors; the scheme is free
    /// to send deltas another way while no chunk is lost. Whoever stages new bytes and whoever
    /// plans call this, and agree on where [`gabion_plan::Step::Input`] takes them.
    ///
    /// # Errors
    /// Those of [`super::delta`].
    fn plan(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        ranges: &[ChunkRange],
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        delta(stripe, topology, ranges, slice_bytes)
    }

    /// How the scheme appends and commits, if parity follows later. Stripes with lost chunks are
    /// updated by [`Scheme::plan`] all the same.
    fn appending(&self) -> Option<&dyn Appending> {
        None
    }
}

/// The scheme of a name.
pub fn scheme(name: UpdateScheme) -> &'static dyn Scheme {
    match name {
        UpdateScheme::Fo => &fo::FullOverwrite,
        UpdateScheme::Pl => &pl::ParityLogging,
        UpdateScheme::Plr => &plr::ReservedSpace,
        UpdateScheme::Rackcu => &rackcu::RackCoordinated,
        UpdateScheme::Fl => &fl::FullLogging,
        UpdateScheme::Parix => &parix::Parix,
        UpdateScheme::Cau => &cau::CrossRackAware,
    }
}

/// How new chunks of `chunk_bytes` keep records in a pool of this scheme and reserve.
///
/// ```
/// use gabion_layout::{Keeping, ReserveSpec, UpdateScheme};
/// use gabion_planner::update::keepings;
///
/// let keepings = keepings(UpdateScheme::Plr, Some(ReserveSpec::default()), 1 << 20);
/// assert_eq!(keepings.data, Keeping::InPlace);
/// assert_eq!(keepings.parity, Keeping::Reserve { bytes: 1 << 20 });
/// ```
pub fn keepings(name: UpdateScheme, reserve: Option<ReserveSpec>, chunk_bytes: u64) -> Keepings {
    let reserve_bytes = reserve.map_or(0, |spec| spec.initial_bytes(chunk_bytes));
    scheme(name).keepings(reserve_bytes)
}

/// How many failures stripes of a pool survive while updates of them wait for their parity; none where
/// parity follows at once.
///
/// ```
/// use gabion_layout::{AppendSpec, UpdateScheme};
/// use gabion_planner::update::phase_survives;
///
/// let code = "rs(6,3)".parse().unwrap();
/// let append = Some(AppendSpec::default());
/// assert_eq!(phase_survives(UpdateScheme::Cau, append, &code), Some(1));
/// assert_eq!(phase_survives(UpdateScheme::Plr, None, &code), None);
/// ```
pub fn phase_survives(
    name: UpdateScheme,
    append: Option<AppendSpec>,
    code: &Code,
) -> Option<usize> {
    let appending = scheme(name).appending()?;
    Some(appending.survives(code, &append?))
}
