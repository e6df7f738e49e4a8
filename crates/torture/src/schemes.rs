//! The pools and the engine of an episode.

use crate::cells::CELL_BYTES;
use crate::dice::Dice;
use gabion_layout::UpdateScheme;

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

/// The schemes to draw from.
/// The scheme of pools whose blocks are replicated first.
const REPLICATED: &str = "replicate";

/// Draws the pool of a number.
pub(crate) fn draw_pool(number: u32, dice: &mut Dice) -> Pool {
    let mut schemes = UpdateScheme::NAMES.map(|(name, _)| name).to_vec();
    schemes.push(REPLICATED);
    let scheme = dice.pick(&schemes);
    let chunk_bytes = dice.pick(&[16 * KIB, 64 * KIB]);
    let mut options = vec![
        "--code=rs(4,2)".to_owned(),
        format!("--chunk={}KiB", chunk_bytes / KIB),
    ];
    let further: &[&str] = match scheme {
        // Commits are frequent, and chunks move after some.
        "cau" => &["--update=cau", "--grouping=authors", "--commit-bytes=64KiB"],
        "parix" => &["--update=parix", "--commit-bytes=256KiB"],
        REPLICATED => &["--update=plr", "--write=replicate:3", "--encode-after=20s"],
        _ => &[],
    };
    options.extend(further.iter().map(|&option| option.to_owned()));
    if further.is_empty() {
        options.push(format!("--update={scheme}"));
    }
    let data_chunks = if scheme == REPLICATED { 1 } else { 4 };
    let stripe_cells = data_chunks * chunk_bytes / CELL_BYTES;
    // The last segment of replicated blocks has smaller ones, of whole pages.
    let is_replicated = scheme == REPLICATED;
    let page_cells = 4 * KIB / CELL_BYTES;
    Pool {
        name: format!("pool-{number}"),
        options,
        // Appended bytes have as many copies as the failures that they survive.
        survives: if matches!(scheme, "cau" | "parix") {
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
