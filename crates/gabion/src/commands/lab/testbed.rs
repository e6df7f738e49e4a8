//! `gabion lab testbed`: racks of nodes with limited links on one machine, for as long as a command runs.

use crate::arguments::TestbedOptions;
use crate::failure::Failure;
use gabion_testbed::namespaces::{Seats, Testbed, Uplink};
use gabion_wire::parse_rate;

pub(super) async fn run(options: TestbedOptions) -> Result<(), Failure> {
    let testbed = testbed_of(&options)?;
    if options.inside {
        return Ok(testbed.run_inside(&options.command)?);
    }
    match testbed.run(&options.command).await? {
        0 => Ok(()),
        code => Err(Failure::said_elsewhere(code == 2)),
    }
}

fn testbed_of(options: &TestbedOptions) -> Result<Testbed, Failure> {
    if let Some(file) = &options.regions {
        return Ok(Testbed::of_regions(file, options.nodes_per_rack)?);
    }
    let rate = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or("unlimited");
        parse_rate(text).map_err(Failure::usage)
    };
    let seats = Seats {
        rack_count: options.racks,
        nodes_per_rack: options.nodes_per_rack,
    };
    let uplink = Uplink {
        rate: rate(&options.cross)?,
        spares_core: options.spare_core,
    };
    let node_bytes_per_s = rate(&options.inner)?;
    Ok(Testbed::of_racks(
        seats,
        node_bytes_per_s,
        uplink,
        options.fair,
    ))
}
