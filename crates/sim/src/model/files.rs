//! The files of the model: their bytes, and the segments that may be stored.

use super::answer::{Answer, Known, Outcome};
use super::operation::Access;
use super::options::Wrong;
use gabion_client::Cause;
use gabion_meta::FILE_BYTES_MAX;
use std::collections::BTreeSet;
use std::ops::Range;

/// A file or a symbolic link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileModel {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_read_only: bool,
    pub(crate) target: Option<String>,
    pub(crate) known: Known,
    /// Segments that may be stored. All others are holes.
    pub(crate) stored: BTreeSet<u64>,
}

/// The sizes that tell which bytes may be stored where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a full stripe.
    pub(crate) stripe_bytes: u64,
    /// The size of the largest inline file.
    pub(crate) inline_bytes: u64,
}

impl FileModel {
    /// A file of these bytes that anyone may change.
    pub(crate) fn new(bytes: Vec<u8>, known: Known, sizes: Sizes) -> Self {
        let stored = segments(&(0..bytes.len() as u64), sizes.stripe_bytes).collect();
        Self {
            bytes,
            is_read_only: false,
            target: None,
            known,
            stored,
        }
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Reads or changes the bytes.
    pub(crate) fn access(
        &mut self,
        access: &Access,
        (sizes, wrong): (Sizes, Option<Wrong>),
    ) -> Outcome {
        check_end(access)?;
        match access {
            Access::Read(range) if range.end > self.size() => Err(Cause::Invalid),
            Access::Read(range) => {
                let range = range.start as usize..range.end as usize;
                Ok(Answer::Bytes(self.bytes[range].to_vec()))
            }
            Access::ReadStored => Ok(Answer::Done),
            _ if self.is_read_only => Err(Cause::ReadOnly),
            Access::Append(content) => {
                let offset = self.size();
                let is_wrong = wrong == Some(Wrong::AppendOverwritesTheLastByte);
                let at = offset.saturating_sub(u64::from(is_wrong));
                self.write(at, &content.bytes(), sizes);
                Ok(Answer::Offset(offset))
            }
            change => {
                self.change(change, (sizes, wrong));
                Ok(Answer::Done)
            }
        }
    }

    /// Whether an access needs the right to write. All clients may let a file grow by zeros.
    pub(crate) fn is_write(&self, access: &Access) -> bool {
        match access {
            Access::Write(..)
            | Access::WritePieces(..)
            | Access::Zero(_)
            | Access::Append(_)
            | Access::Punch(_) => true,
            Access::Truncate(to) => *to < self.size(),
            Access::Grow(_) | Access::Read(_) | Access::ReadStored => false,
        }
    }

    /// Whether a hole of this range changes no byte.
    pub(crate) fn is_zero(&self, range: &Range<u64>) -> bool {
        let bytes = self.bytes.iter().skip(range.start as usize);
        let mut bytes = bytes.take((range.end - range.start) as usize);
        bytes.all(|byte| *byte == 0)
    }

    fn change(&mut self, change: &Access, (sizes, wrong): (Sizes, Option<Wrong>)) {
        match change {
            Access::Write(at, content) | Access::WritePieces(at, content) => {
                self.write(*at, &content.bytes(), sizes);
            }
            Access::Zero(range) => {
                let zeros = vec![0; (range.end - range.start) as usize];
                self.write(range.start, &zeros, sizes);
            }
            Access::Grow(to) => self.bytes.resize(self.size().max(*to) as usize, 0),
            Access::Truncate(to) => {
                self.bytes.resize(*to as usize, 0);
                let is_left = |segment: &u64| segment * sizes.stripe_bytes < *to;
                self.stored.retain(is_left);
            }
            Access::Punch(range) => {
                let kept_bytes = u64::from(wrong == Some(Wrong::PunchLeavesTheLastByte));
                self.punch(range, sizes, kept_bytes);
            }
            Access::Append(_) | Access::Read(_) | Access::ReadStored => {}
        }
    }

    /// Makes a range zero, but for some bytes at its end.
    fn punch(&mut self, range: &Range<u64>, sizes: Sizes, kept_bytes: u64) {
        let size = self.size();
        let end = range.end.min(size).saturating_sub(kept_bytes);
        for at in range.start..end {
            self.bytes[at as usize] = 0;
        }
        let is_freed = |segment: u64| {
            let first = segment * sizes.stripe_bytes;
            let last = (first + sizes.stripe_bytes).min(size);
            // Inline bytes become zero and stay.
            let may_be_inline = segment == 0 && sizes.inline_bytes > 0;
            !may_be_inline && range.start <= first && last <= range.end
        };
        self.stored.retain(|segment| !is_freed(*segment));
    }

    fn write(&mut self, offset: u64, bytes: &[u8], sizes: Sizes) {
        let (at, end) = (offset as usize, offset as usize + bytes.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
        let written = offset..end as u64;
        self.stored.extend(segments(&written, sizes.stripe_bytes));
    }

    /// The contradiction to these stored ranges, if there is one.
    pub(crate) fn check_stored(&self, ranges: &[Range<u64>], sizes: Sizes) -> Option<String> {
        for range in ranges {
            let mut segments = segments(range, sizes.stripe_bytes);
            if let Some(segment) = segments.find(|segment| !self.stored.contains(segment)) {
                return Some(format!(
                    "segment {segment} is a hole, and {range:?} is stored"
                ));
            }
        }
        let is_stored = |at: u64| ranges.iter().any(|range| range.contains(&at));
        let bytes = (0..).zip(&self.bytes);
        let lost = bytes.filter(|(_, byte)| **byte != 0);
        let mut lost = lost.filter(|(at, _)| !is_stored(*at));
        lost.next()
            .map(|(at, _)| format!("byte {at} is not zero, and it lies in a hole"))
    }
}

/// Refuses sizes that no file has.
pub(crate) fn check_end(access: &Access) -> Result<(), Cause> {
    let end = match access {
        Access::Write(at, content) | Access::WritePieces(at, content) => {
            at.checked_add(content.length)
        }
        Access::Zero(range) => Some(range.end),
        Access::Grow(to) | Access::Truncate(to) => Some(*to),
        Access::Append(_) | Access::Punch(_) | Access::Read(_) | Access::ReadStored => Some(0),
    };
    if end.is_some_and(|end| end <= FILE_BYTES_MAX) {
        Ok(())
    } else {
        Err(Cause::TooLarge)
    }
}

/// The segments that a range touches.
fn segments(range: &Range<u64>, stripe_bytes: u64) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / stripe_bytes..(range.end - 1) / stripe_bytes + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_meta::NewAttributes;

    #[test]
    fn holes_hold_nothing_but_zeros() {
        let sizes = Sizes {
            stripe_bytes: 100,
            inline_bytes: 0,
        };
        let known = Known::new(NewAttributes::FILE);
        let mut file = FileModel::new(vec![1; 250], known, sizes);
        let punched = file.access(&Access::Punch(50..250), (sizes, None));
        assert_eq!(punched, Ok(Answer::Done));
        let check = |stored| file.check_stored(std::slice::from_ref(&stored), sizes);
        assert_eq!(check(0..100), None);
        assert!(check(0..200).is_some(), "not freed");
        assert!(check(0..40).is_some(), "bytes lost");
    }

    #[test]
    fn a_snapshot_refuses_changes_but_for_impossible_ones() {
        let sizes = Sizes {
            stripe_bytes: 100,
            inline_bytes: 50,
        };
        let mut file = FileModel {
            is_read_only: true,
            ..FileModel::new(vec![1], Known::new(NewAttributes::FILE), sizes)
        };
        let mut ask = |access: &Access| file.access(access, (sizes, None));
        assert_eq!(ask(&Access::Truncate(1)), Err(Cause::ReadOnly));
        assert_eq!(ask(&Access::Grow(u64::MAX)), Err(Cause::TooLarge));
        assert_eq!(ask(&Access::Read(0..1)), Ok(Answer::Bytes(vec![1])));
        assert_eq!(ask(&Access::Read(0..2)), Err(Cause::Invalid));
    }
}
