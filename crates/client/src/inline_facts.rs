//! Checks of what the coordinator tells of inline bytes.

use crate::error::ClientError;
use gabion_meta::{FileRecord, INLINE_BYTES_MAX, Inline};
use gabion_protocol::message::{FileLayout, InlineBytes};

/// Refuses a layout as one look-up returns it if its inline bytes contradict the rest of it.
///
/// # Errors
/// [`ClientError::Broken`].
pub(crate) fn check_inline(layout: &FileLayout) -> Result<(), ClientError> {
    let file = &layout.file;
    let is_its = |inline: &InlineBytes| {
        let told = Inline {
            version: inline.version,
            length_bytes: inline.bytes.len() as u64,
        };
        file.inline == Some(told) && layout.stripes.is_empty()
    };
    if has_valid_inline(file) && layout.inline.as_ref().is_none_or(is_its) {
        return Ok(());
    }
    let sentence = format!("the inline bytes of {} contradict its layout", file.name);
    Err(ClientError::Broken(sentence))
}

/// Whether a file may have as many inline bytes as its record says.
pub(crate) fn has_valid_inline(file: &FileRecord) -> bool {
    let length_bytes = file.inline.map_or(0, |inline| inline.length_bytes);
    length_bytes <= file.size_bytes.min(INLINE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::sample;
    use bytes::Bytes;

    /// Whether the layout of a file of 100 bytes with these inline bytes is refused.
    fn is_refused(told: Option<(u64, u64)>, found: Option<(u64, usize)>) -> bool {
        let mut layout = sample::layout();
        layout.file.size_bytes = 100;
        layout.file.inline = told.map(|(version, length_bytes)| Inline {
            version,
            length_bytes,
        });
        layout.inline = found.map(|(version, length)| InlineBytes {
            version,
            bytes: Bytes::from(vec![1; length]),
        });
        check_inline(&layout).is_err()
    }

    #[test]
    fn inline_bytes_that_contradict_the_record_are_refused() {
        assert!(!is_refused(None, None));
        assert!(!is_refused(Some((3, 50)), Some((3, 50))));
        assert!(
            !is_refused(Some((3, 50)), None),
            "they are in another window"
        );
        for (told, found) in [
            (None, Some((3, 50))),
            (Some((3, 50)), Some((4, 50))),
            (Some((3, 50)), Some((3, 49))),
            (Some((3, 101)), None),
            (Some((3, 1 << 62)), None),
        ] {
            assert!(is_refused(told, found), "{told:?} {found:?}");
        }
    }
}
