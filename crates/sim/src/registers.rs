//! Checks whether clients' observations of the bytes of files are linearizable (Herlihy and Wing,
//! "Linearizability", 1990). It uses calls, answers, times and bytes only, and no sequence, mark or cut of
//! the system itself.
//!
//! Each write has unique bytes, so a read identifies the writes that it shows: `gabion_history` checks
//! these block by block, and the promise of a write of several blocks.
//!
//! The zeros behind the end of the put are a write as well, until an operation makes other cells zero. From then
//! on, zero cells follow the weaker rules of `zeros.rs`, and all others still those of `gabion_history`.

use crate::cells::{CELL_BYTES, UpdateId, writer};
use crate::zeros::Zeros;
use gabion_history::{Blocks, Contradiction};
use gabion_meta::PutId;
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

/// Observations that are not linearizable.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Anomaly {
    /// Bytes that no write stored there.
    #[error("{file:?}: cell {cell} holds {found:02x?}, which no write wrote there")]
    Garbage {
        /// The file.
        file: PutId,
        /// The cell.
        cell: u64,
        /// Its bytes.
        found: Vec<u8>,
    },
    /// A cell that is zero although a write came after all that can have made it zero, or the reverse.
    #[error("{file:?}: cell {cell} shows {shown}, which an acknowledged operation replaced")]
    Replaced {
        /// The file.
        file: PutId,
        /// The cell.
        cell: u64,
        /// Zeros, or a write.
        shown: String,
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

/// The write of the zeros that a file consists of before all others.
const ZEROS: UpdateId = UpdateId(u32::MAX);

/// All files' cells.
#[derive(Debug, Default)]
pub struct Registers {
    files: BTreeMap<PutId, Known>,
    /// Writes that their client has replaced in its cache, and the time at which the later write was stored.
    replaced: BTreeMap<UpdateId, u64>,
}

/// A file's cells.
#[derive(Debug)]
struct Known {
    blocks: Blocks<UpdateId>,
    cells_per_block: u64,
    /// Cells within the put: a write of these alone is an update in place, unless the file was truncated, punched or
    /// shared.
    put_cells: u64,
    /// Whether its stripes may be in other files too, so that a write of one may store it anew.
    is_shared: bool,
    /// Whether cells may be zero.
    has_holes: bool,
    zeros: Zeros,
}

/// The result of a read: ranges of cells, and the write of each.
type Shown = Vec<(Range<u64>, UpdateId)>;

impl Registers {
    /// Adds a file before any write of it is called. Its atomic blocks are stripes, or replicated blocks if
    /// there are any, since the borders of stripes change then.
    ///
    /// # Panics
    /// When blocks have no cells.
    pub fn add_file(&mut self, file: PutId, cells_per_block: u64) {
        let cells = Known {
            blocks: Blocks::new(cells_per_block),
            cells_per_block,
            put_cells: u64::MAX,
            is_shared: false,
            has_holes: false,
            zeros: Zeros::default(),
        };
        self.files.insert(file, cells);
    }

    /// The cells of a range, behind those of the put, are zero when the put takes effect, whether or not the file
    /// is so large then.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn add_holes(&mut self, file: PutId, cells: &Range<u64>, called_us: u64) {
        let known = self.file(file);
        known.put_cells = cells.start;
        known.zeros = Zeros::behind(cells.start);
        known.has_holes = true;
        let blocks = &mut known.blocks;
        blocks.called(ZEROS, std::slice::from_ref(cells), called_us);
    }

    /// A put has taken effect by now.
    ///
    /// # Errors
    /// [`Anomaly::NoOrder`].
    pub fn exists(&mut self, file: PutId, now_us: u64) -> Result<(), Anomaly> {
        let known = self.files.get_mut(&file);
        let Some(known) = known.filter(|known| known.has_holes) else {
            return Ok(());
        };
        let told = known.blocks.answered(ZEROS, now_us);
        told.map_err(|why| Anomaly::NoOrder { file, why })
    }

    /// A client calls a write. A repeated call, with the same bytes, is the same write.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn called(&mut self, file: PutId, write: UpdateId, cells: &[Range<u64>], now_us: u64) {
        let known = self.file(file);
        let is_in_place = cells.iter().all(|range| range.end <= known.put_cells);
        if is_in_place && !known.is_shared && !known.zeros.is_any() {
            known.blocks.called(write, cells, now_us);
        } else {
            known.blocks.called_anew(write, cells, now_us);
        }
        if known.has_holes {
            known.zeros.called(write, cells, now_us);
        }
    }

    /// Other files may share the file's stripes from now on.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn shared(&mut self, file: PutId) {
        let known = self.file(file);
        known.is_shared = true;
        known.blocks.may_store_anew();
    }

    /// A client calls an operation that makes cells zero. Returns its number.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn zeroing(&mut self, file: PutId, cells: Range<u64>, now_us: u64) -> usize {
        self.file(file).zeros.zeroing(cells, now_us)
    }

    /// Such an operation was acknowledged.
    ///
    /// # Panics
    /// When it was not called.
    pub fn zeroed(&mut self, file: PutId, number: usize, now_us: u64) {
        self.file(file).zeros.zeroed(number, now_us);
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
        let known = self.file(file);
        known.zeros.acknowledged(write, now_us);
        let told = known.blocks.answered(write, now_us);
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
        let told = self.file(file).blocks.denied(write);
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
        let known = self.file(file);
        known.zeros.ended(write, now_us);
        let told = known.blocks.ended(write, now_us);
        told.map_err(|why| Anomaly::NoOrder { file, why })
    }

    /// The client of a write has replaced it in its cache and stored the later write, so no read that is called from
    /// now on may show it.
    pub fn replaced(&mut self, write: UpdateId, now_us: u64) {
        self.replaced.insert(write, now_us);
    }

    /// Whether a read shows none that was replaced before its call.
    fn check_replaced(&self, seen: &Seen<'_>) -> Result<(), Anomaly> {
        if self.replaced.is_empty() {
            return Ok(());
        }
        let cells = seen.pieces.iter().flat_map(|(first, bytes)| {
            let cells = bytes.chunks(CELL_BYTES as usize);
            (*first..).zip(cells)
        });
        for (cell, bytes) in cells {
            let write = writer(cell, bytes);
            let at_us = write.and_then(|write| self.replaced.get(&write));
            if at_us.is_some_and(|&at_us| at_us <= seen.called_us) {
                let (file, shown) = (seen.file, format!("{write:?}"));
                return Err(Anomaly::Replaced { file, cell, shown });
            }
        }
        Ok(())
    }

    /// Adds a read.
    ///
    /// # Errors
    /// The anomaly that it shows.
    ///
    /// # Panics
    /// When the file is unknown.
    pub fn read(&mut self, seen: &Seen<'_>) -> Result<(), Anomaly> {
        self.check_replaced(seen)?;
        let (file, known) = (seen.file, self.file(seen.file));
        for shown in known.checked(seen)? {
            let told = known.blocks.read(&shown, seen.called_us, seen.answered_us);
            told.map_err(|why| Anomaly::NoOrder { file, why })?;
        }
        Ok(())
    }

    /// Checks a hypothetical read, without adding it.
    ///
    /// # Errors
    /// The anomaly that it would show.
    ///
    /// # Panics
    /// When the file is unknown.
    pub fn check(&self, seen: &Seen<'_>) -> Result<(), Anomaly> {
        self.check_replaced(seen)?;
        let (file, known) = (seen.file, &self.files[&seen.file]);
        for shown in known.checked(seen)? {
            let told = known.blocks.check(&shown, seen.called_us, seen.answered_us);
            told.map_err(|why| Anomaly::NoOrder { file, why })?;
        }
        Ok(())
    }

    fn file(&mut self, file: PutId) -> &mut Known {
        let known = self.files.get_mut(&file);
        known.expect("files are added before anything happens to them")
    }

    /// Whether there is such a file.
    pub fn knows(&self, file: PutId) -> bool {
        self.files.contains_key(&file)
    }
}

