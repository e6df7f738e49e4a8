//! Layout of an entry in a journal segment: prefix, head, body, padding.
//!
//! Prefix and head have one checksum, body and padding another, so that the chunk and range of an
//! entry remain known if only its bytes are damaged. Both include the entry's position, so stale
//! bytes of another position never match. An entry also records how much of the journal was not yet
//! synced when it was written. This separates a torn tail from damage: a crash cannot lose bytes
//! before a later entry's synced position.

use crate::checksum::crc32c_at;
use crate::codec::Reader;

/// Bytes of a frame before its head.
pub(crate) const PREFIX_BYTES: usize = 19;
/// Offset of the kind in the prefix.
const KIND_AT: usize = 14;
/// Frames begin at multiples of this.
pub(crate) const ALIGN_BYTES: usize = 8;

/// Result of checking a frame's bytes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Check<'a> {
    /// Intact.
    Whole(Frame<'a>),
    /// The head is intact; the body is not.
    BodyDamaged(Frame<'a>),
    /// Unreadable, its length included.
    Unreadable,
}

/// A decoded frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
    /// The journal was synced up to this position when the frame was written.
    pub(crate) synced_lsn: u64,
    /// Bytes of the frame, padding included.
    pub(crate) padded_bytes: usize,
}

/// Bytes that a frame takes, padding included.
pub(crate) fn frame_bytes(head_bytes: usize, body_bytes: usize) -> usize {
    (PREFIX_BYTES + head_bytes + body_bytes).next_multiple_of(ALIGN_BYTES)
}

/// Encodes a frame for position `lsn` into `output`, which is cleared first.
///
/// # Panics
/// If the head or the body exceeds the format's limit, or the position lies 4 GiB or more behind
/// the synced one.
pub(crate) fn encode(
    output: &mut Vec<u8>,
    lsn: u64,
    synced_lsn: u64,
    kind: u8,
    head: &[u8],
    body: &[&[u8]],
) {
    output.clear();
    output.resize(PREFIX_BYTES, 0);
    output.extend_from_slice(head);
    let body_at = output.len();
    for part in body {
        output.extend_from_slice(part);
    }
    let fits = "a frame's parts are bounded before it is encoded";
    let body_bytes = u32::try_from(output.len() - body_at).expect(fits);
    let head_bytes = u16::try_from(head.len()).expect(fits);
    let unsynced_bytes = u32::try_from(lsn - synced_lsn)
        .expect("rotation syncs a segment, and a segment is shorter than 4 GiB");
    output.resize(output.len().next_multiple_of(ALIGN_BYTES), 0);
    let body_crc = crc32c_at(lsn, [&output[body_at..], &[]]);
    output[4..8].copy_from_slice(&body_crc.to_le_bytes());
    output[8..12].copy_from_slice(&body_bytes.to_le_bytes());
    output[12..14].copy_from_slice(&head_bytes.to_le_bytes());
    output[KIND_AT] = kind;
    output[15..19].copy_from_slice(&unsynced_bytes.to_le_bytes());
    let head_crc = crc32c_at(lsn, [&output[4..body_at], &[]]);
    output[..4].copy_from_slice(&head_crc.to_le_bytes());
}

/// Decodes the frame at the front of `bytes`, which begin at position `lsn`.
pub(crate) fn decode(bytes: &[u8], lsn: u64) -> Check<'_> {
    decode_head(bytes, lsn).map_or(Check::Unreadable, |(frame, body_crc)| {
        let padded = &bytes[PREFIX_BYTES + frame.head.len()..frame.padded_bytes];
        // Without a body, the second checksum covers only padding, whose damage is harmless.
        if frame.body.is_empty() || crc32c_at(lsn, [padded, &[]]) == body_crc {
            Check::Whole(frame)
        } else {
            Check::BodyDamaged(frame)
        }
    })
}

