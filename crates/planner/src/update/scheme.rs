//! What an update scheme is to everyone else, and the register of schemes.

use super::{fl, fo, pl, plr};
use gabion_layout::{ReserveSpec, UpdateScheme};
use gabion_plan::Keepings;
use std::fmt::Debug;

/// An update scheme: one file beside this one and its line in [`scheme`]. All of them make records in
/// the same way ([`super::delta`]) and follow the same protocol; a scheme says where they go.
pub trait Scheme: Debug + Sync {
    /// How chunks of a pool of the scheme keep the records of updates, if `reserve_bytes` are
    /// reserved behind a new parity chunk.
    fn keepings(&self, reserve_bytes: u64) -> Keepings;
}

/// The scheme of a name.
pub fn scheme(name: UpdateScheme) -> &'static dyn Scheme {
    match name {
        UpdateScheme::Fo => &fo::FullOverwrite,
        UpdateScheme::Fl => &fl::FullLogging,
        UpdateScheme::Pl => &pl::ParityLogging,
        UpdateScheme::Plr => &plr::ReservedSpace,
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