impl Known {
    /// Checks a read without the order of operations. Returns the reads of which it consists, for which there
    /// must be one.
    fn checked(&self, seen: &Seen<'_>) -> Result<[Shown; 2], Anomaly> {
        let mut shown = shown(seen, self.has_holes)?;
        if !self.zeros.is_any() {
            return Ok(self.without_ends(shown));
        }
        let Seen {
            file, called_us, ..
        } = *seen;
        for &(ref cells, write) in &shown {
            let wrong = if write == ZEROS {
                self.zeros.wrong_zero(cells, called_us, seen.answered_us)
            } else {
                self.zeros.wrong_write(cells, write, called_us)
            };
            if let Some(cell) = wrong {
                let shown = if write == ZEROS {
                    "zeros".to_owned()
                } else {
                    format!("{write:?}")
                };
                return Err(Anomaly::Replaced { file, cell, shown });
            }
        }
        shown.retain(|&(_, write)| write != ZEROS);
        Ok([shown, Vec::new()])
    }

    /// Splits a read into the zeros at the ends of what it shows of each block, and the rest. The end of a
    /// segment may be a hole behind its stripe, and is not of one moment with the stripe.
    fn without_ends(&self, shown: Shown) -> [Shown; 2] {
        let (mut rest, mut ends) = (Shown::new(), Shown::new());
        let mut behind: Option<u64> = None;
        for (cells, write) in shown.into_iter().rev() {
            if write != ZEROS {
                behind = Some(cells.start);
                rest.push((cells, write));
                continue;
            }
            let mut end = cells.end;
            while cells.start < end {
                let border = (end - 1) / self.cells_per_block * self.cells_per_block;
                let part = cells.start.max(border)..end;
                // The next shown cells, if they are of the same block, have been read with it.
                let is_last = behind != Some(end) || end.is_multiple_of(self.cells_per_block);
                if is_last {
                    ends.push((part.clone(), write));
                } else {
                    rest.push((part.clone(), write));
                    behind = Some(part.start);
                }
                end = part.start;
            }
        }
        rest.reverse();
        ends.reverse();
        [rest, ends]
    }
}

/// The writes that a read shows, with their positions.
fn shown(seen: &Seen<'_>, has_holes: bool) -> Result<Shown, Anomaly> {
    let mut shown = Shown::new();
    for (first, bytes) in seen.pieces {
        for (cell, bytes) in (*first..).zip(bytes.chunks(CELL_BYTES as usize)) {
            let is_zero = has_holes && bytes.iter().all(|byte| *byte == 0);
            let write = if is_zero {
                Some(ZEROS)
            } else {
                writer(cell, bytes)
            };
            let Some(write) = write else {
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
