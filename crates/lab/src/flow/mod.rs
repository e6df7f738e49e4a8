//! An event model of a cluster's links and disks: the time of plans when many plans share the links between racks. EAR
//! validates its placement on such a model (section V-B).
//!
//! The model sends no bytes; it simulates only the waits between transfers. It runs the planners' plans, so it times
//! the transfers that the cluster would make. It does not model messages, processes or failures; `sim`, the simulator
//! of whole clusters, does. Equal scenarios and seeds give equal outcomes, to the bit.
//!
//! - [`Fabric`]: nodes, each with a link in, a link out and a disk; racks, each with a link up and one
//!   down. All are full duplex.
//! - [`Engine`]: transfers over paths of links, and timers. [`Sharing`] says how transfers share a link.
//! - [`Script`]: a plan as transfers that wait for each other.
//! - [`simulate`]: encoders, writers and background traffic of a [`Scenario`].
//! - [`Network::carry_out`]: any [`Work`], such as what a cluster did on real links.

mod agenda;
mod engine;
mod fabric;
mod jobs;
mod max_min;
mod scenario;
mod script;
mod sliced;
mod slotted;
mod stripes;
mod work;

pub use agenda::Token;
pub use engine::{Engine, Sharing};
pub use fabric::{Fabric, LinkNumber, Rates};
pub use scenario::{Outcome, Scenario, Settings, exponential, simulate};
pub use script::{Connection, Execution, Flow, Script, Share};
pub use stripes::{EncoderSeat, Layout};
pub use work::{Done, Network, Work};
