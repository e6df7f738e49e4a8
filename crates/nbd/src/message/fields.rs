//! Fields of messages, and the limits of their lengths.

/// Most bytes that a request reads or writes.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = 32 << 20;

/// Most bytes of a name, a query or a sentence.
pub(super) const STRING_BYTES_MAX: usize = 4096;

/// Splits fields off the front of a message.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next bytes; none if there are fewer.
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its length before it; none if it is too long or no UTF-8.
    pub(super) fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        let bytes = self.bytes(length)?;
        let text = std::str::from_utf8(bytes).ok()?;
        (length <= STRING_BYTES_MAX).then(|| text.to_owned())
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The longest beginning of a text that a message may have.
pub(super) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(STRING_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_cut_between_characters() {
        let text = "\u{20ac}".repeat(3000);
        let cut = shortened(&text);
        assert_eq!(cut.len(), 4095);
        assert!(text.starts_with(cut));
    }
}
