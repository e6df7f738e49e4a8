//! Opens a store: finds its files, replays the journal, writes unfinished images again, finishes
//! unfinished removals, begins a new segment.
//!
//! Another crash may interrupt any step, which is then repeated: replay is idempotent. Damage is
//! reported and not served; the rest works.

use crate::chunk::Header;
use crate::chunk::apply::write_in_place;
use crate::chunk::trash::move_to_trash;
use crate::disk::{Disk, remove_if_there};
use crate::error::{IoContext, StoreError};
use crate::format;
use crate::identity::IdentityFile;
use crate::journal::entry::Entry;
use crate::journal::frame::{self, Check};
use crate::journal::image::Image;
use crate::journal::scan::{Found, decode_entry, scan};
use crate::journal::scrub::JournalDamage;
use crate::journal::segment::{Position, SEGMENT_HEADER_BYTES};
use crate::options::Options;
use crate::paths::{CHUNKS_DIRECTORY, TMP_DIRECTORY, chunk_path, parse_chunk_name};
use crate::records::layer::Pending;
use crate::records::record::Damage;
use crate::reserve::witness::Witness;
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ByteRange, ChunkId, Sequence};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

/// The findings and repairs of opening a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// Whether the disk held no store before.
    pub is_new: bool,
    /// Chunks found.
    pub chunk_count: u64,
    /// Journal entries replayed.
    pub entry_count: u64,
    /// Records in the journal that are pending. A reserve is read, and its damage found, when its
    /// chunk is first needed.
    pub pending_count: u64,
    /// Bytes cut off the journal's end: unsynced frames that a crash left.
    pub torn_bytes: u64,
    /// Chunks whose interrupted apply was finished.
    pub redone: Vec<ChunkId>,
    /// Chunks whose interrupted removal was finished. Their files are in the trash, since it is
    /// unknown whether they were to be kept.
    pub removed: Vec<ChunkId>,
    /// Unfinished chunk files removed.
    pub unfinished_count: u64,
    /// Chunk bytes that cannot be served and need repair.
    pub damage: Vec<Damage>,
    /// Unreadable bytes of the journal.
    pub journal_damage: Vec<JournalDamage>,
    /// Files in the chunks' directories that are not chunks. They stay in place.
    pub foreign: Vec<String>,
}

/// Positions left out when the journal's end is unknown, more than a journal can have had.
const POSITIONS_SKIPPED: u64 = 1 << 56;

/// An image that may not be in place.
struct OpenImage {
    position: Position,
    birth_lsn: u64,
    upto: Sequence,
    reserve_lsn: u64,
    is_damaged: bool,
}

/// The result of replay besides the state itself.
struct Replay {
    disk: Arc<dyn Disk>,
    state: State,
    images: BTreeMap<ChunkId, Vec<OpenImage>>,
    /// The position of each chunk's last removal.
    removed: BTreeMap<ChunkId, u64>,
    /// Positions before this one are untrusted, since the journal is unreadable somewhere before
    /// it.
    trusted_lsn: u64,
    report: RecoveryReport,
}

impl Store {
    /// Opens the store on `disk`, or creates one if the disk is empty.
    ///
    /// # Errors
    /// [`StoreError::UnknownFormat`] when the disk holds other data; [`StoreError::NoSpace`] when
    /// there is no space for the journal; [`StoreError::Busy`] when descriptors or memory run out;
    /// [`StoreError::Io`] when the disk fails or refuses, or the page cache hides it. Damage is no error; the report
    /// names it.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<(Self, RecoveryReport), StoreError> {
        let is_new = format::check_or_create(&*disk)?;
        let (mut identity_file, mut identity) = IdentityFile::open(&*disk)?;
        let mut state = State::new(Arc::clone(&disk), options);
        state.journal.discard_spare()?;
        let mut replay = Replay {
            state,
            disk: Arc::clone(&disk),
            images: BTreeMap::new(),
            removed: BTreeMap::new(),
            trusted_lsn: 0,
            report: RecoveryReport {
                is_new,
                ..RecoveryReport::default()
            },
        };
        replay.find_chunks()?;
        replay.replay_journal()?;
        identity_file.note_found(&mut identity, replay.state.journal.end_lsn())?;
        replay.distrust()?;
        replay.finish_removals()?;
        replay.redo_images()?;
        replay.settle_pending()?;
        replay.state.journal.trim()?;
        replay.state.rotate()?;
        replay.note_redone()?;
        replay.state.journal.reclaim()?;
        match replay.state.make_spare() {
            // Updates are refused until something is applied or removed.
            Err(StoreError::NoSpace { .. }) => {}
            other => other?,
        }
        let report = replay.report;
        let shared = Arc::new(Shared::new(
            disk,
            options,
            (identity, identity_file),
            replay.state,
        ));
        Ok((Self { shared }, report))
    }
}

