//! Little-endian and variable-length integers of the journal's format.

use gabion_layout::COUNT_MAX;

/// Appends an integer in base 128, low digits first; every byte but the last has its top bit set.
pub(crate) fn put_varint(output: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

/// Decodes integers from the front of stored bytes. `None` means that no writer of this crate made
/// the bytes.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(front)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let digit = u64::from(byte & 0x7f);
            if shift == 63 && digit > 1 {
                return None;
            }
            value |= digit << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A varint that is a position, or the number of a generation, an epoch or an update. No store counts beyond
    /// [`COUNT_MAX`], so sums with these numbers do not overflow.
    pub(crate) fn count(&mut self) -> Option<u64> {
        self.varint().filter(|&number| number <= COUNT_MAX)
    }

    /// As [`Reader::count`], in 8 bytes.
    pub(crate) fn count_u64(&mut self) -> Option<u64> {
        self.u64().filter(|&number| number <= COUNT_MAX)
    }

    /// Ends decoding; `None` if bytes remain.
    pub(crate) fn finish(self) -> Option<()> {
        self.bytes.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_overlong_ones_do_not() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.finish().is_some());
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).varint(), None);
        }
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
        let too_large = [[0xff; 9].as_slice(), &[2]].concat();
        assert_eq!(Reader::new(&too_large).varint(), None);
    }

    #[test]
    fn counts_are_at_most_those_of_a_cluster() {
        for (number, expected) in [(COUNT_MAX, Some(COUNT_MAX)), (COUNT_MAX + 1, None)] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(Reader::new(&bytes).count(), expected);
            assert_eq!(Reader::new(&number.to_le_bytes()).count_u64(), expected);
        }
    }
}
