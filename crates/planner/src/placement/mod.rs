//! Placement planners: they choose the node of each chunk of a new stripe, or the nodes of the replicas of a block that
//! is encoded later. A stripe keeps at most as many chunks in a rack as the pool's promise allows, and encoding-aware
//! replication ensures this before the blocks are encoded.

mod changeover;
mod descriptor;
mod ear;
mod grouped;
mod in_order;
mod matching;
mod rack_by_rack;
mod rack_table;
mod random;
mod replicated;
mod room;
mod rotate;
mod rr;
mod rules;
mod scheme;

pub use changeover::{encoding, promotion};
pub use descriptor::{Descriptor, Grouped, Layout, LayoutDescriptor, ReplicaPlanner};
pub use ear::{EncodingAware, PlacedBlock};
pub use grouped::grouped;
pub use rack_by_rack::rack_by_rack;
pub use rack_table::RackTable;
pub use random::{random, replacement, replacements};
pub use replicated::ReplicatedStripe;
pub use room::{Room, Space};
pub use rotate::rotate;
pub use rr::{RackLimit, random_replication, random_replication_end};
pub use rules::{ParityPlaces, ReplicaSpread, StripeRules};
pub use scheme::{LAYOUTS, REPLICA_PLACEMENTS, descriptor};
