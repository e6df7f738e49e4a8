//! The health of a node's array of SSDs, as reported with each heartbeat.

use serde::{Deserialize, Serialize};

/// The kind of an array's non-volatile memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ArrayMemory {
    /// Persistent memory, mapped directly (DAX).
    Dax,
    /// A file that is synced before a write is acknowledged.
    File,
    /// Such a file on a disk that has devices of the array too, so that each sync waits for their stripes.
    FileOnDevices,
}

/// The state of a device of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DeviceState {
    /// It is in use and complete.
    Whole,
    /// It is in use and being rebuilt.
    Rebuilding {
        /// Stripes whose chunk is not rebuilt yet.
        left_stripe_count: u32,
    },
    /// No device is at its path.
    Absent,
    /// It was dropped after an error, or the device at its path does not belong to the array.
    Failed,
}

/// A device of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its path on its node.
    pub path: String,
    /// Its state.
    pub state: DeviceState,
}

/// An array of SSDs that a node keeps its store on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArrayStatus {
    /// The devices, in their order.
    pub devices: Vec<DeviceStatus>,
    /// The number of devices that may fail.
    pub parity_device_count: u32,
    /// The kind of its non-volatile memory.
    pub memory: ArrayMemory,
    /// Stripes on the devices.
    pub stripe_count: u32,
    /// Stripes that lack a chunk now, because its device is missing or is being rebuilt.
    pub degraded_stripe_count: u32,
}

impl ArrayStatus {
    /// Whether it survives fewer device failures than configured.
    pub fn is_degraded(&self) -> bool {
        let is_whole = |device: &DeviceStatus| device.state == DeviceState::Whole;
        !self.devices.iter().all(is_whole)
    }
}