fn decode_head(bytes: &[u8], lsn: u64) -> Option<(Frame<'_>, u32)> {
    let mut reader = Reader::new(bytes);
    let head_crc = reader.u32()?;
    let body_crc = reader.u32()?;
    let body_bytes = reader.u32()? as usize;
    let head_bytes = usize::from(u16::from_le_bytes(reader.bytes(2)?.try_into().ok()?));
    let kind = reader.u8()?;
    let unsynced_bytes = reader.u32()?;
    let frame_bytes = frame_bytes(head_bytes, body_bytes);
    // No entry has kind 0, so zeroed space is recognized without a checksum.
    if kind == 0 || bytes.len() < frame_bytes {
        return None;
    }
    let body_at = PREFIX_BYTES + head_bytes;
    if crc32c_at(lsn, [&bytes[4..body_at], &[]]) != head_crc {
        return None;
    }
    let frame = Frame {
        kind,
        head: &bytes[PREFIX_BYTES..body_at],
        body: &bytes[body_at..body_at + body_bytes],
        synced_lsn: lsn.checked_sub(u64::from(unsynced_bytes))?,
        padded_bytes: frame_bytes,
    };
    Some((frame, body_crc))
}

/// The kind and the head of the frame at the front of `bytes`, which begin at `lsn` and need not
/// include the body; `None` if the head is damaged or incomplete.
pub(crate) fn front(bytes: &[u8], lsn: u64) -> Option<(u8, &[u8])> {
    let prefix: &[u8; PREFIX_BYTES] = bytes.first_chunk()?;
    let head_bytes = usize::from(u16::from_le_bytes([prefix[12], prefix[13]]));
    let with_head = bytes.get(..PREFIX_BYTES + head_bytes)?;
    let is_written = crc32c_at(lsn, [&with_head[4..], &[]]).to_le_bytes() == prefix[..4];
    is_written.then_some((prefix[KIND_AT], &with_head[PREFIX_BYTES..]))
}

/// The offset in `bytes` of the next frame with a readable head behind `from`, if any. `lsn` is the
/// position of the first byte.
pub(crate) fn find_next(bytes: &[u8], lsn: u64, from: usize) -> Option<usize> {
    let mut at = from + ALIGN_BYTES;
    while at + PREFIX_BYTES <= bytes.len() {
        // Most of the searched space is zeroed, so the kind is checked first.
        if bytes[at + KIND_AT] != 0 && decode_head(&bytes[at..], lsn + at as u64).is_some() {
            return Some(at);
        }
        at += ALIGN_BYTES;
    }
    None
}

/// Whether a frame with a readable head begins anywhere in `bytes`, which begin at `lsn`.
pub(crate) fn has_frame(bytes: &[u8], lsn: u64) -> bool {
    decode_head(bytes, lsn).is_some() || find_next(bytes, lsn, 0).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(lsn: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, lsn, lsn - 16, 3, b"head", &[b"bo", b"dy!"]);
        bytes
    }

    #[test]
    fn a_frame_comes_back() {
        let bytes = sample(64);
        assert_eq!(bytes.len(), 32);
        let expected = Frame {
            kind: 3,
            head: b"head",
            body: b"body!",
            synced_lsn: 48,
            padded_bytes: 32,
        };
        assert_eq!(decode(&bytes, 64), Check::Whole(expected));
        assert_eq!(front(&bytes[..23], 64), Some((3, &b"head"[..])));
        assert_eq!(front(&bytes[..22], 64), None);
        assert_eq!(front(&bytes, 72), None);
    }

    #[test]
    fn another_place_and_every_flipped_bit_are_noticed() {
        let bytes = sample(64);
        assert_eq!(decode(&bytes, 72), Check::Unreadable);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match decode(&damaged, 64) {
                Check::Whole(_) => panic!("bit {bit} was not noticed"),
                Check::BodyDamaged(frame) => assert!(bit / 8 >= 23 && frame.head == b"head"),
                Check::Unreadable => assert!(bit / 8 < 23),
            }
        }
        assert_eq!(decode(&bytes[..31], 64), Check::Unreadable);
    }

    #[test]
    fn the_next_frame_is_found_behind_rubbish() {
        let mut bytes = vec![0xa5; 40];
        bytes.extend(sample(40));
        assert_eq!(find_next(&bytes, 0, 0), Some(40));
        assert_eq!(find_next(&bytes, 8, 0), None);
    }
}
