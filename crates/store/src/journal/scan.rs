//! Scans the frames of a journal segment, and separates a torn tail from damage.
//!
//! After a crash, unsynced frames may be present, missing or torn in any combination. Every frame
//! records the journal's synced position when it was written. Unreadable bytes are damage if a
//! later frame gives them as synced, and the torn tail otherwise. The tail is cut at its first bad
//! frame: nothing behind it was ever reported as durable.

use crate::journal::entry::Entry;
use crate::journal::frame::{self, Check, Frame};

/// Content of a stretch of a segment.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Found<'a> {
    /// An intact frame.
    Whole(Frame<'a>),
    /// A frame with an intact head and a damaged body.
    BodyDamaged(Frame<'a>),
    /// Unreadable bytes that were synced once, and how many.
    Unreadable(u64),
}

/// The entry of a frame, unless its parts contradict each other.
pub(crate) fn decode_entry(frame: &Frame<'_>) -> Option<Entry> {
    let entry = Entry::decode(frame.kind, frame.head)?;
    match &entry {
        Entry::Update(head) if head.piece_bytes() != frame.body.len() as u64 => None,
        _ => Some(entry),
    }
}

/// Calls `visit` with each find and its position, in order; returns the position at which the
/// readable frames end. `frames` is the content behind a segment's header, at position `base_lsn`.
/// Everything before `synced_lsn` is known to be synced. `end_lsn` is the beginning of the next
/// segment, or `None` for the last segment.
pub(crate) fn scan<'a>(
    frames: &'a [u8],
    base_lsn: u64,
    (synced_lsn, end_lsn): (u64, Option<u64>),
    mut visit: impl FnMut(u64, Found<'a>),
) -> u64 {
    let known_end = end_lsn.map(|end| (end - base_lsn) as usize);
    let frames = &frames[..known_end.unwrap_or(frames.len()).min(frames.len())];
    let mut last_synced_lsn = None;
    let mut at = 0;
    while at < frames.len() {
        let lsn = base_lsn + at as u64;
        let check = frame::decode(&frames[at..], lsn);
        if let Check::Whole(frame) = check {
            at += frame.padded_bytes;
            visit(lsn, Found::Whole(frame));
            continue;
        }
        let was_synced = end_lsn.is_some()
            || lsn < synced_lsn
            || lsn < *last_synced_lsn.get_or_insert_with(|| last_synced(frames, base_lsn, at));
        if !was_synced {
            return lsn;
        }
        if let Check::BodyDamaged(frame) = check {
            at += frame.padded_bytes;
            visit(lsn, Found::BodyDamaged(frame));
        } else {
            let next = frame::find_next(frames, base_lsn, at).unwrap_or(frames.len());
            visit(lsn, Found::Unreadable((next - at) as u64));
            at = next;
        }
    }
    if let Some(missing) = known_end.and_then(|end| end.checked_sub(frames.len()))
        && missing > 0
    {
        visit(
            base_lsn + frames.len() as u64,
            Found::Unreadable(missing as u64),
        );
    }
    end_lsn.unwrap_or(base_lsn + frames.len() as u64)
}

/// The highest position that a frame behind `from` gives as synced.
fn last_synced(frames: &[u8], base_lsn: u64, from: usize) -> u64 {
    let mut highest = 0;
    let mut at = from;
    while let Some(next) = frame::find_next(frames, base_lsn, at) {
        let lsn = base_lsn + next as u64;
        if let Check::Whole(frame) | Check::BodyDamaged(frame) = frame::decode(&frames[next..], lsn)
        {
            highest = highest.max(frame.synced_lsn);
        }
        at = next;
    }
    highest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of 32 bytes each from position 1000 on; each gives the number of bytes before it that
    /// are not synced.
    fn frames(unsynced_bytes: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut frame = Vec::new();
        for unsynced in unsynced_bytes {
            let lsn = 1000 + bytes.len() as u64;
            frame::encode(&mut frame, lsn, lsn - unsynced, 1, b"head", &[b"body"]);
            bytes.extend_from_slice(&frame);
        }
        bytes.resize(bytes.len() + 256, 0);
        bytes
    }

    fn check(bytes: &[u8], end_lsn: Option<u64>) -> (String, u64) {
        let mut log = Vec::new();
        let end = scan(bytes, 1000, (0, end_lsn), |lsn, found| {
            log.push(match found {
                Found::Whole(_) => format!("{lsn} whole, "),
                Found::BodyDamaged(_) => format!("{lsn} body, "),
                Found::Unreadable(bytes) => format!("{lsn} unreadable {bytes}, "),
            });
        });
        (log.concat(), end)
    }

    #[test]
    fn a_clean_segment_ends_behind_its_last_frame() {
        let (log, end) = check(&frames(&[0, 0]), None);
        assert_eq!((log.as_str(), end), ("1000 whole, 1032 whole, ", 1064));
    }

    #[test]
    fn unsynced_frames_behind_a_bad_one_are_cut_off() {
        let mut bytes = frames(&[0, 32, 64]);
        bytes[32..64].fill(0);
        let (log, end) = check(&bytes, None);
        assert_eq!((log.as_str(), end), ("1000 whole, ", 1032));
    }

    #[test]
    fn a_bad_frame_that_a_later_one_calls_synced_is_damage() {
        let mut bytes = frames(&[0, 0, 32, 0]);
        bytes[32] ^= 1;
        let (log, end) = check(&bytes, None);
        let expected = "1000 whole, 1032 unreadable 32, 1064 whole, 1096 whole, ";
        assert_eq!((log.as_str(), end), (expected, 1128));
        bytes[32] ^= 1;
        bytes[32 + 24] ^= 1;
        let expected = "1000 whole, 1032 body, 1064 whole, 1096 whole, ";
        assert_eq!(check(&bytes, None), (expected.to_owned(), 1128));
    }

    #[test]
    fn before_a_known_end_everything_is_damage() {
        let mut bytes = frames(&[0, 0]);
        bytes[32] ^= 1;
        let (log, end) = check(&bytes, Some(1064));
        assert_eq!(
            (log.as_str(), end),
            ("1000 whole, 1032 unreadable 32, ", 1064)
        );
        let (log, end) = check(&bytes[..32], Some(1064));
        assert_eq!(
            (log.as_str(), end),
            ("1000 whole, 1032 unreadable 32, ", 1064)
        );
    }
}
