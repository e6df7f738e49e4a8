//! Makes a calibrated workload's requests, one after another, in constant memory.
//!
//! Each write is either a first access of fresh sectors or an update within a hot extent that is
//! complete. Which of the two follows from what the stream is short of at that point, so it comes
//! near its target whatever the seed; the seed decides sizes and places. First accesses become rarer with time, as in
//! real traces.

use super::blueprint::{Blueprint, GAP_SECTORS, READ_SECTORS};
use super::sizes::Deck;
use super::target::Target;
use crate::stats::SECTOR_BYTES;
use crate::trace::{Request, RequestKind};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// The hot part is complete when the working set is at a quarter, so that its last extents are
/// updated too, and so that it gets its share where few first accesses are short enough for it.
const HOT_LEAD: f64 = 4.0;

/// The requests of a calibrated workload, in order.
#[derive(Clone, Debug)]
pub struct Requests {
    target: Target,
    blueprint: Blueprint,
    rng: ChaCha8Rng,
    deck: Deck,
    ticks_per_request: u64,
    at_ticks: u64,
    /// Writes made.
    writes: u64,
    /// Sectors of writes that fit a hot extent, and those of them that were updates.
    fitting: u64,
    updated: u64,
    /// Sectors that reads have brought into the working set.
    read: u64,
    /// Sectors accessed at least once.
    accessed: u64,
    hot: Cursor,
    cold: Cursor,
    /// Sectors of the cold part that are accessed, for files to be cut from it.
    cold_taken: u64,
    /// Files of the cold part that are begun.
    cold_files: u64,
    /// The file of the request made last.
    file: u64,
    /// Number of hot extents that have been updated, in their order.
    updated_extents: u64,
    /// The largest hot extent that is complete, in sectors.
    largest_complete: u64,
}

/// The progress of accesses in one part of the working set.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// The extent or slot that is being filled; earlier ones are complete.
    at: u64,
    /// Sectors of it that are accessed.
    filled: u64,
}

impl Requests {
    pub(super) fn new(target: Target, blueprint: Blueprint, seed: u64) -> Self {
        let reads = blueprint.read.div_ceil(READ_SECTORS);
        Self {
            target,
            blueprint,
            rng: ChaCha8Rng::seed_from_u64(seed),
            deck: Deck::new(target.sizes),
            ticks_per_request: (target.duration_ticks / (target.writes + reads)).max(1),
            at_ticks: 0,
            writes: 0,
            fitting: 0,
            updated: 0,
            read: 0,
            accessed: 0,
            hot: Cursor::default(),
            cold: Cursor::default(),
            cold_taken: 0,
            cold_files: 0,
            file: 0,
            updated_extents: 0,
            largest_complete: 0,
        }
    }

    /// The number of the file that the request given last is to; 0 for a bare volume, as before the
    /// first request. The files that will be updated come first.
    pub const fn file(&self) -> u64 {
        self.file
    }

    /// Sectors that are due to be read by now, if it is worth a request.
    fn read_due(&self) -> Option<u64> {
        let progress = (self.writes + 1) as f64 / self.target.writes as f64;
        let due = ((self.blueprint.read as f64 * progress) as u64).saturating_sub(self.read);
        let is_last = self.writes + 1 == self.target.writes;
        let least = if is_last { GAP_SECTORS } else { READ_SECTORS };
        (due >= least).then(|| READ_SECTORS.min(due - due % GAP_SECTORS))
    }

    fn read(&mut self, wished: u64) -> Request {
        let room = if self.wants_hot(wished) {
            self.hot_room()
        } else {
            self.blueprint.cold_room - self.cold.filled
        };
        // A read is as long as is convenient; only writes keep their sizes.
        let sectors = if room == 0 { wished } else { wished.min(room) };
        self.read += sectors;
        let start = self.first_access(sectors);
        self.request(RequestKind::Read, start, sectors)
    }

    fn write(&mut self) -> Request {
        let sectors = self.deck.deal(&mut self.rng) / SECTOR_BYTES;
        self.writes += 1;
        let start = if self.is_update_due(sectors) {
            self.updated += sectors;
            self.update(sectors)
        } else {
            self.first_access(sectors)
        };
        self.request(RequestKind::Write, start, sectors)
    }

    /// Whether a write of `sectors` sectors has to be an update, and can be.
    fn is_update_due(&mut self, sectors: u64) -> bool {
        if sectors > self.blueprint.extent {
            return false;
        }
        self.fitting += sectors;
        let due = self.fitting as f64 - self.blueprint.first_due(self.fitting as f64);
        let is_nearer = self.updated as f64 + sectors as f64 / 2.0 <= due;
        is_nearer && sectors <= self.largest_complete
    }

