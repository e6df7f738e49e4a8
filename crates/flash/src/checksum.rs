//! CRC32C, the checksum of everything that the flash store writes.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC32C (Castagnoli) of concatenated byte strings.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    if let [bytes] = parts {
        return crc_fast::crc32_iscsi(bytes);
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// An unfinished checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun(Digest);

impl Begun {
    /// Begins with these bytes.
    pub(crate) fn with(bytes: &[u8]) -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(bytes);
        Self(digest)
    }

    /// Ends with these bytes, and returns the checksum.
    pub(crate) fn then(self, bytes: &[u8]) -> u32 {
        let mut digest = self.0;
        digest.update(bytes);
        digest.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_check_value_in_one_part_or_two() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
        assert_eq!(Begun::with(b"1234").then(b"56789"), 0xe306_9283);
    }
}
