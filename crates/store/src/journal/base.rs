//! Finds the position at which a segment begins when its header cannot be read.
//!
//! The checksum of a frame covers its position. So if the segment's first frame fits a position,
//! the segment begins there, and its header alone is lost. Two neighbours give candidates: a
//! segment begins where the one before it ends, and ends where the next one begins.

use crate::error::StoreError;
use crate::journal::Journal;
use crate::journal::frame::{self, ALIGN_BYTES, Check};
use std::collections::BTreeMap;

impl Journal {
    /// Fills in where segments with damaged headers begin, as far as the segments behind them show
    /// it. How many bytes of a segment are used is unknown, so all lengths are tried.
    ///
    /// # Errors
    /// [`StoreError::Busy`].
    pub(crate) fn find_bases(
        &mut self,
        bases: &mut BTreeMap<u64, Option<u64>>,
    ) -> Result<(), StoreError> {
        let mut next: Option<(u64, u64)> = None;
        for (&number, base_lsn) in bases.iter_mut().rev() {
            if base_lsn.is_none()
                && let Some((_, end_lsn)) = next.filter(|&(next, _)| next == number + 1)
            {
                let frames = self.device_frames(number)?;
                let used = (0..=frames.len()).step_by(ALIGN_BYTES);
                let mut begins = used.filter_map(|used| end_lsn.checked_sub(used as u64));
                *base_lsn = begins.find(|&lsn| begins_at(&frames, lsn));
                self.adopt_base(number, *base_lsn);
            }
            next = base_lsn.map(|base_lsn| (number, base_lsn));
        }
        Ok(())
    }

    /// Whether a segment with a damaged header begins where the frames before it end. If so, it is
    /// used from there.
    ///
    /// # Errors
    /// [`StoreError::Busy`].
    pub(crate) fn continues(&mut self, number: u64) -> Result<bool, StoreError> {
        let end_lsn = self.end_lsn();
        let is_next = begins_at(&self.device_frames(number)?, end_lsn);
        self.adopt_base(number, is_next.then_some(end_lsn));
        Ok(is_next)
    }

    fn device_frames(&self, number: u64) -> Result<Vec<u8>, StoreError> {
        let frames = self.frames(number).expect("the segment was listed");
        let (frames, _) = frames.read_device()?;
        Ok(frames)
    }
}

/// Whether the first of these frames is at this position.
fn begins_at(frames: &[u8], lsn: u64) -> bool {
    frame::decode(frames, lsn) != Check::Unreadable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_begins_at_its_own_position_alone() {
        let mut frames = Vec::new();
        frame::encode(&mut frames, 4096, 4096, 2, b"head", &[]);
        frames.resize(8192, 0);
        let found = (0..1 << 16).step_by(ALIGN_BYTES);
        let found: Vec<u64> = found.filter(|&lsn| begins_at(&frames, lsn)).collect();
        assert_eq!(found, [4096]);
        assert!(!begins_at(&[], 4096));
    }
}
