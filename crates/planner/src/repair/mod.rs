//! Repair planners, and reads that need them. Each scheme defines how one row of a lost chunk is combined at one node.
//! A repair writes the row there; a degraded read delivers it.

mod aggregate;
mod catch_up;
mod conventional;
mod cyclic;
pub(crate) mod degraded_read;
mod descriptor;
pub(crate) mod lost_row;
mod multi;
mod ppr;
mod rack_path;
mod recovery;
mod relocation;
pub(crate) mod rp;
mod scheme;
mod selection;
mod shares;
mod single;
mod weighted_path;

pub use aggregate::fewest_crossing_chunks;
pub use catch_up::{Touched, catch_up, missed};
pub use degraded_read::{helpers_by_distance, read};
pub use descriptor::{Descriptor, MultiScheme, Scheme};
pub use multi::{repair_all, repair_together};
pub use rack_path::rack_aware_path;
pub use recovery::{Assignment, Bandwidths, Job, Schedule, balanced_recovery, greedy_recovery};
pub use relocation::move_chunk;
pub use scheme::{SCHEMES, descriptor};
pub use selection::LeastRecentlySelected;
pub use single::repair;
pub use weighted_path::{
    CANDIDATES_MAX, LinkWeights, WeightedPath, weighted_path, weighted_path_by_extension,
    weighted_path_to_all,
};
