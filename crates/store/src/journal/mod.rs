//! The node's journal: numbered segments of frames, appended to in one place.
//!
//! A position in the journal (`lsn`) counts the bytes of all frames ever appended. A segment's
//! header says at which position it begins; the segment before it ends there. A fresh segment
//! begins with a checkpoint of all stripes' state, so an older one may go once no record or image
//! in it is needed. A spare segment is kept allocated: when the disk is full, updates are refused
//! while the spare still lets fences and applies, which make room, go on.
//!
//! Segments are never recycled: space behind the last frame is zeros or a torn frame of the same
//! life of the store.

pub(crate) mod entry;
pub(crate) mod frame;
pub(crate) mod image;
mod reclaim;
pub(crate) mod scan;

use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::counts::Counters;
use crate::disk::remove_if_there;
use crate::disk::{Disk, DiskFile, Source};
use crate::error::{IoContext, StoreError, is_shortage};
use crate::journal::entry::{Entry, IMAGE as IMAGE_KIND};
use crate::paths::{JOURNAL_DIRECTORY, SPARE_PATH, chunk_path, segment_path};
use gabion_layout::ChunkId;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a segment before its first frame; the first sector of them is the header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// Bytes that are tried by themselves where a whole segment cannot be read.
const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 40;
const MAGIC: [u8; 8] = *b"GABIONJL";
const VERSION: u32 = 2;

/// Where a frame is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position {
    pub(crate) lsn: u64,
    pub(crate) segment: u64,
    pub(crate) frame_bytes: u32,
}

impl Position {
    /// The position behind the frame: once the journal is synced up to here, so is the frame.
    pub(crate) fn end_lsn(self) -> u64 {
        self.lsn + u64::from(self.frame_bytes)
    }
}

/// A frame's bytes, found but not read; valid even if the file is removed meanwhile.
pub(crate) struct Located {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) offset: u64,
    pub(crate) lsn: u64,
    pub(crate) frame_bytes: u32,
    pub(crate) holder: Holder,
}

/// The file that a frame is in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holder {
    /// A segment of the journal.
    Segment(u64),
    /// A chunk's file, which has a reserve.
    Chunk(ChunkId),
}

impl Holder {
    fn path(self) -> String {
        match self {
            Self::Segment(number) => segment_path(number),
            Self::Chunk(chunk) => chunk_path(chunk),
        }
    }
}

impl Located {
    /// Reads the frame into `buffer`. The caller decodes it, which checks it; of a frame that the disk
    /// refuses to give, it finds nothing.
    pub(crate) fn read(&self, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        self.read_front(buffer, self.frame_bytes)
    }

    /// Reads at most the first `limit_bytes` of the frame.
    pub(crate) fn read_front(
        &self,
        buffer: &mut Vec<u8>,
        limit_bytes: u32,
    ) -> Result<(), StoreError> {
        buffer.resize(self.frame_bytes.min(limit_bytes) as usize, 0);
        match self.file.read_exact_at(buffer, self.offset) {
            Err(error) if is_shortage(&error) => {
                Err(error).context_or_busy("read", &self.holder.path())
            }
            // What the disk refuses to give is damaged, and no frame is all zeros.
            Err(_) => {
                buffer.fill(0);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// What follows the header of a segment.
pub(crate) struct Frames {
    file: Arc<dyn DiskFile>,
    number: u64,
    bytes: u64,
}

impl Frames {
    /// Reads the first `limit_bytes` of them, or all there are.
    pub(crate) fn read(&self, limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let (frames, _) = self.read_pages(Source::File(&*self.file), limit_bytes)?;
        Ok(frames)
    }

    /// All of them as the device has them, and behind how many of their bytes all could be read.
    pub(crate) fn read_device(&self) -> Result<(Vec<u8>, u64), StoreError> {
        self.read_pages(Source::Device(&*self.file), u64::MAX)
    }

    /// Reads all at once, or page by page where the disk refuses to give some: those are zeros.
    fn read_pages(
        &self,
        source: Source<'_>,
        limit_bytes: u64,
    ) -> Result<(Vec<u8>, u64), StoreError> {
        let mut frames = vec![0; self.bytes.min(limit_bytes) as usize];
        let mut unreadable_end = 0;
        let is_read = |read: io::Result<()>| match read {
            Err(error) if is_shortage(&error) => {
                Err(error).context_or_busy("read", &segment_path(self.number))
            }
            read => Ok(read.is_ok()),
        };
        if is_read(source.fill(&mut frames, SEGMENT_HEADER_BYTES))? {
            return Ok((frames, unreadable_end));
        }
        let mut at = 0;
        for page in frames.chunks_mut(PAGE_BYTES) {
            if !is_read(source.fill(page, SEGMENT_HEADER_BYTES + at))? {
                page.fill(0);
                unreadable_end = at + page.len() as u64;
            }
            at += page.len() as u64;
        }
        Ok((frames, unreadable_end))
    }
}

/// One file of the journal.
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) base_lsn: u64,
    pub(crate) capacity_bytes: u64,
    /// Records and images in it that are still needed.
    pub(crate) live_count: u64,
    /// Whether it has unreadable bytes that the next start must see again.
    pub(crate) is_damaged: bool,
}

/// Space for the next segment. It stays open, so that a rotation needs no descriptor.
struct Spare {
    file: Arc<dyn DiskFile>,
    bytes: u64,
}

/// The journal. All its methods run under the store's state lock but [`Journal::synced`].
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// The position behind the last frame.
    pub(crate) end_lsn: u64,
    /// The position behind the last frame that somebody may wait for.
    pub(crate) needed_lsn: u64,
    synced_lsn: Arc<AtomicU64>,
    /// The next segment's file. Invariant: it is at [`SPARE_PATH`], and zeros.
    spare: Option<Spare>,
    scratch: Vec<u8>,
    counters: Arc<Counters>,
}

impl Journal {
    /// A journal of the segments found, which end at `end_lsn`. It takes no appends before
    /// [`Journal::rotate`].
    pub(crate) fn new(disk: Arc<dyn Disk>, segments: BTreeMap<u64, Segment>, end_lsn: u64) -> Self {
        Self {
            disk,
            segments,
            end_lsn,
            needed_lsn: end_lsn,
            synced_lsn: Arc::new(AtomicU64::new(0)),
            spare: None,
            scratch: Vec::new(),
            counters: Arc::default(),
        }
    }

