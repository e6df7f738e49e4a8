//! The expected contents of a stored file under test: the last write at each byte, from which the byte
//! follows. So memory grows with the written extents and not with the file.

use crate::error::TestbedError;
use gabion_client::File;
use gabion_layout::ByteRange;
use std::collections::BTreeMap;
use std::io::{self, Read};

/// The number of the write that created the file; later writes follow from 1.
pub(crate) const INITIAL: u64 = 0;

/// In place of a write: the bytes are a hole of a file that is known to have them, and so zero.
pub(crate) const HOLE: u64 = u64::MAX;

/// Bytes that the final comparison reads at a time.
const COMPARE_BYTES: u64 = 8 << 20;

/// Bytes of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Its place in the file.
    pub range: ByteRange,
    /// Number of the write.
    pub write: u64,
}

/// The last write at each byte. For a file that existed before, only bytes written since are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// End and write by start.
    /// Invariant: pieces are not empty and do not overlap.
    pieces: BTreeMap<u64, (u64, u64)>,
}

impl Contents {
    /// Takes the range as written by `write`.
    pub(crate) fn overwrite(&mut self, range: ByteRange, write: u64) {
        assert!(range.length > 0, "requests have at least one byte");
        let (start, end) = (range.offset, range.end());
        self.cut(start);
        self.cut(end);
        while let Some((&within, _)) = self.pieces.range(start..end).next() {
            self.pieces.remove(&within);
        }
        self.pieces.insert(start, (end, write));
    }

    /// Splits a piece at `at`, if one spans it.
    fn cut(&mut self, at: u64) {
        if let Some((_, last)) = self.pieces.range_mut(..at).next_back()
            && last.0 > at
        {
            let (end, write) = *last;
            last.0 = at;
            self.pieces.insert(at, (end, write));
        }
    }

    /// Bytes that writes after the first have changed, each counted once.
    pub(crate) fn written_bytes(&self) -> u64 {
        let pieces = self.pieces.iter();
        let written = pieces.filter(|&(_, &(_, write))| ![INITIAL, HOLE].contains(&write));
        written.map(|(start, (end, _))| end - start).sum()
    }

    /// Reads all known parts of the file except holes, and compares them; `progress` hears how many of its bytes are
    /// done. Returns the compared bytes.
    pub(crate) async fn verify(
        &self,
        file: &File,
        progress: impl Fn(u64, u64),
    ) -> Result<u64, TestbedError> {
        let size = file.size_bytes();
        let mut compared = 0;
        let mut start = 0;
        while start < size {
            let range = ByteRange::new(start, COMPARE_BYTES.min(size - start));
            let mut known = self.known(range);
            // A volume of holes is too large to read as a whole.
            known.retain(|piece| piece.write != HOLE);
            if !known.is_empty() {
                let bytes = file.read(range).await?;
                if let Some(at) = first_difference(&known, start, &bytes) {
                    let name = file.name().to_owned();
                    return Err(TestbedError::Differs { name, at });
                }
                compared += known.iter().map(|piece| piece.range.length).sum::<u64>();
            }
            start = range.end();
            progress(start, size);
        }
        Ok(compared)
    }

    /// The known pieces of a range, by address.
    pub(crate) fn known(&self, range: ByteRange) -> Vec<Piece> {
        let (start, end) = (range.offset, range.end());
        let before = self.pieces.range(..start).next_back();
        let all = before.into_iter().chain(self.pieces.range(start..end));
        let pieces = all.filter(|&(_, &(piece_end, _))| piece_end > start);
        pieces
            .map(|(&piece_start, &(piece_end, write))| {
                let from = piece_start.max(start);
                let range = ByteRange::new(from, piece_end.min(end) - from);
                Piece { range, write }
            })
            .collect()
    }
}

/// The bytes of a write at a range. They depend on the address, so that misplaced bytes are
/// detected too.
pub(crate) fn bytes_of(piece: Piece) -> Vec<u8> {
    let Piece { range, write } = piece;
    if write == HOLE {
        return vec![0; range.length as usize];
    }
    let (first, last) = (range.offset / 8, range.end().div_ceil(8));
    let mut bytes = Vec::with_capacity(((last - first) * 8) as usize);
    for word in first..last {
        bytes.extend_from_slice(&word_of(write, word).to_le_bytes());
    }
    bytes.drain(..(range.offset % 8) as usize);
    bytes.truncate(range.length as usize);
    bytes
}

/// Eight bytes that differ between writes and between addresses: a finaliser of the kind of Steele,
/// Lea and Flood's `SplitMix` generator over both numbers.
const fn word_of(write: u64, word: u64) -> u64 {
    let mixed = write
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(word)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 32)
}

