//! The places of files on the drive: an allocator that extends a file behind its last bytes if that space is free, and
//! otherwise uses the first place that is large enough, like extent-based file systems.

use super::FileNumber;
use super::ranges::Ranges;
use std::collections::BTreeMap;

/// Files and free space.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    free: Ranges,
    /// For each file its pieces: address and length by offset. Invariant: disjoint.
    files: BTreeMap<FileNumber, BTreeMap<u64, (u64, u64)>>,
}

impl Volume {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let mut free = Ranges::default();
        free.insert(0, capacity_bytes);
        Self {
            free,
            files: BTreeMap::new(),
        }
    }

    /// Gives those bytes of a file a place that have none, right behind the bytes before them if it is
    /// free.
    ///
    /// # Panics
    /// When the drive is full: experiments choose one that is large enough.
    pub(super) fn reserve(&mut self, file: FileNumber, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let pieces = self.files.entry(file).or_default();
        let mut at = offset;
        while at < end {
            let before = pieces.range(..=at).next_back();
            if let Some((&first, &(_, length))) = before
                && first + length > at
            {
                at = first + length;
                continue;
            }
            let neighbour = before.filter(|&(&first, &(_, length))| first + length == at);
            let behind = neighbour.map(|(_, &(address, length))| address + length);
            let next = pieces
                .range(at..)
                .next()
                .map_or(end, |(&next, _)| next.min(end));
            let (address, length) = behind
                .map(|address| (address, self.free.take_from(address, next - at)))
                .filter(|&(_, length)| length > 0)
                .or_else(|| self.free.take(next - at))
                .expect("the drive has room for the experiment");
            pieces.insert(at, (address, length));
            at += length;
        }
    }

    /// Returns the places of bytes of a file: address and length of each piece, in the file's order. Bytes that have no
    /// place are left out: they are zeros that no drive is asked for.
    pub(super) fn locate(&self, file: FileNumber, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(length);
        let Some(pieces) = self.files.get(&file) else {
            return Vec::new();
        };
        let before = pieces.range(..offset).next_back();
        let within = before.into_iter().chain(pieces.range(offset..end));
        let cut = within.filter_map(|(&at, &(address, length))| {
            let (first, last) = (at.max(offset), (at + length).min(end));
            (first < last).then(|| (address + first - at, last - first))
        });
        cut.collect()
    }

    /// Gives bytes of a file back; the answer is where they lay.
    pub(super) fn release(
        &mut self,
        file: FileNumber,
        offset: u64,
        length: u64,
    ) -> Vec<(u64, u64)> {
        let gone = self.locate(file, offset, length);
        let end = offset.saturating_add(length);
        if let Some(pieces) = self.files.get_mut(&file) {
            let old = std::mem::take(pieces);
            for (at, (address, length)) in old {
                let last = at + length;
                if at < offset {
                    pieces.insert(at, (address, length.min(offset - at)));
                }
                if last > end {
                    let first = at.max(end);
                    pieces.insert(first, (address + first - at, last - first));
                }
            }
            if pieces.is_empty() {
                self.files.remove(&file);
            }
        }
        for &(address, length) in &gone {
            self.free.insert(address, length);
        }
        gone
    }
}
