//! Stores whose files were changed: chunks, journals and reserves. Each input edits a valid store's files, in bytes or
//! in frames, and may correct the checksums, so that damage also reaches what lies behind them.

mod edits;
mod frames;
mod image;
mod sums;
mod usage;

use crate::mutation::Dice;
use crate::script::Script;
use crate::target::Target;
use edits::{Family, edited};
use image::Image;

/// Chunk files without a reserve, the identity, the format and the trash.
pub(crate) const CHUNK_FILES: Target = target("chunk-files", |input| run(Family::Chunks, input));

/// Segments of the journal.
pub(crate) const JOURNALS: Target = target("journals", |input| run(Family::Journals, input));

/// Chunk files with a reserve.
pub(crate) const RESERVES: Target = target("reserves", |input| run(Family::Reserves, input));

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target {
        name,
        run,
        seeds,
        input_bytes_max: 512,
        // Two segments, the files and their copies in the simulated disk, and what a store reads at once.
        memory_bytes_max: 48 << 20,
        test_input_count: 4_000,
    }
}

/// Edits a family of files, opens the store, and uses it.
fn run(family: Family, input: &[u8]) {
    let mut script = Script::new(input);
    let order = script.u8();
    let image = Image::get();
    let changed = edited(image, family, &mut script);
    usage::open_and_use(image, &changed, order);
}

/// Short scripts from a seed: any bytes are a script.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0]];
    let mut dice = Dice::new(5);
    for mode in 0..4_u8 {
        for operation in 0..8_u8 {
            for at in [0_u8, 1, 2, 4, 8, 16] {
                let mut seed = vec![dice.any() as u8, mode, dice.any() as u8 % 4, operation, at];
                seed.extend((0..12).map(|_| dice.any() as u8));
                seeds.push(seed);
            }
        }
    }
    seeds
}