/// The address of the first byte that differs from the pieces, for bytes that begin at `start`.
pub(crate) fn first_difference(pieces: &[Piece], start: u64, bytes: &[u8]) -> Option<u64> {
    pieces.iter().find_map(|&piece| {
        let from = (piece.range.offset - start) as usize;
        let found = bytes.get(from..)?;
        let expected = bytes_of(piece);
        // Missing bytes at the end count as different.
        let same = expected.iter().zip(found).take_while(|(a, b)| a == b);
        let same = same.count();
        (same < expected.len()).then_some(piece.range.offset + same as u64)
    })
}

/// The bytes of the write that creates the file, in order.
pub(crate) struct Initial {
    at: u64,
    end: u64,
}

impl Initial {
    /// The bytes of a file of this size.
    pub(crate) const fn new(size_bytes: u64) -> Self {
        Self {
            at: 0,
            end: size_bytes,
        }
    }
}

impl Read for Initial {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = (into.len() as u64).min(self.end - self.at);
        let range = ByteRange::new(self.at, length);
        let write = INITIAL;
        into[..length as usize].copy_from_slice(&bytes_of(Piece { range, write }));
        self.at += length;
        Ok(length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length)
    }

    #[test]
    fn the_last_write_stands_at_every_byte() {
        let mut contents = Contents::default();
        let mut model = [None; 64];
        // A linear congruential generator scatters writes over, into and across each other.
        let mut state = 7_u64;
        for write in 1..=500 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (offset, length) = ((state >> 33) % 48, 1 + (state >> 50) % 16);
            contents.overwrite(range(offset, length), write);
            model[offset as usize..(offset + length) as usize].fill(Some(write));
            let mut found = [None; 64];
            for piece in contents.known(range(0, 64)) {
                let (from, to) = (piece.range.offset as usize, piece.range.end() as usize);
                assert!(found[from..to].iter().all(Option::is_none), "write {write}");
                found[from..to].fill(Some(piece.write));
            }
            assert_eq!(found, model, "write {write}");
        }
        let inside = contents.known(range(20, 5));
        assert!(
            inside
                .iter()
                .all(|p| p.range.offset >= 20 && p.range.end() <= 25)
        );
        assert_eq!(inside.iter().map(|p| p.range.length).sum::<u64>(), 5);
    }

    #[test]
    fn written_bytes_count_once_and_holes_are_zero() {
        let mut contents = Contents::default();
        contents.overwrite(range(0, 1000), HOLE);
        contents.overwrite(range(100, 200), INITIAL);
        contents.overwrite(range(150, 100), 1);
        contents.overwrite(range(200, 100), 2);
        assert_eq!(contents.written_bytes(), 150);
        let known = contents.known(range(400, 30));
        assert_eq!(first_difference(&known, 400, &[0; 30]), None);
        let mut wrong = [0; 30];
        wrong[7] = 1;
        assert_eq!(first_difference(&known, 400, &wrong), Some(407));
    }

    #[test]
    fn bytes_do_not_depend_on_how_they_are_cut() {
        let whole = bytes_of(Piece {
            range: range(3, 50),
            write: 9,
        });
        let cut = [(3, 1), (4, 13), (17, 36)].map(|(offset, length)| {
            bytes_of(Piece {
                range: range(offset, length),
                write: 9,
            })
        });
        assert_eq!(whole, cut.concat());
        assert_ne!(
            whole,
            bytes_of(Piece {
                range: range(3, 50),
                write: 8
            })
        );
        assert_ne!(
            whole,
            bytes_of(Piece {
                range: range(11, 50),
                write: 9
            })
        );
    }

    #[test]
    fn a_wrong_byte_and_a_missing_one_are_found_where_they_are() {
        let mut contents = Contents::default();
        contents.overwrite(range(0, 100), INITIAL);
        contents.overwrite(range(40, 20), 5);
        let known = contents.known(range(30, 50));
        let mut bytes: Vec<u8> = known.iter().flat_map(|&piece| bytes_of(piece)).collect();
        assert_eq!(first_difference(&known, 30, &bytes), None);
        assert_eq!(first_difference(&known, 30, &bytes[..49]), Some(79));
        bytes[15] ^= 1;
        assert_eq!(first_difference(&known, 30, &bytes), Some(45));
    }

    #[tokio::test]
    async fn the_first_bytes_come_in_any_portions() {
        let mut bytes = Vec::new();
        Initial::new(10_001).read_to_end(&mut bytes).unwrap();
        let expected = Piece {
            range: range(0, 10_001),
            write: INITIAL,
        };
        assert!(bytes == bytes_of(expected));
    }
}
