//! CRC32C, the checksum of everything that the store writes.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC32C (Castagnoli) of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC32C of a position followed by bytes: the right bytes at another position do not match it.
pub(crate) fn crc32c_at(position: u64, parts: [&[u8]; 2]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&position.to_le_bytes());
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// The CRC32C of two adjacent byte strings, from theirs; the second has `second_bytes`.
pub(crate) fn combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    crc_fast::checksum_combine(
        CrcAlgorithm::Crc32Iscsi,
        u64::from(first),
        u64::from(second),
        second_bytes,
    ) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn parts_combine_to_the_whole() {
        for cut in 0..10 {
            let (a, b) = b"123456789".split_at(cut.min(9));
            assert_eq!(
                combine(crc32c(a), crc32c(b), b.len() as u64),
                0xe306_9283,
                "cut at {cut}"
            );
        }
        let whole = [&7u64.to_le_bytes()[..], b"abc"].concat();
        assert_eq!(crc32c_at(7, [b"a", b"bc"]), crc32c(&whole));
    }
}