    /// What the store counts, for all who count.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Up to which position everything is durable.
    pub(crate) fn synced(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.synced_lsn)
    }

    /// The segment that is appended to, and the position up to which a sync of it makes the
    /// journal durable.
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

    /// Whether a spare segment of at least `bytes` is allocated.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        self.spare
            .as_ref()
            .is_some_and(|spare| spare.bytes >= bytes)
    }

    /// Allocates a spare segment of `bytes`, replacing one that is smaller.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when the disk has no room, with nothing left behind.
    pub(crate) fn make_spare(&mut self, bytes: u64) -> Result<(), StoreError> {
        if self.has_spare(bytes) {
            return Ok(());
        }
        self.discard_spare()?;
        let no_space = || StoreError::NoSpace {
            operation: "a journal segment",
            needed_bytes: bytes,
        };
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        let file = match self.disk.create(SPARE_PATH) {
            Err(source) if is_full(&source) => return Err(no_space()),
            made => made.context_or_busy("create", SPARE_PATH)?,
        };
        match file.allocate(0, bytes) {
            Err(source) if is_full(&source) => {
                self.discard_spare()?;
                Err(no_space())
            }
            allocated => {
                allocated.context("allocate", SPARE_PATH)?;
                self.spare = Some(Spare { file, bytes });
                Ok(())
            }
        }
    }

    /// Removes the spare segment, whatever is in it.
    pub(crate) fn discard_spare(&mut self) -> Result<(), StoreError> {
        self.spare = None;
        remove_if_there(&*self.disk, SPARE_PATH)
    }

    /// Ends the current segment and turns the spare into the next one, with `checkpoint` in front.
    /// Everything appended so far is durable afterwards.
    ///
    /// # Panics
    /// When there is no spare that the checkpoint fits into.
    pub(crate) fn rotate(
        &mut self,
        checkpoint: impl Iterator<Item = Entry>,
    ) -> Result<(), StoreError> {
        let spare = self.spare.take().expect("the caller made a spare");
        let (file, capacity_bytes) = (spare.file, spare.bytes);
        let mut number = 1;
        if let Some((last, tail, _)) = self.tail() {
            tail.sync().context("sync", &segment_path(last))?;
            self.counters.add(|c| &c.sync_count, 1);
            self.synced_lsn.fetch_max(self.end_lsn, Ordering::AcqRel);
            number = last + 1;
        }
        let base_lsn = self.end_lsn;
        let mut frames = Vec::new();
        for entry in checkpoint {
            let lsn = base_lsn + frames.len() as u64;
            let head = entry.encode_head();
            frame::encode(&mut self.scratch, lsn, base_lsn, entry.kind(), &head, &[]);
            frames.extend_from_slice(&self.scratch);
        }
        assert!(
            SEGMENT_HEADER_BYTES + frames.len() as u64 <= capacity_bytes,
            "spares are sized for the checkpoint"
        );
        file.write_all_at(&encode_header(number, base_lsn), 0)
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
        };
        self.segments.insert(number, segment);
        self.end_lsn += frames.len() as u64;
        self.needed_lsn = self.end_lsn;
        self.synced_lsn.store(self.end_lsn, Ordering::Release);
        Ok(())
    }

    /// Appends a frame, which is not durable before a sync.
    ///
    /// # Panics
    /// When the frame does not fit: the caller makes room first.
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

    /// The segment of a frame of which only the position is known.
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

    /// Finds a frame's bytes.
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

    /// A segment's frames for reading outside the lock, if the segment is there.
    pub(crate) fn frames(&self, number: u64) -> Option<Frames> {
        let segment = self.segments.get(&number)?;
        Some(Frames {
            file: Arc::clone(&segment.file),
            number,
            bytes: segment.capacity_bytes.saturating_sub(SEGMENT_HEADER_BYTES),
        })
    }

    /// Gives back the space behind the last frame, before another segment is begun. Whether a
    /// crash undoes it makes no difference: the next start finds the same end.
    pub(crate) fn trim(&mut self) -> Result<(), StoreError> {
        let end_lsn = self.end_lsn;
        let Some((&number, segment)) = self.segments.iter_mut().next_back() else {
            return Ok(());
        };
        let used_bytes = SEGMENT_HEADER_BYTES + end_lsn - segment.base_lsn;
        if used_bytes < segment.capacity_bytes {
            segment
                .file
                .truncate(used_bytes)
                .context("truncate", &segment_path(number))?;
            segment.capacity_bytes = used_bytes;
        }
        Ok(())
    }

    /// Notes that a record or image is needed, or no longer.
    pub(crate) fn keep(&mut self, position: Position) {
        self.segment_mut(position.segment).live_count += 1;
    }

    /// The opposite of [`Journal::keep`].
    pub(crate) fn release(&mut self, position: Position) {
        self.release_many(position.segment, 1);
    }

    /// [`Journal::release`] for so many of a segment.
    pub(crate) fn release_many(&mut self, segment: u64, count: u64) {
        let live_count = &mut self.segment_mut(segment).live_count;
        *live_count = live_count
            .checked_sub(count)
            .expect("what is released was kept");
    }

    /// Keeps a segment with unreadable bytes for the next start to see.
    pub(crate) fn mark_damaged(&mut self, number: u64) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.is_damaged = true;
        }
    }

    /// Lets damaged segments go: nothing depends any more on their damage being seen.
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
    /// before the next: what drops a record must never go before the record.
    pub(crate) fn reclaim(&mut self) -> Result<u64, StoreError> {
        let mut removed_count = 0;
        while self.segments.len() > 1 {
            let (number, segment) = self.segments.first_key_value().expect("there are two");
            if segment.live_count > 0 || segment.is_damaged {
                break;
            }
            let (number, path) = (*number, segment_path(*number));
            remove_if_there(&*self.disk, &path)?;
            self.disk
                .sync_directory(JOURNAL_DIRECTORY)
                .context("sync directory", JOURNAL_DIRECTORY)?;
            self.segments.remove(&number);
            removed_count += 1;
        }
        Ok(removed_count)
    }
}