    /// A place for an update: in every other one the first extent that has had none, otherwise any
    /// complete extent, the earlier the likelier.
    fn update(&mut self, sectors: u64) -> u64 {
        let is_pending = self.updated_extents < self.hot.at
            && self.blueprint.extent_sectors(self.updated_extents) >= sectors;
        let extent = if is_pending && self.rng.random_range(0..2_u32) == 0 {
            self.updated_extents += 1;
            self.updated_extents - 1
        } else {
            let draw = self.rng.random_range(0.0..1.0_f64);
            let skewed = (self.hot.at as f64 * draw * draw * draw) as u64;
            // Only the last extent can be too short; the first is as large as any.
            if self.blueprint.extent_sectors(skewed) < sectors {
                0
            } else {
                skewed
            }
        };
        self.file = self.hot_file(extent);
        let align = if sectors.is_multiple_of(GAP_SECTORS) {
            GAP_SECTORS
        } else {
            1
        };
        let room = (self.blueprint.extent_sectors(extent) - sectors) / align;
        self.blueprint.hot_start(extent) + self.rng.random_range(0..=room) * align
    }

    /// Takes fresh sectors, neighbours of those taken before where there is room.
    fn first_access(&mut self, sectors: u64) -> u64 {
        let is_hot = self.wants_hot(sectors) && sectors <= self.hot_room();
        self.accessed += sectors;
        if is_hot {
            let start = self.blueprint.hot_start(self.hot.at) + self.hot.filled;
            self.file = self.hot_file(self.hot.at);
            self.hot.filled += sectors;
            if self.hot_room() == 0 {
                self.largest_complete = self.largest_complete.max(self.hot.filled);
                self.hot = Cursor {
                    at: self.hot.at + 1,
                    filled: 0,
                };
            }
            return start;
        }
        if self.cold.filled + sectors > self.blueprint.cold_room {
            self.cold = Cursor {
                at: self.cold.at + 1,
                filled: 0,
            };
        }
        self.file = self.cold_file();
        self.cold_taken += sectors;
        self.cold.filled += sectors;
        self.blueprint.cold_start(self.cold.at) + self.cold.filled - sectors
    }

    /// The file that a hot extent is.
    fn hot_file(&self, extent: u64) -> u64 {
        self.target.files.map_or(0, |_| extent)
    }

    /// The file that the next request to the cold part is to. Files end between requests, at the
    /// first one where the cold part's share of files is reached, and with their slot.
    fn cold_file(&mut self) -> u64 {
        let Some(files) = self.target.files else {
            return 0;
        };
        let cold = (self.blueprint.working_set - self.blueprint.hot).max(1);
        let share = self.cold_taken as f64 / cold as f64;
        // A request longer than a file is one file all the same; the next ones make up for it.
        let is_slot_new = self.cold.filled == 0;
        if is_slot_new || self.cold_files as f64 <= share * files.unchanged() as f64 {
            self.cold_files += 1;
        }
        self.blueprint.extent_count + self.cold_files - 1
    }

    /// Whether the hot part is behind its share of the working set.
    fn wants_hot(&self, sectors: u64) -> bool {
        if self.hot.at == self.blueprint.extent_count || !sectors.is_multiple_of(GAP_SECTORS) {
            return false;
        }
        let taken = self.hot.at * self.blueprint.extent + self.hot.filled;
        let progress = (self.accessed + sectors) as f64 / self.blueprint.working_set as f64;
        (taken as f64) < self.blueprint.hot as f64 * HOT_LEAD * progress
    }

    /// Sectors that the hot extent in hand still lacks; there must be one.
    fn hot_room(&self) -> u64 {
        self.blueprint.extent_sectors(self.hot.at) - self.hot.filled
    }

    fn request(&mut self, kind: RequestKind, start: u64, sectors: u64) -> Request {
        self.at_ticks += self.ticks_per_request;
        Request {
            at_ticks: self.at_ticks,
            kind,
            offset_bytes: (start + self.target.shift_sectors) * SECTOR_BYTES,
            length_bytes: sectors * SECTOR_BYTES,
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.writes == self.target.writes {
            return None;
        }
        Some(match self.read_due() {
            Some(sectors) => self.read(sectors),
            None => self.write(),
        })
    }
}
