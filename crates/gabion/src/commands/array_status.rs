//! The arrays of SSDs in nodes' status, as a table and as JSON.

use crate::output::table;
use gabion_layout::NodeId;
use gabion_protocol::message::{ArrayMemory, ArrayStatus, ClusterStatus, DeviceState};
use serde_json::{Value, json};

/// Prints each array; nothing without arrays.
pub(crate) fn print(status: &ClusterStatus) {
    if status.arrays.is_empty() {
        return;
    }
    let mut arrays = table(&["node", "memory", "degraded stripes", "device", "state"]);
    for (node, array) in &status.arrays {
        for (index, device) in array.devices.iter().enumerate() {
            let of_array = [
                node.0.to_string(),
                memory(array.memory).to_owned(),
                format!("{} of {}", array.degraded_stripe_count, array.stripe_count),
            ];
            let once = of_array.map(|text| if index == 0 { text } else { String::new() });
            let own = [device.path.clone(), state(array, device.state)];
            arrays.add_row(once.into_iter().chain(own));
        }
    }
    println!("{arrays}");
}

/// A node's array as JSON; null without one.
pub(crate) fn as_json(status: &ClusterStatus, node: NodeId) -> Value {
    let Some(array) = status.arrays.get(&node) else {
        return Value::Null;
    };
    let devices = array.devices.iter().map(|device| {
        let left = match device.state {
            DeviceState::Rebuilding { left_stripe_count } => left_stripe_count,
            _ => 0,
        };
        json!({
            "path": device.path,
            "state": state_name(device.state),
            "left_stripes": left,
        })
    });
    json!({
        "degraded": array.is_degraded(),
        "degraded_stripes": array.degraded_stripe_count,
        "stripes": array.stripe_count,
        "parity_devices": array.parity_device_count,
        "memory": memory_name(array.memory),
        "devices": devices.collect::<Vec<_>>(),
    })
}

fn state(array: &ArrayStatus, state: DeviceState) -> String {
    match state {
        DeviceState::Rebuilding { left_stripe_count } => {
            let all = u64::from(array.stripe_count).max(1);
            let whole = all.saturating_sub(u64::from(left_stripe_count));
            format!("rebuilding, {} %", 100 * whole / all)
        }
        state => state_name(state).to_owned(),
    }
}

fn state_name(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Whole => "ok",
        DeviceState::Rebuilding { .. } => "rebuilding",
        DeviceState::Absent => "absent",
        DeviceState::Failed => "failed",
    }
}

fn memory(memory: ArrayMemory) -> &'static str {
    match memory {
        ArrayMemory::Dax => "persistent memory (DAX)",
        ArrayMemory::File => "a synced file",
        ArrayMemory::FileOnDevices => "a synced file on the devices' own disk",
    }
}

fn memory_name(memory: ArrayMemory) -> &'static str {
    match memory {
        ArrayMemory::Dax => "dax",
        ArrayMemory::File => "file",
        ArrayMemory::FileOnDevices => "file_on_devices",
    }
}
