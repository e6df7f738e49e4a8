//! Scrubs the journal, to find damage before a start needs its entries.

use crate::error::StoreError;
use crate::journal::scan::{Found, scan};
use crate::journal::segment::SEGMENT_HEADER_BYTES;
use crate::store::Store;
use gabion_layout::ByteRange;

/// Unreadable bytes of a journal segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JournalDamage {
    /// The segment's number, which is its file's name in hexadecimal.
    pub segment: u64,
    /// The bytes, as offsets in its file.
    pub range: ByteRange,
}

impl Store {
    /// Makes the journal durable, then checks every frame that was there at the beginning: only
    /// synced frames can be known to be damaged.
    ///
    /// # Errors
    /// [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn scrub_journal(&self) -> Result<Vec<JournalDamage>, StoreError> {
        self.sync_all()?;
        let segments = self.shared.lock().journal.spans();
        let mut damage = Vec::new();
        for (segment, base_lsn, end_lsn) in segments {
            let frames = self.shared.lock().journal.frames(segment);
            // It may have been reclaimed since the listing.
            let Some(frames) = frames else { continue };
            let frames = frames.read(end_lsn - base_lsn)?;
            scan(&frames, base_lsn, (0, Some(end_lsn)), |lsn, found| {
                let bytes = match found {
                    Found::Whole(_) => return,
                    Found::BodyDamaged(frame) => frame.padded_bytes as u64,
                    Found::Unreadable(bytes) => bytes,
                };
                let offset = SEGMENT_HEADER_BYTES + lsn - base_lsn;
                let range = ByteRange::new(offset, bytes);
                damage.push(JournalDamage { segment, range });
            });
        }
        Ok(damage)
    }
}
