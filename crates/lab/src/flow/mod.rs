//! A cluster's links and disks as a model with events: how long plans take when many of them share the
//! links between racks. EAR validates its placement on such a model (section V-B).
//!
//! Nothing is sent and no bytes exist; what is simulated is who waits for whom. The model runs the plans
//! that planners make, so what it times is what the cluster would send. It knows nothing of messages,
//! processes or failures: the simulator of whole clusters, `sim`, does. Equal scenarios and seeds give equal
//! outcomes, to the bit.
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
