//! Events that the model of links gets through in a second, in the setting of EAR's simulations: flows
//! that share links fairly, and flows that take turns, by the block and by slots of 1 MiB.
//!
//! `cargo bench -p gabion-sim --bench flow -- --quick` encodes a tenth.

use gabion_planner::placement::{ParityPlaces, RackLimit};
use gabion_sim::flow::{
    EncoderSeat, Execution, Layout, Rates, Scenario, Settings, Sharing, simulate,
};
use std::time::Instant;

const MIB: u64 = 1 << 20;

fn scenario(layout: Layout, sharing: Sharing, stripes_per_encoder: u32) -> Scenario {
    Scenario {
        rack_count: 20,
        nodes_per_rack: 20,
        rates: Rates {
            node_bytes_per_s: 125e6,
            rack_bytes_per_s: 125e6,
            disk_bytes_per_s: None,
        },
        data_count: 10,
        parity_count: 4,
        per_rack: 1,
        target_rack_count: None,
        replica_count: 3,
        chunk_bytes: 64 * MIB,
        layout,
        encoder_count: 20,
        stripes_per_encoder,
        writes_per_s: 1.0,
        background_per_s: 1.0,
        background_mean_bytes: (64 * MIB) as f64,
        background_cross_share: 0.5,
        settings: Settings {
            sharing,
            encoder_seat: EncoderSeat::Drawn,
            is_core_encoder_nearest: false,
            is_writer_at_first_replica: true,
            write: Execution::Serial,
            encoding: Execution::Serial,
        },
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let stripes = if is_quick { 5 } else { 50 };
    let sharings = [
        ("max-min", Sharing::MaxMin),
        (
            "slots of 64 MiB",
            Sharing::Slotted {
                slot_bytes: 64 * MIB,
            },
        ),
        ("slots of 1 MiB", Sharing::Slotted { slot_bytes: MIB }),
    ];
    let layouts = [
        ("RR", Layout::Random(RackLimit::Ignored)),
        ("EAR", Layout::EncodingAware(ParityPlaces::Anywhere)),
    ];
    for (sharing_name, sharing) in sharings {
        for (layout_name, layout) in layouts {
            let scenario = scenario(layout, sharing, stripes);
            let start = Instant::now();
            let outcome = simulate(&scenario, 1).expect("the scenario fits");
            let seconds = start.elapsed().as_secs_f64();
            let rate = outcome.event_count as f64 / seconds / 1e6;
            println!(
                "{sharing_name:16} {layout_name:4} {:9} events {seconds:7.3} s {rate:7.3} million/s",
                outcome.event_count
            );
        }
    }
}
