//! The updates that wait for a commit: the bytes of data chunks that were appended to each log since the last commit. A
//! commit's plan follows from this alone. The caller that appends keeps it, or collects it from the nodes. The log of
//! appended updates is CAU's (section 3.1); this form of it is ours.

use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId};
use gabion_plan::{Goal, Log, Logged, Plan};
use std::collections::BTreeMap;

/// Slice size of update plans, in bytes: small enough to pipeline a large update, large enough that
/// a small one is a single slice.
pub const UPDATE_SLICE_BYTES: u64 = 64 << 10;
/// The most bytes of one record that every node takes: a quarter of the smallest journal segment
/// that a node may be given, 32 MiB, less what describes the record.
pub const RECORD_BYTES_MAX: u64 = (8 << 20) - (256 << 10);
/// The most slices of a record.
pub const RECORD_PIECE_COUNT_MAX: u64 = 4096;

/// Appended bytes by log, joined where they touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    logs: BTreeMap<(ChunkIndex, Log, NodeId), Vec<ByteRange>>,
}

impl Waiting {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Takes note of bytes that a log has.
    pub fn note(&mut self, Logged { node, log, part }: Logged) {
        let ranges = self.logs.entry((part.chunk, log, node)).or_default();
        ranges.push(part.range);
        *ranges = ByteRange::union(std::mem::take(ranges));
    }

    /// Takes note of what an append's plan has left in logs. Other plans leave nothing there.
    pub fn note_plan(&mut self, plan: &Plan) {
        if let Goal::Append { ranges, copies } = &plan.goal {
            for &part in ranges {
                let (node, log) = (plan.placement[part.chunk.at()], Log::Journal);
                self.note(Logged { node, log, part });
            }
            for &copy in copies {
                self.note(copy);
            }
        }
    }

    /// The bytes of data chunks that wait, by chunk and offset.
    pub fn ranges(&self) -> Vec<ChunkRange> {
        let mut ranges: BTreeMap<ChunkIndex, Vec<ByteRange>> = BTreeMap::new();
        let new = self
            .logs
            .iter()
            .filter(|((_, log, _), _)| *log != Log::Original);
        for (&(chunk, ..), logged) in new {
            ranges.entry(chunk).or_default().extend(logged);
        }
        let joined = ranges.into_iter().flat_map(|(chunk, ranges)| {
            let ranges = ByteRange::union(ranges).into_iter();
            ranges.map(move |range| ChunkRange { chunk, range })
        });
        joined.collect()
    }

    /// Returns the part of them in each log.
    pub fn logged(&self) -> Vec<Logged> {
        let logs = self.logs.iter().flat_map(|(&(chunk, log, node), ranges)| {
            let part = move |&range: &ByteRange| ChunkRange { chunk, range };
            ranges
                .iter()
                .map(part)
                .map(move |part| Logged { node, log, part })
        });
        logs.collect()
    }

    /// Returns the new bytes of some ranges in each log.
    pub fn newest_of(&self, ranges: &[ChunkRange]) -> Vec<Logged> {
        newest_of(&self.logged(), ranges)
    }

    /// Whether the records of a commit would fit if `more` waited too, whatever the code: a parity
    /// chunk's record has at most each waiting byte once for each of its rows, cut wherever a range
    /// begins or ends.
    pub fn fits(&self, more: &[ChunkRange], geometry: Geometry) -> bool {
        let limits = (RECORD_BYTES_MAX, RECORD_PIECE_COUNT_MAX);
        self.fits_in(more, geometry, limits, UPDATE_SLICE_BYTES)
    }

    fn fits_in(
        &self,
        more: &[ChunkRange],
        geometry: Geometry,
        (bytes_max, slice_count_max): (u64, u64),
        slice_bytes: u64,
    ) -> bool {
        let rows = geometry.sub_chunks() as u64;
        let all = self.ranges().into_iter().chain(more.iter().copied());
        let (mut bytes, mut count) = (0_u64, 0_u64);
        for part in all {
            let length = part.range.length;
            bytes = bytes.saturating_add(length);
            let cut_count = (1 + length / geometry.sub_chunk_bytes()).saturating_mul(2);
            count = count.saturating_add(cut_count);
        }
        bytes.saturating_mul(rows) <= bytes_max
            && count
                .saturating_add(bytes / slice_bytes)
                .saturating_mul(rows)
                <= slice_count_max
    }
}

/// The new bytes that logs have of some ranges: without originals, and without bytes of other ranges.
pub(super) fn newest_of(logged: &[Logged], ranges: &[ChunkRange]) -> Vec<Logged> {
    let new = logged.iter().filter(|kept| kept.log != Log::Original);
    let parts = new.flat_map(|kept| {
        let same = ranges.iter().filter(|part| part.chunk == kept.part.chunk);
        same.filter_map(|part| {
            let range = part.range.intersect(kept.part.range)?;
            let chunk = part.chunk;
            Some(Logged {
                part: ChunkRange { chunk, range },
                ..*kept
            })
        })
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(chunk: u8, offset: u64, length: u64) -> ChunkRange {
        ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(offset, length),
        }
    }

    fn logged(node: u32, log: Log, part: ChunkRange) -> Logged {
        let node = NodeId(node);
        Logged { node, log, part }
    }

    #[test]
    fn updates_of_one_chunk_are_joined_by_log() {
        let mut waiting = Waiting::default();
        for (offset, length) in [(0, 10), (20, 10), (5, 15)] {
            waiting.note(logged(1, Log::Journal, part(1, offset, length)));
            waiting.note(logged(7, Log::Replica, part(1, offset, length)));
        }
        waiting.note(logged(7, Log::Original, part(1, 0, 5)));
        assert_eq!(waiting.ranges(), [part(1, 0, 30)]);
        let expected = [
            logged(1, Log::Journal, part(1, 0, 30)),
            logged(7, Log::Replica, part(1, 0, 30)),
            logged(7, Log::Original, part(1, 0, 5)),
        ];
        assert_eq!(waiting.logged(), expected);
    }

    #[test]
    fn limits_count_every_row_of_an_array_code() {
        let mut waiting = Waiting::default();
        waiting.note(logged(1, Log::Journal, part(0, 0, 100)));
        let fits = |rows, bytes_max, slice_count_max| {
            let geometry = Geometry::new(2, 1, rows, 400).expect("a small stripe");
            let limits = (bytes_max, slice_count_max);
            waiting.fits_in(&[part(1, 0, 100)], geometry, limits, 100)
        };
        assert!(fits(1, 200, 6) && !fits(1, 199, 6) && !fits(1, 200, 5));
        assert!(fits(2, 400, 12) && !fits(2, 399, 12));
    }
}
