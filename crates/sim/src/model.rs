//! A reference model: a map of names to byte vectors, beside a real client on a simulated cluster. The client carries
//! out random operations one after another. Each result, and the cause of each error, must be that of the model.
//!
//! A second client has files open, and knows their layouts of earlier times. Now and then the coordinator or a node is
//! killed and comes back. Only then an operation may end without an outcome: before and after it are both accepted,
//! and a look at the whole cluster decides.
//!
//! A third client is killed or cut off now and then: its locks and sessions end by themselves. Where time decides, the
//! model accepts the outcomes that the cluster promises for that time, and no others.
//!
//! The model knows names, directories, modes, user attributes, sizes, bytes and holes, advisory locks, exclusive
//! sessions, quotas, and snapshots of files and directories. It does not know concurrent clients, which
//! [`crate::registers`] and [`crate::race`] check.

mod answer;
mod check;
mod choices;
mod difference;
mod doubt;
mod draw;
mod draw_more;
mod entry;
mod expected;
mod files;
mod holders;
mod judge;
mod locks;
mod look;
mod operation;
mod options;
mod perform;
mod perform_quotas;
mod perform_sessions;
mod quotas;
mod reports;
mod runner;
mod sole;
mod trees;
mod trouble;
mod within;

use crate::race;
use crate::run::run_script;
use crate::shape::{PAGE_BYTES, Shape, scheme_of};
use gabion_layout::Survive;

pub use operation::Kind;
pub use options::{COVERING_COUNT, ModelCounts, ModelOptions, OPERATIONS_PER_SEED, Reached, Wrong};
use runner::Runner;

/// The watch at every instant takes many times as long, so it runs in one of this number of seeds.
const WATCHED_ONE_IN: u64 = 32;

/// The clients: one that makes the operations, one that knows old layouts, and one that is killed and cut off.
const CLIENT_COUNT: usize = 3;

/// The result of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Modelled {
    /// The first difference, with the number of its operation.
    pub failure: Option<String>,
    /// The last events, oldest first.
    pub log: Vec<String>,
    /// A short description of the cluster.
    pub cluster: String,
    /// What the run has done.
    pub counts: ModelCounts,
}

/// Runs a seed. Equal seeds and options give equal results.
pub fn run_model(seed: u64, options: ModelOptions) -> Modelled {
    let shape = shape_of(seed);
    let cluster = format!(
        "{} with {}, {} inline bytes, {} stripes a window",
        shape.code, shape.update, shape.inline_bytes, shape.window_stripe_count
    );
    let ran = run_script(seed, shape, |cluster, counts| async move {
        if !seed.is_multiple_of(WATCHED_ONE_IN) {
            cluster.watch.rest();
        }
        Runner::run(&cluster, options, &counts).await;
    });
    Modelled {
        failure: ran.failure,
        log: ran.log,
        cluster,
        counts: ran.notes,
    }
}

/// The cluster of a seed: small stripes, each update scheme in turn, with and without inline files.
fn shape_of(seed: u64) -> Shape {
    let shape = race::shape(scheme_of(seed));
    let shape = if (seed / 3).is_multiple_of(2) {
        shape
    } else {
        Shape {
            code: "rs(2,2)".to_owned(),
            node_count: shape.node_count + 1,
            survive: Survive::Nodes(2),
            survived_count: 2,
            ..shape
        }
    };
    Shape {
        client_count: CLIENT_COUNT,
        inline_bytes: [PAGE_BYTES, 0][(seed % 2) as usize],
        window_stripe_count: [1, 2, 512][(seed / 2 % 3) as usize],
        ..shape
    }
}
