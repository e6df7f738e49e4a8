//! Whether what clients saw of the bytes of files can have happened one operation after another, each at some
//! instant between its call and its answer (Herlihy and Wing, "Linearizability", 1990). It knows calls, answers,
//! times and bytes, and nothing that the system says of itself: no number, no mark, no cut.
//!
//! Each cell of a file is a register, and each write brings a value of its own: `gabion_history` judges it.
//!
//! Writes and reads of one stripe are atomic besides: if a read shows two writes, the one that it shows where both
//! wrote is the later of them, everywhere and in all reads. Pairs are compared, longer circles are not.

use crate::cells::{CELL_BYTES, UpdateId, writer};
use gabion_history::{Register, RegisterContradiction as Contradiction};
use gabion_meta::PutId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use thiserror::Error;

/// What clients saw cannot have happened one after another.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Anomaly {
    /// Bytes that no write brought there.
    #[error("{file:?}: cell {cell} holds {found:02x?}, which no write brought there")]
    Garbage {
        /// The file.
        file: PutId,
        /// The cell.
        cell: u64,
        /// Its bytes.
        found: Vec<u8>,
    },
    /// A read was answered with a value before the write of it was called.
    #[error("{file:?}: cell {cell} shows {write:?} before it was written")]
    Early {
        /// The file.
        file: PutId,
        /// The cell.
        cell: u64,
        /// The write.
        write: UpdateId,
    },
    /// Two values of a cell come before each other.
    #[error("{file:?}: cell {cell} holds {one:?}, then {other:?}, then {one:?} again")]
    Again {
        /// The file.
        file: PutId,
        /// The cell.
        cell: u64,
        /// The value that the last operation wrote or read.
        one: UpdateId,
        /// The other.
        other: UpdateId,
    },
    /// A read shows a write, and in another cell of it what was there before.
    #[error(
        "{file:?}: a read shows {write:?}, and in cell {cell} of it {older:?}, which it replaced"
    )]
    Torn {
        /// The file.
        file: PutId,
        /// The cell.
        cell: u64,
        /// The write of which a part is missing.
        write: UpdateId,
        /// What is there instead.
        older: UpdateId,
    },
}

#[derive(Debug)]
struct Write {
    cells: Vec<Range<u64>>,
    called_us: u64,
    /// `u64::MAX` while it is not acknowledged.
    answered_us: u64,
}

#[derive(Debug, Default)]
struct File {
    cells: Vec<Register<UpdateId>>,
    writes: BTreeMap<UpdateId, Write>,
    /// Pairs of writes of which reads have shown that the first came first.
    order: BTreeSet<(UpdateId, UpdateId)>,
}

/// What a read of one stripe was answered with.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The file.
    pub file: PutId,
    /// The first cell of each piece, counted from the file's start, and the piece's bytes.
    pub pieces: &'a [(u64, Vec<u8>)],
    /// When it was called.
    pub called_us: u64,
    /// When it was answered.
    pub answered_us: u64,
}

/// What follows from a read.
struct Findings {
    shown: Vec<(u64, UpdateId)>,
    pairs: BTreeSet<(UpdateId, UpdateId)>,
}

/// All files' cells.
#[derive(Debug, Default)]
pub struct Registers {
    files: BTreeMap<PutId, File>,
}

impl Registers {
    /// Adds a file of so many cells, before any write of it is called.
    pub fn add_file(&mut self, file: PutId, cell_count: u64) {
        let cells = vec![Register::default(); cell_count as usize];
        let fresh = File {
            cells,
            ..File::default()
        };
        self.files.insert(file, fresh);
    }

    /// A client calls a write. One that is called again, with the same bytes, is still the same write.
    ///
    /// # Panics
    /// When the file or one of the cells does not exist.
    pub fn called(&mut self, file: PutId, write: UpdateId, cells: &[Range<u64>], now_us: u64) {
        let known = self.file(file);
        if known.writes.contains_key(&write) {
            return;
        }
        for cell in cells.iter().cloned().flatten() {
            known.cells[cell as usize].called(write, now_us);
        }
        let called = Write {
            cells: cells.to_vec(),
            called_us: now_us,
            answered_us: u64::MAX,
        };
        known.writes.insert(write, called);
    }

    /// A client was told that its write was not made and never will be.
    ///
    /// # Errors
    /// When a read has shown it.
    pub fn denied(&mut self, _: PutId, _: UpdateId, _: u64) -> Result<(), Anomaly> {
        Ok(())
    }

