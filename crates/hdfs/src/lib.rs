//! Repair of HDFS's erasure-coded blocks by Gabion's plans.
//!
//! An [`Agent`] runs beside each `DataNode` of a Hadoop cluster. The plugin in the `DataNode` (`hdfs/`, in Java) hands
//! a reconstruction task to its agent. The agent plans the repair as for a stripe of Gabion's own, gives the other
//! agents their parts, and returns the rebuilt bytes to the plugin, which writes them by the `DataNode`'s own writer.
//! A helper's agent reads a block only after its `DataNode` has verified the block's token, and verifies every byte
//! that it reads. For the recovery of many blocks an agent plans one schedule, and passes orders on to its plugin.
//!
//! Planners, checker, executor and the driver of parts are those of Gabion's nodes. docs/hdfs.md has the protocol.

mod agent;
mod block;
mod diagnosis;
mod error;
mod flows;
mod frame;
mod helper;
mod message;
mod plans;
mod policy;
mod requestor;
mod restore;
mod rows;
mod runs;
mod schedule;
mod stored;
#[cfg(test)]
mod tests;

pub use agent::Agent;
pub use block::{BlockFile, Checksum};
pub use error::HdfsError;
pub use policy::{Codec, Policy};
pub use restore::{Restoration, Restored};
pub use stored::Format;
