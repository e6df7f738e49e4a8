//! Corrects the checksums of a store's files, as docs/format.md describes them.

use super::frames::{self, PREFIX_BYTES};

/// Bytes of a block, of a header's page and of a segment's first page.
const PAGE_BYTES: usize = 4096;
/// Bytes of a chunk's header before its checksum.
const CHUNK_HEADER_BYTES: usize = 84;
/// Bytes of a segment's header before its checksum.
const SEGMENT_HEADER_BYTES: usize = 36;

/// CRC-32C.
fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// A little-endian number of 8 bytes at `at`; 0 if the file is too short.
pub(super) fn number_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    u64::from_le_bytes(*found.unwrap_or(&[0; 8]))
}

/// Writes the checksum of the first `count` bytes behind them.
fn seal(bytes: &mut [u8], count: usize) {
    if bytes.len() >= count + 4 {
        let sum = crc(&bytes[..count]);
        bytes[count..count + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Corrects all checksums of the file with this path.
pub(super) fn correct(path: &str, bytes: &mut [u8]) {
    if path == "format" {
        seal(bytes, 12);
    } else if path == "identity" {
        // A slot that was never written has only zeros.
        let slots = bytes.chunks_mut(PAGE_BYTES);
        slots
            .filter(|slot| slot.iter().any(|&byte| byte != 0))
            .for_each(|slot| seal(slot, PAGE_BYTES - 4));
    } else if path.starts_with("journal/") {
        seal(bytes, SEGMENT_HEADER_BYTES);
        let lsn = number_at(bytes, 28);
        if bytes.len() > PAGE_BYTES {
            correct_frames(&mut bytes[PAGE_BYTES..], lsn);
        }
    } else {
        seal(bytes, CHUNK_HEADER_BYTES);
        correct_blocks(bytes);
        if let Some((at, lsn)) = reserve(bytes) {
            correct_frames(&mut bytes[at..], lsn);
        }
    }
}

/// The first byte of a chunk file's reserve, and its position; none without a reserve.
pub(super) fn reserve(bytes: &[u8]) -> Option<(usize, u64)> {
    let (chunk_bytes, reserve_bytes) = (number_at(bytes, 32), number_at(bytes, 64));
    if reserve_bytes == 0 || chunk_bytes > 1 << 20 {
        return None;
    }
    let data = (chunk_bytes as usize).next_multiple_of(PAGE_BYTES);
    let at = data_offset(chunk_bytes as usize) + data;
    (at < bytes.len()).then(|| (at, number_at(bytes, 72)))
}

/// The place of a chunk's data in its file.
fn data_offset(chunk_bytes: usize) -> usize {
    let table_bytes = chunk_bytes.div_ceil(PAGE_BYTES) * 4;
    PAGE_BYTES + table_bytes.next_multiple_of(PAGE_BYTES)
}

/// Corrects the table of a chunk's blocks.
fn correct_blocks(bytes: &mut [u8]) {
    let chunk_bytes = number_at(bytes, 32).min(1 << 20) as usize;
    let data = data_offset(chunk_bytes);
    for block in 0..chunk_bytes.div_ceil(PAGE_BYTES) {
        let start = data + block * PAGE_BYTES;
        let end = (start + PAGE_BYTES).min(data + chunk_bytes);
        let Some(sum) = bytes.get(start..end).map(crc) else {
            return;
        };
        let at = PAGE_BYTES + block * 4;
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Corrects the checksums of frames, one after another, as long as their lengths stay within the file.
fn correct_frames(bytes: &mut [u8], mut lsn: u64) {
    let mut at = 0;
    while let Some(frame_bytes) = frames::length(&bytes[at..]) {
        let frame = &mut bytes[at..at + frame_bytes];
        let head_end = PREFIX_BYTES + usize::from(u16::from_le_bytes([frame[12], frame[13]]));
        let body = crc_at(lsn, &frame[head_end..]);
        frame[4..8].copy_from_slice(&body.to_le_bytes());
        let head = crc_at(lsn, &frame[4..head_end]);
        frame[..4].copy_from_slice(&head.to_le_bytes());
        at += frame_bytes;
        lsn = lsn.wrapping_add(frame_bytes as u64);
    }
}

/// The checksum of a position and of bytes.
fn crc_at(lsn: u64, bytes: &[u8]) -> u32 {
    crc(&[&lsn.to_le_bytes()[..], bytes].concat())
}

#[cfg(test)]
mod tests {
    use super::super::image::Image;
    use super::*;

    #[test]
    fn the_checksums_of_a_valid_store_are_correct() {
        let mut reserve_count = 0;
        for (path, bytes) in &Image::get().files {
            // The table of a chunk that was merged in place has all of its checksums too.
            let mut corrected = bytes.clone();
            correct(path, &mut corrected);
            assert!(corrected == *bytes, "{path} has other checksums");
            reserve_count += usize::from(path.starts_with("chunks/") && reserve(bytes).is_some());
        }
        assert_eq!(reserve_count, 2);
    }
}
