//! Paths of a store's files on its disk.

use gabion_layout::{ChunkId, ChunkIndex, StripeId};

/// Directory of all chunks.
pub(crate) const CHUNKS_DIRECTORY: &str = "chunks";
/// Directory of chunks that are being written.
pub(crate) const TMP_DIRECTORY: &str = "tmp";
/// Directory of the files of removed chunks.
pub(crate) const TRASH_DIRECTORY: &str = "trash";
/// Directory of all journal segments.
pub(crate) const JOURNAL_DIRECTORY: &str = "journal";
/// The file of the journal's next segment.
pub(crate) const SPARE_PATH: &str = "journal/spare";

/// The path of a chunk's file on its node's disk.
pub fn chunk_path(chunk: ChunkId) -> String {
    format!("{}/{}", chunk_directory(chunk), chunk_name(chunk))
}

/// The directory of a chunk's file. Chunks spread over 256 directories by their stripe.
pub(crate) fn chunk_directory(chunk: ChunkId) -> String {
    // Fibonacci hashing spreads stripes, which are numbered in order, over the directories.
    let spread = chunk.stripe.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    format!("{CHUNKS_DIRECTORY}/{spread:02x}")
}

/// The name of a chunk's file.
pub(crate) fn chunk_name(chunk: ChunkId) -> String {
    format!("{:016x}-{:02x}", chunk.stripe.0, chunk.index.0)
}

/// The chunk of a file with this name; `None` unless [`chunk_name`] made the name.
pub(crate) fn parse_chunk_name(name: &str) -> Option<ChunkId> {
    let (stripe, index) = name.split_once('-')?;
    let chunk = ChunkId {
        stripe: StripeId(u64::from_str_radix(stripe, 16).ok()?),
        index: ChunkIndex(u8::from_str_radix(index, 16).ok()?),
    };
    (chunk_name(chunk) == name).then_some(chunk)
}

/// The path of a journal segment's file.
pub(crate) fn segment_path(number: u64) -> String {
    format!("{JOURNAL_DIRECTORY}/{number:016x}.log")
}

/// The number of the journal segment with this file name; `None` for other names.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".log")?, 16).ok()?;
    (segment_path(number) == format!("{JOURNAL_DIRECTORY}/{name}")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let chunk = ChunkId {
            stripe: StripeId(0xabc),
            index: ChunkIndex(7),
        };
        let path = chunk_path(chunk);
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(parse_chunk_name(name), Some(chunk));
        assert_eq!(parse_chunk_name("abc-07"), None);
        assert_eq!(parse_chunk_name("0000000000000abc-7"), None);
    }
}
