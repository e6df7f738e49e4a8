//! The node's journal: numbered segments of frames, appended at one end.
//!
//! A position in the journal (`lsn`) counts the bytes of all frames ever appended. A segment's
//! header gives the position at which it begins; the previous segment ends there. A segment begins
//! with a checkpoint of all stripes' state, so an older one may be removed once no record or image
//! in it is needed. Segments begin small and grow with use and with the largest record, so that an
//! idle node takes little space. A spare segment stays allocated: when the disk is full, updates are refused,
//! but fences and applies, which free space, still have the spare.

mod base;
pub(crate) mod checkpoint;
pub(crate) mod entry;
pub(crate) mod frame;
pub(crate) mod group;
pub(crate) mod image;
mod lost_file;
mod reclaim;
pub(crate) mod scan;
pub(crate) mod scrub;
pub(crate) mod segment;

use crate::chunk::file::BLOCK_BYTES;
use crate::counts::Counters;
use crate::disk::{Disk, DiskFile, remove_if_there};
use crate::error::{IoContext, StoreError, is_inconclusive, is_lost};
use crate::journal::entry::{Entry, Head as _, IMAGE as IMAGE_KIND};
use crate::journal::lost_file::LostFile;
use crate::journal::segment::{
    Frames, Holder, Located, Position, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, decode_header,
    encode_header,
};
use crate::options::{Options, SEGMENT_BYTES_MIN};
use crate::paths::{JOURNAL_DIRECTORY, SPARE_PATH, parse_segment_name, segment_path};
use crate::records::record::Damage;
use crate::sync_lock::SyncLock;
use gabion_layout::ByteRange;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Space for the next segment. Its file stays open, so that a rotation needs no descriptor.
struct Spare {
    file: Arc<dyn DiskFile>,
    bytes: u64,
}

/// The journal. All its methods except [`Journal::synced`] run under the store's state lock.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    options: Options,
    segments: BTreeMap<u64, Segment>,
    /// The position behind the last frame.
    end_lsn: u64,
    /// The position behind the last frame that a caller may wait for.
    needed_lsn: u64,
    synced_lsn: Arc<AtomicU64>,
    /// The syncs of the current segment.
    tail_syncs: Arc<SyncLock>,
    /// The next segment's file. Invariant: it is at [`SPARE_PATH`], and zeros.
    spare: Option<Spare>,
    /// The size that segments have grown to; the largest number until the newest segment says.
    grown_bytes: u64,
    scratch: Vec<u8>,
    counters: Arc<Counters>,
}

impl Journal {
    /// A journal without segments. It accepts no appends before [`Journal::rotate`].
    pub(crate) fn new(disk: Arc<dyn Disk>, options: Options) -> Self {
        Self {
            disk,
            options,
            segments: BTreeMap::new(),
            end_lsn: 0,
            needed_lsn: 0,
            synced_lsn: Arc::new(AtomicU64::new(0)),
            tail_syncs: Arc::default(),
            spare: None,
            grown_bytes: SEGMENT_BYTES_MIN,
            scratch: Vec::new(),
            counters: Arc::default(),
        }
    }

    /// Opens the segments on the disk, and returns the position at which each begins; `None` if its
    /// header is damaged or the file is lost.
    pub(crate) fn open_segments(&mut self) -> Result<BTreeMap<u64, Option<u64>>, StoreError> {
        let names = self.disk.list(JOURNAL_DIRECTORY);
        let names = names.context_or_busy("list", JOURNAL_DIRECTORY)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
        numbers.sort_unstable();
        let mut bases = BTreeMap::new();
        for number in numbers {
            bases.insert(number, self.open_segment(number)?);
        }
        Ok(bases)
    }

