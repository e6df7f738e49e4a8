//! The pools and the engine of an episode.

use crate::cells::CELL_BYTES;
use crate::dice::Dice;
use gabion_layout::UpdateScheme;
use gabion_planner::update::{Descriptor, SCHEMES};

const KIB: u64 = 1024;

/// The parameters of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) options: Vec<String>,
    /// Nodes that may be harmed at once without losing acknowledged bytes.
    pub(crate) survives: usize,
    /// Cells of a full stripe of its files, in the initial form.
    pub(crate) stripe_cells: u64,
    /// Cells of one chunk in any form of their stripe: operations on them are atomic.
    pub(crate) atomic_cells: u64,
    /// The scheme, for display.
    pub(crate) scheme: &'static str,
}

/// The scheme of pools whose blocks are replicated first.
const REPLICATED: &str = "replicate";

/// Draws the pool of a number.
pub(crate) fn draw_pool(number: u32, dice: &mut Dice) -> Pool {
    // The last turn is that of pools whose blocks are replicated first.
    let mut turns: Vec<Option<&Descriptor>> = SCHEMES.iter().map(Some).collect();
    turns.push(None);
    let known = dice.pick(&turns);
    let scheme = known.map_or(REPLICATED, |known| known.scheme.name());
    let chunk_bytes = dice.pick(&[16 * KIB, 64 * KIB]);
    let mut options = vec![
        "--code=rs(4,2)".to_owned(),
        format!("--chunk={}KiB", chunk_bytes / KIB),
    ];
    let further: &[&str] = match known {
        // Commits are frequent, and chunks move after some.
        Some(known) if known.appends_by_rack() => &["--grouping=authors", "--commit-bytes=64KiB"],
        Some(known) if known.appends() => &["--commit-bytes=256KiB"],
        Some(_) => &[],
        None => &["--write=replicate:3", "--encode-after=20s"],
    };
    options.extend(further.iter().map(|&option| option.to_owned()));
    let update = known.map_or(UpdateScheme::default(), |known| known.scheme);
    options.push(format!("--update={update}"));
    let is_replicated = known.is_none();
    let data_chunks = if is_replicated { 1 } else { 4 };
    let stripe_cells = data_chunks * chunk_bytes / CELL_BYTES;
    // The last segment of replicated blocks has smaller ones, of whole pages.
    let page_cells = 4 * KIB / CELL_BYTES;
    Pool {
        name: format!("pool-{number}"),
        options,
        // Appended bytes have as many copies as the failures that they survive.
        survives: if known.is_some_and(Descriptor::appends) {
            1
        } else {
            2
        },
        stripe_cells,
        atomic_cells: if is_replicated {
            page_cells
        } else {
            stripe_cells
        },
        scheme,
    }
}

/// Draws the engine of all nodes.
pub(crate) fn draw_engine(dice: &mut Dice) -> &'static str {
    if dice.one_in(5) { "tween" } else { "files" }
}
