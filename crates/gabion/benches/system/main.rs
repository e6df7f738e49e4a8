//! Times the whole system: the built `gabion` command on clusters of real processes on this
//! machine, each figure beside what the hardware, or the emulated links, allow in the same run.
//!
//! The timed operations, each with its yardstick:
//! - `put` of a file: writing as many bytes as the nodes store, plainly and in sequence, with one
//!   sync, to the same file system;
//! - repair of one chunk over emulated links, pipelined (`ECPipe`) and conventional: one healthy
//!   chunk's passage over one such link;
//! - updates of 4 KiB, one at a time: one plain write and sync of 4 KiB;
//! - updates of 4 KiB under each update scheme, one and sixteen at once: each other;
//! - puts, overwrites, reads and removals of small files, inline and in stripes: each other, and new files on the disk;
//! - updates, puts and gets with TLS: the same without;
//! - writes into holes: overwrites of the same ranges; snapshots, names from sixteen clients, and pages of a million
//!   names: the disk's syncs, and a look-up;
//! - requests to an image by NBD and to a file by FUSE: the client's own.
//!
//! These are one machine's figures: all processes share its processors and its disk, so a put can
//! be bound by either, and processor time is printed to tell which. Ratios, not rates, are what to
//! compare. `cargo bench -p gabion --bench system [-- --quick] [put] [updates] [schemes]
//! [small-files] [files] [repair] [tls] [gateways]`; without a name all run. Clusters lie below the temporary directory
//! and are stopped and deleted at the end, on failure and on Ctrl-C too.

mod files;
mod gateways;
mod machine;
mod put;
mod repair;
mod schemes;
mod small_files;
mod tls;
mod trial;
mod updates;

use anyhow::bail;
use std::process::ExitCode;

/// Parts that can be timed by themselves.
const PARTS: [&str; 8] = [
    "put",
    "updates",
    "schemes",
    "small-files",
    "files",
    "repair",
    "tls",
    "gateways",
];

/// Amounts of work.
#[derive(Clone, Copy)]
struct Scale {
    put: put::Scale,
    repair: repair::Scale,
    updates: updates::Scale,
    schemes: schemes::Scale,
    tls: tls::Scale,
    small_files: small_files::Scale,
    files: files::Scale,
    gateways: gateways::Scale,
}

const FULL: Scale = Scale {
    put: put::Scale {
        file_bytes: 1 << 30,
        round_count: 3,
    },
    repair: repair::Scale {
        chunk_mib: 64,
        round_count: 3,
    },
    updates: updates::Scale {
        turn_count: 20,
        turn_updates: 100,
    },
    schemes: schemes::Scale {
        round_count: 5,
        seconds: 2,
    },
    tls: tls::Scale {
        turn_count: 10,
        turn_updates: 100,
        file_bytes: 384 << 20,
    },
    small_files: small_files::Scale {
        round_count: 3,
        seconds: 5,
    },
    files: files::Scale {
        round_count: 3,
        stripe_count: 200,
        snapshot_bytes: [1 << 20, 64 << 20, 1 << 30],
        snapshot_count: 30,
        seconds: 5,
        name_count: 1_000_000,
    },
    gateways: gateways::Scale {
        round_count: 3,
        seconds: 5,
        file_bytes: 256 << 20,
        small_file_count: 10_000,
    },
};

const QUICK: Scale = Scale {
    put: put::Scale {
        file_bytes: 192 << 20,
        round_count: 1,
    },
    repair: repair::Scale {
        chunk_mib: 16,
        round_count: 1,
    },
    updates: updates::Scale {
        turn_count: 3,
        turn_updates: 50,
    },
    schemes: schemes::Scale {
        round_count: 3,
        seconds: 1,
    },
    tls: tls::Scale {
        turn_count: 4,
        turn_updates: 50,
        file_bytes: 96 << 20,
    },
    small_files: small_files::Scale {
        round_count: 1,
        seconds: 3,
    },
    files: files::Scale {
        round_count: 1,
        stripe_count: 40,
        snapshot_bytes: [1 << 20, 16 << 20, 96 << 20],
        snapshot_count: 10,
        seconds: 2,
        name_count: 20_000,
    },
    gateways: gateways::Scale {
        round_count: 1,
        seconds: 2,
        file_bytes: 96 << 20,
        small_file_count: 500,
    },
};

fn main() -> ExitCode {
    // Cargo passes `--bench`, which says nothing new.
    let (mut scale, mut parts) = (FULL, Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => scale = QUICK,
            "--bench" => {}
            name => {
                let Some(part) = PARTS.iter().find(|&&part| part == name) else {
                    eprintln!("unknown argument \"{name}\": known are --quick and {PARTS:?}");
                    return ExitCode::from(2);
                };
                parts.push(*part);
            }
        }
    }
    if parts.is_empty() {
        parts.extend(PARTS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the run-time starts");
    let done = runtime.block_on(async {
        tokio::select! {
            done = run(scale, &parts) => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; everything was cleaned up"),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(scale: Scale, parts: &[&str]) -> anyhow::Result<()> {
    if parts.contains(&"put") {
        put::run(scale.put).await?;
    }
    if parts.contains(&"updates") {
        updates::run(scale.updates).await?;
    }
    if parts.contains(&"schemes") {
        schemes::run(scale.schemes).await?;
    }
    if parts.contains(&"small-files") {
        small_files::run(scale.small_files).await?;
    }
    if parts.contains(&"files") {
        files::run(scale.files).await?;
    }
    if parts.contains(&"repair") {
        repair::run(scale.repair).await?;
    }
    if parts.contains(&"tls") {
        tls::run(scale.tls).await?;
    }
    if parts.contains(&"gateways") {
        gateways::run(scale.gateways).await?;
    }
    Ok(())
}

/// The middle of some figures; with an even count the higher of the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    *figures
        .get(figures.len() / 2)
        .expect("there is a figure for every round")
}

/// A ratio of times and whether it is within its goal.
fn verdict(ratio: f64, goal: f64) -> String {
    let word = if ratio <= goal { "met" } else { "missed" };
    format!("ratio {ratio:.2} (goal at most {goal:.2}: {word})")
}
