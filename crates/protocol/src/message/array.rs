//! How a node's array of SSDs fares, as the node says with each heartbeat.

use serde::{Deserialize, Serialize};

/// What is behind the non-volatile memory of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ArrayMemory {
    /// Persistent memory, mapped directly (DAX).
    Dax,
    /// A file that is synced before a write is acknowledged.
    File,
    /// Such a file on a disk that has devices of the array too, so that each sync waits for their stripes.
    FileOnDevices,
}

/// How a device of an array fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DeviceState {
    /// It is in use and has everything that it should.
    Whole,
    /// It is in use, and gets what it lacks.
    Rebuilding {
        /// Stripes whose chunk it lacks yet.
        left_stripe_count: u32,
    },
    /// Nothing lies at its path.
    Absent,
    /// It was given up after an error, or something lies at its path that is not the array's.
    Failed,
}

/// A device of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Where it lies on its node.
    pub path: String,
    /// How it fares.
    pub state: DeviceState,
}

/// An array of SSDs that a node keeps its store on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArrayStatus {
    /// The devices, in their order.
    pub devices: Vec<DeviceStatus>,
    /// How many devices may be missing.
    pub parity_device_count: u32,
    /// What is behind its non-volatile memory.
    pub memory: ArrayMemory,
    /// Stripes on the devices.
    pub stripe_count: u32,
    /// Those of them that lack a chunk now, because its device is gone or is being rebuilt.
    pub degraded_stripe_count: u32,
}

impl ArrayStatus {
    /// Whether it survives fewer losses of devices than it is made for.
    pub fn is_degraded(&self) -> bool {
        let is_whole = |device: &DeviceStatus| device.state == DeviceState::Whole;
        !self.devices.iter().all(is_whole)
    }
}