impl Replay {
    /// Lists the chunks, and removes unfinished files.
    fn find_chunks(&mut self) -> Result<(), StoreError> {
        let disk = Arc::clone(&self.disk);
        let unfinished = disk.list(TMP_DIRECTORY);
        for name in unfinished.context_or_busy("list", TMP_DIRECTORY)? {
            let path = format!("{TMP_DIRECTORY}/{name}");
            remove_if_there(&*disk, &path)?;
            self.report.unfinished_count += 1;
        }
        for name in disk
            .list(CHUNKS_DIRECTORY)
            .context_or_busy("list", CHUNKS_DIRECTORY)?
        {
            let directory = format!("{CHUNKS_DIRECTORY}/{name}");
            let names = match disk.list(&directory) {
                Err(error) if error.kind() == ErrorKind::NotADirectory => {
                    self.report.foreign.push(directory);
                    continue;
                }
                // Its chunks are not known to be lost, so the store must not open without them.
                names => names.context_or_busy("list", &directory)?,
            };
            for name in names {
                let path = format!("{directory}/{name}");
                match parse_chunk_name(&name) {
                    Some(chunk) if chunk_path(chunk) == path => {
                        self.state.index.chunk_or_new(chunk);
                        self.report.chunk_count += 1;
                    }
                    _ => self.report.foreign.push(path),
                }
            }
            // A killed process may leave names that are visible but not yet durable, and the store
            // is about to depend on them.
            disk.sync_directory(&directory)
                .context("sync directory", &directory)?;
            self.state.chunks.note_directory(directory);
        }
        disk.sync_directory(CHUNKS_DIRECTORY)
            .context("sync directory", CHUNKS_DIRECTORY)
    }

    fn replay_journal(&mut self) -> Result<(), StoreError> {
        let journal = &mut self.state.journal;
        let mut bases = journal.open_segments()?;
        let headless = bases.iter().filter(|(_, base_lsn)| base_lsn.is_none());
        let headless: Vec<u64> = headless.map(|(&number, _)| number).collect();
        journal.find_bases(&mut bases)?;
        let segments: Vec<(u64, Option<u64>)> = bases.into_iter().collect();
        for (at, &(number, mut base_lsn)) in segments.iter().enumerate() {
            let later = &segments[at + 1..];
            let next = later.first().copied();
            let end_lsn = next.and_then(|(_, base_lsn)| base_lsn);
            let follows = at > 0 && segments[at - 1].0 + 1 == number;
            if base_lsn.is_none() && follows && self.state.journal.continues(number)? {
                base_lsn = Some(self.state.journal.end_lsn());
            }
            match base_lsn {
                Some(base_lsn) => {
                    if headless.contains(&number) {
                        let range = ByteRange::new(0, SEGMENT_HEADER_BYTES);
                        self.report_journal(number, range);
                    }
                    self.replay_segment(number, base_lsn, end_lsn)?;
                }
                None => self.skip_segment(number, later.iter().find_map(|later| later.1))?,
            }
            if let Some((_, next_lsn)) = next.filter(|&(next, _)| next != number + 1) {
                // Segments are removed from the front only, so a missing one in the middle is lost.
                self.report_journal(number + 1, Damage::WHOLE);
                let trusted_lsn = next_lsn.unwrap_or(self.state.journal.end_lsn());
                self.trusted_lsn = self.trusted_lsn.max(trusted_lsn);
            }
        }
        Ok(())
    }

    /// Treats a segment whose beginning is unknown as one unreadable stretch, which ends where the
    /// next segment of a known position begins.
    fn skip_segment(&mut self, segment: u64, end_lsn: Option<u64>) -> Result<(), StoreError> {
        let end_lsn = match end_lsn {
            Some(end_lsn) => end_lsn,
            // Positions are never reused, and no chunk that may have lost a record may seem younger.
            None => self.highest_lsn()? + POSITIONS_SKIPPED,
        };
        let range = self.state.journal.skip_segment(segment, end_lsn);
        self.trusted_lsn = self.trusted_lsn.max(self.state.journal.end_lsn());
        self.report_journal(segment, range);
        Ok(())
    }

    fn report_journal(&mut self, segment: u64, range: ByteRange) {
        let damage = JournalDamage { segment, range };
        self.report.journal_damage.push(damage);
    }