    /// A client was told that its write is done.
    ///
    /// # Errors
    /// [`Anomaly::Again`].
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
        let called = known.writes.get_mut(&write);
        let called = called.expect("writes are called before they are acknowledged");
        called.answered_us = called.answered_us.min(now_us);
        for cell in called.cells.clone().into_iter().flatten() {
            let noted = known.cells[cell as usize].acknowledged(write, now_us);
            noted.map_err(|contradiction| anomaly(file, cell, contradiction))?;
        }
        Ok(())
    }

    /// Takes a read in.
    ///
    /// # Errors
    /// Whatever it shows to be wrong.
    ///
    /// # Panics
    /// When the file is unknown or the pieces leave it.
    pub fn read(&mut self, seen: &Seen<'_>) -> Result<(), Anomaly> {
        let found = self.find(seen)?;
        let known = self.file(seen.file);
        for (cell, write) in found.shown {
            let register = &mut known.cells[cell as usize];
            let noted = register.saw(write, seen.called_us, seen.answered_us);
            noted.map_err(|contradiction| anomaly(seen.file, cell, contradiction))?;
        }
        known.order.extend(found.pairs);
        Ok(())
    }

    /// Whether a read could have been answered so; nothing follows for later ones.
    ///
    /// # Errors
    /// Whatever it would show to be wrong.
    ///
    /// # Panics
    /// When the file is unknown or the pieces leave it.
    pub fn check(&self, seen: &Seen<'_>) -> Result<(), Anomaly> {
        self.find(seen).map(drop)
    }

    fn find(&self, seen: &Seen<'_>) -> Result<Findings, Anomaly> {
        let file = seen.file;
        let known = &self.files[&file];
        let mut shown = Vec::new();
        for (first, bytes) in seen.pieces {
            for (cell, bytes) in (*first..).zip(bytes.chunks(CELL_BYTES as usize)) {
                let found = || bytes.to_vec();
                let write = writer(cell, bytes).ok_or_else(|| Anomaly::Garbage {
                    file,
                    cell,
                    found: found(),
                })?;
                shown.push((cell, write));
            }
        }
        let writes: BTreeSet<UpdateId> = shown.iter().map(|&(_, write)| write).collect();
        let mut pairs = BTreeSet::new();
        for &(cell, write) in &shown {
            let register = &known.cells[cell as usize];
            let zone = register
                .after(write, seen.called_us, seen.answered_us)
                .map_err(|contradiction| anomaly(file, cell, contradiction))?;
            for (other, its) in register.zones() {
                if other == write || !writes.contains(&other) {
                    continue;
                }
                if zone.is_before(its) || known.is_before(write, other) {
                    return Err(Anomaly::Torn {
                        file,
                        cell,
                        write: other,
                        older: write,
                    });
                }
                pairs.insert((other, write));
            }
        }
        match pairs.iter().find(|&&(a, b)| pairs.contains(&(b, a))) {
            None => Ok(Findings { shown, pairs }),
            Some(&(write, older)) => {
                let is_there = |&&(_, shown): &&(u64, UpdateId)| shown == older;
                let cell = shown.iter().find(is_there).map_or(0, |&(cell, _)| cell);
                Err(Anomaly::Torn {
                    file,
                    cell,
                    write,
                    older,
                })
            }
        }
    }

    fn file(&mut self, file: PutId) -> &mut File {
        let known = self.files.get_mut(&file);
        known.expect("files are added before anything happens to them")
    }
}

impl File {
    /// Whether a write is known to have come before another: by its answer, or by earlier reads.
    fn is_before(&self, one: UpdateId, other: UpdateId) -> bool {
        self.writes[&one].answered_us < self.writes[&other].called_us
            || self.order.contains(&(one, other))
    }
}

/// What a contradiction says of a cell.
fn anomaly(file: PutId, cell: u64, contradiction: Contradiction<UpdateId>) -> Anomaly {
    match contradiction {
        Contradiction::Unwritten(write) => Anomaly::Garbage {
            file,
            cell,
            // The bytes name a write, which was of other cells or of another file.
            found: write.0.to_le_bytes().to_vec(),
        },
        Contradiction::Early(write) => Anomaly::Early { file, cell, write },
        Contradiction::Again { one, other } => Anomaly::Again {
            file,
            cell,
            one,
            other,
        },
    }
}