fn encode_header(number: u64, base_lsn: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&base_lsn.to_le_bytes());
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(bytes.len(), HEADER_BYTES);
    bytes
}

/// The position at which segment `number` begins, from the front of its file; `None` when its
/// header is damaged.
pub(crate) fn decode_header(bytes: &[u8], number: u64) -> Option<u64> {
    let mut reader = Reader::new(bytes.get(..HEADER_BYTES)?);
    if reader.bytes(8)? != MAGIC || reader.u32()? != VERSION {
        return None;
    }
    let _reserved = reader.u64()?;
    let (found, base_lsn) = (reader.u64()?, reader.u64()?);
    let is_ours = found == number && reader.u32()? == crc32c(&bytes[..HEADER_BYTES - 4]);
    is_ours.then_some(base_lsn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::parse_segment_name;

    #[test]
    fn segment_headers_come_back_only_whole_and_for_their_number() {
        let bytes = encode_header(9, 4096);
        assert_eq!(decode_header(&bytes, 9), Some(4096));
        assert_eq!(decode_header(&bytes, 8), None);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header(&damaged, 9), None, "bit {bit}");
        }
    }

    #[test]
    fn segment_names_come_back() {
        let path = segment_path(0x1f);
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(parse_segment_name(name), Some(0x1f));
        assert_eq!(parse_segment_name("1f.log"), None);
        assert_eq!(parse_segment_name("spare"), None);
    }
}