    fn open_segment(&mut self, number: u64) -> Result<Option<u64>, StoreError> {
        let path = segment_path(number);
        let (file, capacity_bytes) = match self.disk.open(&path) {
            Err(source) if is_lost(&source) => (Arc::new(LostFile) as Arc<dyn DiskFile>, None),
            opened => {
                let file = opened.context_or_busy("open", &path)?;
                let capacity_bytes = file.length().context("measure", &path)?;
                (file, Some(capacity_bytes))
            }
        };
        let is_lost = capacity_bytes.is_none();
        let capacity_bytes = capacity_bytes.unwrap_or(0);
        let mut header = vec![0; SEGMENT_HEADER_BYTES.min(capacity_bytes) as usize];
        let decoded = match file.read_device_at(&mut header, 0) {
            Err(source) if is_inconclusive(&source) => {
                return Err(source).context_or_busy("read", &path);
            }
            read => read.ok().and_then(|()| decode_header(&header, number)),
        };
        // Segments are opened in their order, so the newest one decides.
        let grown_bytes = decoded.map_or(0, |header| header.grown_bytes);
        self.grown_bytes = if grown_bytes > 0 {
            grown_bytes
        } else {
            u64::MAX
        };
        let base_lsn = decoded.map(|header| header.base_lsn);
        let segment = Segment {
            file,
            base_lsn: base_lsn.unwrap_or(0),
            capacity_bytes,
            live_count: 0,
            is_damaged: base_lsn.is_none(),
            is_lost,
        };
        self.segments.insert(number, segment);
        Ok(base_lsn)
    }

    /// Uses a segment with a damaged header from this position on, if it is known.
    fn adopt_base(&mut self, number: u64, base_lsn: Option<u64>) {
        if let Some(base_lsn) = base_lsn {
            let segment = self.segment_mut(number);
            segment.base_lsn = base_lsn;
            segment.is_damaged = false;
        }
    }

    /// Treats a segment whose beginning is unknown as one unreadable stretch up to `end_lsn`.
    /// Returns its bytes, as offsets in its file.
    pub(crate) fn skip_segment(&mut self, number: u64, end_lsn: u64) -> ByteRange {
        let begin_lsn = self.end_lsn;
        let segment = self.segment_mut(number);
        segment.base_lsn = begin_lsn;
        let range = if segment.is_lost {
            Damage::WHOLE
        } else {
            ByteRange::new(0, segment.capacity_bytes)
        };
        self.end_lsn = end_lsn;
        range
    }

    /// Notes the end of the readable frames replayed so far.
    pub(crate) fn ends_at(&mut self, end_lsn: u64) {
        self.end_lsn = end_lsn;
    }

    /// The position behind the last frame.
    pub(crate) fn end_lsn(&self) -> u64 {
        self.end_lsn
    }

    /// The position behind the last frame that a caller may wait for.
    pub(crate) fn needed_lsn(&self) -> u64 {
        self.needed_lsn
    }

    /// Returns the number of segments.
    pub(crate) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The oldest segment.
    pub(crate) fn oldest_segment(&self) -> Option<u64> {
        self.segments.keys().next().copied()
    }

    /// Each segment, with the positions at which its frames begin and end.
    pub(crate) fn spans(&self) -> Vec<(u64, u64, u64)> {
        let ends = self.segments.values().skip(1).map(|s| s.base_lsn);
        let ends = ends.chain([self.end_lsn]);
        let spans = self.segments.iter().zip(ends);
        spans.map(|((&n, s), end)| (n, s.base_lsn, end)).collect()
    }

