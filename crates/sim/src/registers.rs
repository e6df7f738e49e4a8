//! Whether what clients saw of the bytes of files can have happened one operation after another, each at some
//! instant between its call and its answer (Herlihy and Wing, "Linearizability", 1990). It knows calls, answers,
//! times and bytes, and nothing that the system says of itself: no number, no mark, no cut.
//!
//! Each cell of a file is a register, and each write brings a value of its own. So a read names the write that it
//! shows, and the question is decided value by value (Gibbons and Korach, "Testing shared memories", 1997): the
//! *zone* of a value reaches from the earliest answer of an operation that wrote or read it to the latest call of
//! one. Of two values one comes first if an operation with it was answered before one with the other was called; a
//! register is linearizable if no two values come before each other, and no value is read before it was written.
//!
//! - A write that was acknowledged took effect once, between its call and its answer.
//! - A write that was not may take effect at any time after its call, or never.
//!
//! Writes and reads of one stripe are atomic besides: if a read shows two writes, the one that it shows where both
//! wrote is the later of them, everywhere and in all reads. Pairs are compared, longer circles are not.

use crate::cells::{CELL_BYTES, UpdateId, writer};
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

/// When a value was certainly there: from the first answer of an operation with it to the last call of one.
#[derive(Clone, Copy, Debug)]
struct Zone {
    write: UpdateId,
    /// `u64::MAX` while no operation with it was answered.
    answered_us: u64,
    called_us: u64,
}

impl Zone {
    /// Whether an operation with this value was answered before one with the other was called.
    fn is_before(&self, other: &Self) -> bool {
        self.answered_us < other.called_us
    }

    /// The zone after one more operation with the value.
    fn with(self, called_us: u64, answered_us: u64) -> Self {
        Self {
            write: self.write,
            answered_us: self.answered_us.min(answered_us),
            called_us: self.called_us.max(called_us),
        }
    }
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
    /// The values of each cell, in the order of their calls.
    cells: Vec<Vec<Zone>>,
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
        let cells = vec![Vec::new(); cell_count as usize];
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
            known.cells[cell as usize].push(Zone {
                write,
                answered_us: u64::MAX,
                called_us: now_us,
            });
        }
        let called = Write {
            cells: cells.to_vec(),
            called_us: now_us,
            answered_us: u64::MAX,
        };
        known.writes.insert(write, called);
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
        let (cells, called_us) = (called.cells.clone(), called.called_us);
        for cell in cells.into_iter().flatten() {
            let zone = known.zone(file, cell, write, (called_us, now_us))?;
            known.set(cell, zone);
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
            let times = (seen.called_us, seen.answered_us);
            let zone = known.zone(seen.file, cell, write, times)?;
            known.set(cell, zone);
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
            let times = (seen.called_us, seen.answered_us);
            let zone = known.zone(file, cell, write, times)?;
            for other in &known.cells[cell as usize] {
                if other.write == write || !writes.contains(&other.write) {
                    continue;
                }
                if known.is_before(&zone, other) {
                    return Err(Anomaly::Torn {
                        file,
                        cell,
                        write: other.write,
                        older: write,
                    });
                }
                pairs.insert((other.write, write));
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
    /// The zone of a cell's value after one more operation with it.
    fn zone(
        &self,
        file: PutId,
        cell: u64,
        write: UpdateId,
        (called_us, answered_us): (u64, u64),
    ) -> Result<Zone, Anomaly> {
        let zones = &self.cells[cell as usize];
        let Some(zone) = zones.iter().find(|zone| zone.write == write) else {
            // The bytes name a write, which was of other cells or of another file.
            let found = write.0.to_le_bytes().to_vec();
            return Err(Anomaly::Garbage { file, cell, found });
        };
        if answered_us < self.writes[&write].called_us {
            return Err(Anomaly::Early { file, cell, write });
        }
        let zone = zone.with(called_us, answered_us);
        let is_circle =
            |other: &&Zone| other.write != write && zone.is_before(other) && other.is_before(&zone);
        match zones.iter().find(is_circle) {
            None => Ok(zone),
            Some(other) => Err(Anomaly::Again {
                file,
                cell,
                one: write,
                other: other.write,
            }),
        }
    }

    fn set(&mut self, cell: u64, zone: Zone) {
        let mut zones = self.cells[cell as usize].iter_mut();
        let known = zones.find(|known| known.write == zone.write);
        *known.expect("zones are of values that were written there") = zone;
    }

    /// Whether a write is known to have come before another: in this cell, by its answer, or by earlier reads.
    fn is_before(&self, one: &Zone, other: &Zone) -> bool {
        let (first, second) = (&self.writes[&one.write], &self.writes[&other.write]);
        one.is_before(other)
            || first.answered_us < second.called_us
            || self.order.contains(&(one.write, other.write))
    }
}