    /// The highest known position after the last readable segment was replayed: its end, or that of
    /// a chunk's birth.
    fn highest_lsn(&mut self) -> Result<u64, StoreError> {
        let mut highest_lsn = self.state.journal.end_lsn();
        for chunk in self.chunk_ids() {
            match self.state.header(chunk) {
                Ok(header) => highest_lsn = highest_lsn.max(header.birth_lsn),
                // It is not trusted in any case.
                Err(StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(highest_lsn)
    }

    fn replay_segment(
        &mut self,
        number: u64,
        base_lsn: u64,
        end_lsn: Option<u64>,
    ) -> Result<(), StoreError> {
        let frames = self.state.journal.frames(number).expect("it was added");
        let (frames, unreadable_bytes) = frames.read_device()?;
        // Unreadable bytes may have been synced, so the frames before them are no torn tail.
        let synced_lsn = if unreadable_bytes > 0 {
            base_lsn + unreadable_bytes
        } else {
            0
        };
        let offset_of = |lsn: u64| SEGMENT_HEADER_BYTES + lsn - base_lsn;
        let end = scan(&frames, base_lsn, (synced_lsn, end_lsn), |lsn, found| {
            let unreadable_bytes = match found {
                Found::Unreadable(bytes) => bytes,
                Found::Whole(frame) | Found::BodyDamaged(frame) => {
                    let is_damaged = matches!(found, Found::BodyDamaged(_));
                    let position = Position {
                        lsn,
                        segment: number,
                        frame_bytes: frame.padded_bytes as u32,
                    };
                    match decode_entry(&frame) {
                        Some(entry) => return self.replay_entry(entry, position, is_damaged),
                        None => frame.padded_bytes as u64,
                    }
                }
            };
            self.trusted_lsn = self.trusted_lsn.max(lsn + unreadable_bytes);
            self.report_journal(number, ByteRange::new(offset_of(lsn), unreadable_bytes));
            self.state.journal.mark_damaged(number);
        });
        if end_lsn.is_none() {
            let rest = &frames[((end - base_lsn) as usize).min(frames.len())..];
            let torn = rest.iter().rposition(|byte| *byte != 0);
            self.report.torn_bytes = torn.map_or(0, |last| last as u64 + 1);
        }
        self.state.journal.ends_at(end);
        Ok(())
    }

    fn replay_entry(&mut self, entry: Entry, position: Position, is_damaged: bool) {
        self.report.entry_count += 1;
        match entry {
            Entry::Synced | Entry::List { .. } => {}
            Entry::State { stripe, dropped } => self.state.learn(stripe, dropped),
            Entry::Update(head) => {
                let chunk = head.chunk;
                if self.state.chunk(chunk).is_none() {
                    return;
                }
                if is_damaged {
                    let range = head.hull();
                    self.report.damage.push(Damage { chunk, range });
                }
                let stripe = self.state.index.stripe_or_new(chunk.stripe);
                stripe.learn(head.stamp.epoch, head.generation, Sequence(0));
                self.state.note_runs(chunk, head.stamp.sequence, &head.runs);
                self.state.remember(Pending { head, position });
            }
            Entry::Image {
                chunk,
                birth_lsn,
                upto,
                reserve_lsn,
            } => {
                let image = OpenImage {
                    position,
                    birth_lsn,
                    upto,
                    reserve_lsn,
                    is_damaged,
                };
                self.images.entry(chunk).or_default().push(image);
            }
            Entry::Applied { chunk, upto } => {
                let open = self.images.entry(chunk).or_default();
                open.retain(|image| image.upto > upto);
            }
            Entry::Witness {
                chunk,
                birth_lsn,
                synced_lsn,
            } => self.state.note_witness(
                chunk,
                Witness {
                    birth_lsn,
                    synced_lsn,
                },
            ),
            Entry::Runs {
                chunk,
                complete_after,
                runs,
            } => self.state.recall_runs(chunk, complete_after, runs),
            Entry::Removed { chunk } => {
                self.images.remove(&chunk);
                self.removed.insert(chunk, position.lsn);
                match self.state.chunk_mut(chunk) {
                    Some(entry) => {
                        let (gone, _) = entry.take_records();
                        self.state.release(gone);
                    }
                    None => self.state.forget_chunk(chunk),
                }
            }
        }
    }

    /// If the journal has unreadable bytes, trusts only chunks that are younger: any other may have
    /// lost a record or a promise.
    fn distrust(&mut self) -> Result<(), StoreError> {
        if self.trusted_lsn == 0 {
            return Ok(());
        }
        for chunk in self.chunk_ids() {
            match self.state.header(chunk) {
                Ok(header) if header.birth_lsn >= self.trusted_lsn => {
                    // Its earlier records were not trusted then either.
                    if let Some(entry) = self.state.chunk_mut(chunk) {
                        let untrusted = entry.records_mut().take_before(self.trusted_lsn);
                        self.state.release(untrusted);
                    }
                }
                Ok(_) | Err(StoreError::Corrupt { .. }) => {
                    self.state.suspect(chunk);
                    self.report_whole(chunk);
                }
                Err(error) => return Err(error),
            }
        }
        if !self.state.chunks.has_suspects() {
            self.state.journal.clear_damage();
        }
        Ok(())
    }

    fn chunk_ids(&self) -> Vec<ChunkId> {
        self.state.index.chunks().map(|(chunk, _)| chunk).collect()
    }

    fn report_whole(&mut self, chunk: ChunkId) {
        let range = Damage::WHOLE;
        self.report.damage.push(Damage { chunk, range });
    }

    fn finish_removals(&mut self) -> Result<(), StoreError> {
        for (chunk, removed_lsn) in std::mem::take(&mut self.removed) {
            match self.state.header(chunk) {
                Ok(header) if header.birth_lsn <= removed_lsn => {
                    move_to_trash(&*self.disk, &[(chunk, removed_lsn)])?;
                    self.state.forget_chunk(chunk);
                    self.report.removed.push(chunk);
                }
                // It was rewritten since, or removed, or its header is unreadable.
                Ok(_) | Err(StoreError::NoSuchChunk { .. } | StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn redo_images(&mut self) -> Result<(), StoreError> {
        for (chunk, images) in std::mem::take(&mut self.images) {
            let birth_lsn = match self.state.header(chunk) {
                Ok(header) => header.birth_lsn,
                Err(StoreError::NoSuchChunk { .. } | StoreError::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let open = images.iter().filter(|image| image.birth_lsn == birth_lsn);
            for image in open {
                if !self.redo(chunk, image)? {
                    // The chunk may be half changed, and its former bytes are lost.
                    self.state.suspect(chunk);
                    self.state.journal.mark_damaged(image.position.segment);
                    self.report_whole(chunk);
                    break;
                }
                self.report.redone.push(chunk);
            }
        }
        self.report.redone.dedup();
        Ok(())
    }

    /// Writes an image into its chunk again; `false` when the image is damaged.
    fn redo(&mut self, chunk: ChunkId, open: &OpenImage) -> Result<bool, StoreError> {
        let mut header = self.state.header(chunk)?;
        let located = self.state.journal.locate(open.position);
        let mut buffer = Vec::new();
        located.read(&mut buffer)?;
        let image = match frame::decode(&buffer, open.position.lsn) {
            Check::Whole(frame) if !open.is_damaged => Image::decode(frame.body),
            _ => None,
        };
        let extent = header.extent();
        let Some(image) = image.filter(|i| i.fits(extent.chunk_bytes, extent.block_count())) else {
            return Ok(false);
        };
        header.spec.base = header.spec.base.max(open.upto);
        header.reserve_lsn = header.reserve_lsn.max(open.reserve_lsn);
        let path = chunk_path(chunk);
        let file = self.disk.open(&path).context("open", &path)?;
        write_in_place(&*file, header, &image.ranges, &image.block_crcs).context("write", &path)?;
        file.sync().context("sync", &path)?;
        self.state.set_header(header);
        Ok(true)
    }

    /// Logs which images are in place, so that the next start need not write them again.
    fn note_redone(&mut self) -> Result<(), StoreError> {
        for &chunk in &self.report.redone {
            let Ok(header) = self.state.header(chunk) else {
                continue;
            };
            let upto = header.spec.base;
            let applied = Entry::Applied { chunk, upto };
            self.state.journal.append_if_fits(&applied)?;
        }
        Ok(())
    }

    /// Reads the headers of all chunks with pending records, to find which records are still
    /// pending.
    fn settle_pending(&mut self) -> Result<(), StoreError> {
        let chunks = self.state.index.chunks();
        let with_pending = chunks.filter(|(_, chunk)| !chunk.records().is_empty());
        for chunk in with_pending.map(|(id, _)| id).collect::<Vec<_>>() {
            match self.state.header(chunk) {
                Ok(header) => self.state.set_header(header),
                Err(StoreError::Corrupt { .. }) => self.report_whole(chunk),
                Err(error) => return Err(error),
            }
        }
        let chunks = self.state.index.chunks();
        let pending = chunks.map(|(_, chunk)| match chunk.header() {
            Header::Damaged | Header::Torn => 0,
            Header::Unread | Header::Known(_) => chunk.records().pending_count(),
        });
        self.report.pending_count = pending.sum();
        Ok(())
    }
}