    /// The store's counters, shared.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// The position up to which everything is durable, shared.
    pub(crate) fn synced(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.synced_lsn)
    }

    /// The syncs of the current segment.
    pub(crate) fn tail_syncs(&self) -> Arc<SyncLock> {
        Arc::clone(&self.tail_syncs)
    }

    /// The current segment, and the position up to which a sync of it makes the journal durable.
    pub(crate) fn tail(&self) -> Option<(u64, Arc<dyn DiskFile>, u64)> {
        let (number, segment) = self.segments.last_key_value()?;
        Some((*number, Arc::clone(&segment.file), self.end_lsn))
    }

    /// Whether a frame of this size fits into the current segment.
    pub(crate) fn fits(&self, frame_bytes: u64) -> bool {
        self.segments.last_key_value().is_some_and(|(_, segment)| {
            let used = SEGMENT_HEADER_BYTES + self.end_lsn - segment.base_lsn;
            used + frame_bytes <= segment.capacity_bytes
        })
    }

    /// The size of segments now. The largest record held, and the largest image, are a quarter.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.grown_bytes.min(self.segment_bytes_max())
    }

    /// The largest size that segments may grow to.
    fn segment_bytes_max(&self) -> u64 {
        self.options.segment_bytes()
    }

    /// Bytes of the disk that are free.
    fn available_bytes(&self) -> Result<u64, StoreError> {
        self.disk.available_bytes().context("measure", "")
    }

    /// Bytes of disk space that its segments and the spare take.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let segments = self.segments.values().map(|segment| segment.capacity_bytes);
        let files = segments.chain(self.spare.as_ref().map(|spare| spare.bytes));
        files.map(|bytes| bytes.next_multiple_of(BLOCK_BYTES)).sum()
    }

    /// Whether a spare segment of at least `bytes` is allocated.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        self.spare
            .as_ref()
            .is_some_and(|spare| spare.bytes >= bytes)
    }

    /// Allocates a spare segment of `bytes`, or enlarges a smaller one.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when the disk has no space; a smaller spare stays then.
    pub(crate) fn make_spare(&mut self, bytes: u64) -> Result<(), StoreError> {
        if self.has_spare(bytes) {
            return Ok(());
        }
        let no_space = || StoreError::NoSpace {
            operation: "a journal segment",
            needed_bytes: bytes,
        };
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        let known = self.spare.as_ref().map(|spare| Arc::clone(&spare.file));
        let is_new = known.is_none();
        let made = known.map_or_else(|| self.disk.create(SPARE_PATH), Ok);
        let file = match made {
            Err(source) if is_full(&source) => return Err(no_space()),
            made => made.context_or_busy("create", SPARE_PATH)?,
        };
        match file.allocate(0, bytes) {
            Err(source) if is_full(&source) => {
                if is_new {
                    self.discard_spare()?;
                }
                Err(no_space())
            }
            allocated => {
                allocated.context("allocate", SPARE_PATH)?;
                self.spare = Some(Spare { file, bytes });
                Ok(())
            }
        }
    }

    /// Removes the spare segment with its contents.
    pub(crate) fn discard_spare(&mut self) -> Result<(), StoreError> {
        self.spare = None;
        remove_if_there(&*self.disk, SPARE_PATH)
    }

    /// Ends the current segment and turns the spare into the next one, which begins with
    /// `checkpoint` and says that segments have grown to `grown_bytes`. Everything appended before is durable
    /// afterwards.
    ///
    /// # Panics
    /// If no spare can hold the checkpoint.
    pub(crate) fn rotate(
        &mut self,
        grown_bytes: u64,
        checkpoint: impl Iterator<Item = Entry>,
    ) -> Result<(), StoreError> {
        let spare = self.spare.take().expect("the caller made a spare");
        let (file, capacity_bytes) = (spare.file, spare.bytes);
        let mut number = 1;
        if let Some((last, tail, _)) = self.tail() {
            let synced = self.tail_syncs.sync(&*tail);
            synced.context("sync", &segment_path(last))?;
            self.counters.add(|c| &c.sync_count, 1);
            self.synced_lsn.fetch_max(self.end_lsn, Ordering::AcqRel);
            number = last + 1;
        }
        let base_lsn = self.end_lsn;
        let mut frames = Vec::new();
        for entry in checkpoint {
            let lsn = base_lsn + frames.len() as u64;
            let head = entry.encode_head();
            frame::encode(
                &mut self.scratch,
                lsn,
                base_lsn,
                entry.frame_kind(),
                &head,
                &[],
            );
            frames.extend_from_slice(&self.scratch);
        }
        assert!(
            SEGMENT_HEADER_BYTES + frames.len() as u64 <= capacity_bytes,
            "spares are sized for the checkpoint"
        );
        let header = SegmentHeader {
            grown_bytes,
            number,
            base_lsn,
        };
        file.write_all_at(&encode_header(header), 0)
            .and_then(|()| file.write_all_at(&frames, SEGMENT_HEADER_BYTES))
            .context("write", SPARE_PATH)?;
        file.sync().context("sync", SPARE_PATH)?;
        self.counters.add(|c| &c.sync_count, 1);
        self.counters.add(
            |c| &c.journal_bytes,
            SEGMENT_HEADER_BYTES + frames.len() as u64,
        );
        let path = segment_path(number);
        self.disk
            .rename(SPARE_PATH, &path)
            .context("rename", &path)?;
        self.disk
            .sync_directory(JOURNAL_DIRECTORY)
            .context("sync directory", JOURNAL_DIRECTORY)?;
        let segment = Segment {
            file,
            base_lsn,
            capacity_bytes,
            live_count: 0,
            is_damaged: false,
            is_lost: false,
        };
        self.segments.insert(number, segment);
        self.grown_bytes = grown_bytes;
        self.end_lsn += frames.len() as u64;
        self.needed_lsn = self.end_lsn;
        self.synced_lsn.store(self.end_lsn, Ordering::Release);
        Ok(())
    }

    /// Appends an entry without a body if the current segment has space for it. No caller waits for
    /// it.
    pub(crate) fn append_if_fits(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let head = entry.encode_head();
        if self.fits(frame::frame_bytes(head.len(), 0) as u64) {
            self.append(entry.frame_kind(), &head, &[])?;
        }
        Ok(())
    }

    /// Appends a frame, which is not durable before a sync.
    ///
    /// # Panics
    /// If the frame does not fit: the caller makes room first.
    pub(crate) fn append(
        &mut self,
        kind: u8,
        head: &[u8],
        body: &[&[u8]],
    ) -> Result<Position, StoreError> {
        let lsn = self.end_lsn;
        let synced_lsn = self.synced_lsn.load(Ordering::Acquire);
        frame::encode(&mut self.scratch, lsn, synced_lsn, kind, head, body);
        let frame_bytes = self.scratch.len() as u64;
        assert!(self.fits(frame_bytes), "the caller makes room first");
        let (number, segment) = self
            .segments
            .last_key_value()
            .expect("a segment has room for the frame");
        let offset = SEGMENT_HEADER_BYTES + lsn - segment.base_lsn;
        segment
            .file
            .write_all_at(&self.scratch, offset)
            .context("write", &segment_path(*number))?;
        self.end_lsn += frame_bytes;
        let is_image = kind == IMAGE_KIND;
        self.counters.add(
            |c| {
                if is_image {
                    &c.image_bytes
                } else {
                    &c.journal_bytes
                }
            },
            frame_bytes,
        );
        if !Entry::only_confirms(kind) {
            self.needed_lsn = self.end_lsn;
        }
        Ok(Position {
            lsn,
            segment: *number,
            frame_bytes: frame_bytes as u32,
        })
    }

    /// The location of a frame, from its position.
    ///
    /// # Panics
    /// When the frame's segment was removed while the frame was in use.
    pub(crate) fn position_at(&self, lsn: u64, frame_bytes: u32) -> Position {
        let mut segments = self.segments.iter().rev();
        let holds = |(_, segment): &(&u64, &Segment)| segment.base_lsn <= lsn;
        let (&segment, _) = segments
            .find(holds)
            .expect("a segment stays while something in it is needed");
        Position {
            lsn,
            segment,
            frame_bytes,
        }
    }

    /// Locates a frame's bytes.
    ///
    /// # Panics
    /// When the frame's segment was removed while the frame was in use.
    pub(crate) fn locate(&self, position: Position) -> Located {
        let segment = &self.segments[&position.segment];
        Located {
            file: Arc::clone(&segment.file),
            offset: SEGMENT_HEADER_BYTES + position.lsn - segment.base_lsn,
            lsn: position.lsn,
            frame_bytes: position.frame_bytes,
            holder: Holder::Segment(position.segment),
        }
    }

    /// A segment's frames, to be read outside the lock; `None` if the segment is gone.
    pub(crate) fn frames(&self, number: u64) -> Option<Frames> {
        let segment = self.segments.get(&number)?;
        Some(Frames {
            file: Arc::clone(&segment.file),
            number,
            bytes: segment.capacity_bytes.saturating_sub(SEGMENT_HEADER_BYTES),
        })
    }

    /// Frees the space behind the last frame before a new segment begins. A crash may undo it
    /// without effect: the next start finds the same end.
    pub(crate) fn trim(&mut self) -> Result<(), StoreError> {
        let end_lsn = self.end_lsn;
        let Some((&number, segment)) = self.segments.iter_mut().next_back() else {
            return Ok(());
        };
        let used_bytes = SEGMENT_HEADER_BYTES + end_lsn - segment.base_lsn;
        if used_bytes < segment.capacity_bytes {
            segment
                .file
                .set_length(used_bytes)
                .context("truncate", &segment_path(number))?;
            segment.capacity_bytes = used_bytes;
        }
        Ok(())
    }

    /// Notes that a record or image is needed.
    pub(crate) fn keep(&mut self, position: Position) {
        self.segment_mut(position.segment).live_count += 1;
    }

    /// The opposite of [`Journal::keep`].
    pub(crate) fn release(&mut self, position: Position) {
        self.release_many(position.segment, 1);
    }

    /// [`Journal::release`] for `count` entries of a segment.
    pub(crate) fn release_many(&mut self, segment: u64, count: u64) {
        let live_count = &mut self.segment_mut(segment).live_count;
        *live_count = live_count
            .checked_sub(count)
            .expect("a released position was kept");
    }

    /// Keeps a segment with unreadable bytes for the next start.
    pub(crate) fn mark_damaged(&mut self, number: u64) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.is_damaged = true;
        }
    }

    /// Releases damaged segments: the next start no longer needs to find their damage.
    pub(crate) fn clear_damage(&mut self) {
        for segment in self.segments.values_mut() {
            segment.is_damaged = false;
        }
    }

    fn segment_mut(&mut self, number: u64) -> &mut Segment {
        self.segments
            .get_mut(&number)
            .expect("a segment stays while something in it is needed")
    }

    /// Removes segments from the front while nothing in them is needed. Each removal is durable
    /// before the next: the entry that drops a record must never be removed before the record.
    pub(crate) fn reclaim(&mut self) -> Result<u64, StoreError> {
        let mut removed_count = 0;
        while self.segments.len() > 1 {
            let (number, segment) = self.segments.first_key_value().expect("there are two");
            if segment.live_count > 0 || segment.is_damaged {
                break;
            }
            let (number, path) = (*number, segment_path(*number));
            match remove_if_there(&*self.disk, &path) {
                // The file system finds the file neither to open nor to remove it. Segments go in
                // order, so the later ones stay until it is repaired.
                Err(StoreError::Io { source, .. }) if segment.is_lost && is_lost(&source) => break,
                removed => removed?,
            }
            self.disk
                .sync_directory(JOURNAL_DIRECTORY)
                .context("sync directory", JOURNAL_DIRECTORY)?;
            self.segments.remove(&number);
            removed_count += 1;
        }
        Ok(removed_count)
    }
}
