//! Files as a whole: writes into holes, snapshots, names by the wire from sixteen clients, and lists of very many
//! names. Each stands beside a goal, and beside what the disk or another request of the same run allows.

mod holes;
mod names;
mod pages;
mod snapshots;

use crate::trial::Trial;
use gabion_client::{Client, ClientOptions};

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Rounds of each measurement; medians are printed.
    pub(crate) round_count: usize,
    /// Stripes of which each measurement of holes writes one range.
    pub(crate) stripe_count: usize,
    /// Bytes of the files of which snapshots are taken.
    pub(crate) snapshot_bytes: [usize; 3],
    /// Snapshots of each file in each state.
    pub(crate) snapshot_count: usize,
    /// Seconds of the creations of each round.
    pub(crate) seconds: u64,
    /// Names that are listed.
    pub(crate) name_count: usize,
}

/// The pool of holes and snapshots, with small stripes, as for images.
const POOL: &str = "stripes";
/// Bytes of a chunk in it.
const CHUNK_BYTES: usize = 128 << 10;
/// Bytes of a stripe in it.
const STRIPE_BYTES: usize = 6 * CHUNK_BYTES;
/// The pool of names, whose files are empty.
const NAMES_POOL: &str = "names";

/// Measures all of it on one cluster, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let arguments = ["--racks=3", "--nodes-per-rack=3"];
    let mut trial = Trial::start(&arguments).await?;
    let pools = [(POOL, "--inline=0"), (NAMES_POOL, "--inline=4KiB")];
    for (pool, inline) in pools {
        let create = ["pool", "create", pool, "--code=rs(6,3)", "--chunk=128KiB"];
        trial.run(&[&create[..], &[inline]].concat()).await?;
    }
    println!(
        "files, rs(6,3) with chunks of 128 KiB on 9 nodes, {} rounds:",
        scale.round_count
    );
    holes::run(&trial, scale).await?;
    snapshots::run(&trial, scale).await?;
    names::run(&trial, scale).await?;
    pages::run(&mut trial, &arguments, scale).await
}

/// A client of its own.
async fn connect(trial: &Trial) -> anyhow::Result<Client> {
    let (coordinator, security) = (trial.coordinator(), trial.security()?);
    Ok(gabion_wire::connect(coordinator, security, ClientOptions::default()).await?)
}

/// Whether a figure reaches a goal.
fn at_least(figure: f64, goal: f64) -> &'static str {
    if figure >= goal { "met" } else { "missed" }
}

/// Whether a figure stays below a goal.
fn at_most(figure: f64, goal: f64) -> &'static str {
    if figure <= goal { "met" } else { "missed" }
}
