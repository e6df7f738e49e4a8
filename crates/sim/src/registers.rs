//! Checks whether clients' observations of the bytes of files are linearizable (Herlihy and Wing,
//! "Linearizability", 1990). It uses calls, answers, times and bytes only, and no sequence, mark or cut of
//! the system itself.
//!
//! Each write has unique bytes, so a read identifies the writes that it shows: `gabion_history` checks
//! these block by block, and the promise of a write of several blocks.

use crate::cells::{CELL_BYTES, UpdateId, writer};
use gabion_history::{Blocks, Contradiction};
use gabion_meta::PutId;
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

/// Observations that are not linearizable.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Anomaly {
    /// Bytes that no write stored there.
    #[error("{file:?}: cell {cell} holds {found:02x?}, which no write brought there")]
    Garbage {
        /// The file.
        file: PutId,
        /// The cell.
        cell: u64,
        /// Its bytes.
        found: Vec<u8>,
    },
    /// Operations that no order explains.
    #[error("{file:?}: {why}")]
    NoOrder {
        /// The file.
        file: PutId,
        /// The operations.
        why: Contradiction<UpdateId>,
    },
}

/// The result of a read.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The file.
    pub file: PutId,
    /// The first cell of each piece, counted from the file's start, and the piece's bytes.
    pub pieces: &'a [(u64, Vec<u8>)],
    /// The time of its call.
    pub called_us: u64,
    /// The time of its answer.
    pub answered_us: u64,
}

/// All files' cells.
#[derive(Debug, Default)]
pub struct Registers {
    files: BTreeMap<PutId, Blocks<UpdateId>>,
}

impl Registers {
    /// Adds a file before any write of it is called. Its atomic blocks are stripes, or replicated blocks if
    /// there are any, since the borders of stripes change then.
    ///
    /// # Panics
    /// When blocks have no cells.
    pub fn add_file(&mut self, file: PutId, cells_per_block: u64) {
        self.files.insert(file, Blocks::new(cells_per_block));
    }

    /// A client calls a write. A repeated call, with the same bytes, is the same write.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn called(&mut self, file: PutId, write: UpdateId, cells: &[Range<u64>], now_us: u64) {
        self.file(file).called(write, cells, now_us);
    }

    /// A client was told that its write succeeded.
    ///
    /// # Errors
    /// [`Anomaly::NoOrder`].
    ///
    /// # Panics
    /// When it was not called.
    pub fn acknowledged(
        &mut self,
        file: PutId,
        write: UpdateId,
        now_us: u64,
    ) -> Result<(), Anomaly> {
        let told = self.file(file).answered(write, now_us);
        told.map_err(|why| Anomaly::NoOrder { file, why })
    }

    /// A client was told that its write has failed and will never succeed. It may call it again.
    ///
    /// # Errors
    /// [`Anomaly::NoOrder`].
    ///
    /// # Panics
    /// When it was not called.
    pub fn denied(&mut self, file: PutId, write: UpdateId) -> Result<(), Anomaly> {
        let told = self.file(file).denied(write);
        told.map_err(|why| Anomaly::NoOrder { file, why })
    }

    /// A write has ended, and its client does not know whether it succeeded: by now it is complete, or
    /// never will be.
    ///
    /// # Errors
    /// [`Anomaly::NoOrder`].
    ///
    /// # Panics
    /// When it was not called.
    pub fn ended(&mut self, file: PutId, write: UpdateId, now_us: u64) -> Result<(), Anomaly> {
        let told = self.file(file).ended(write, now_us);
        told.map_err(|why| Anomaly::NoOrder { file, why })
    }

    /// Adds a read.
    ///
    /// # Errors
    /// The anomaly that it shows.
    ///
    /// # Panics
    /// When the file is unknown.
    pub fn read(&mut self, seen: &Seen<'_>) -> Result<(), Anomaly> {
        let (file, shown) = (seen.file, shown(seen)?);
        let told = self
            .file(file)
            .read(&shown, seen.called_us, seen.answered_us);
        told.map_err(|why| Anomaly::NoOrder { file, why })
    }

    /// Checks a hypothetical read, without adding it.
    ///
    /// # Errors
    /// The anomaly that it would show.
    ///
    /// # Panics
    /// When the file is unknown.
    pub fn check(&self, seen: &Seen<'_>) -> Result<(), Anomaly> {
        let (file, shown) = (seen.file, shown(seen)?);
        let told = self.files[&file].check(&shown, seen.called_us, seen.answered_us);
        told.map_err(|why| Anomaly::NoOrder { file, why })
    }

    fn file(&mut self, file: PutId) -> &mut Blocks<UpdateId> {
        let known = self.files.get_mut(&file);
        known.expect("files are added before anything happens to them")
    }
}

/// The writes that a read shows, with their positions.
fn shown(seen: &Seen<'_>) -> Result<Vec<(Range<u64>, UpdateId)>, Anomaly> {
    let mut shown: Vec<(Range<u64>, UpdateId)> = Vec::new();
    for (first, bytes) in seen.pieces {
        for (cell, bytes) in (*first..).zip(bytes.chunks(CELL_BYTES as usize)) {
            let Some(write) = writer(cell, bytes) else {
                return Err(Anomaly::Garbage {
                    file: seen.file,
                    cell,
                    found: bytes.to_vec(),
                });
            };
            match shown.last_mut() {
                Some((range, last)) if *last == write && range.end == cell => range.end = cell + 1,
                _ => shown.push((cell..cell + 1, write)),
            }
        }
    }
    Ok(shown)
}
