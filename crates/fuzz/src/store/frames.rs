//! The frames of a journal's segment or of a reserve as values, which can be edited and written again.

use crate::script::{Script, edit};

/// Bytes of a frame before its head.
pub(super) const PREFIX_BYTES: usize = 19;

/// Kinds of entries are at most this.
const KIND_MAX: u8 = 9;

/// A frame.
#[derive(Clone, Debug)]
struct Frame {
    kind: u8,
    head: Vec<u8>,
    body: Vec<u8>,
    unsynced_bytes: u32,
}

/// Bytes of the frame at the front, with its padding; none if there is no frame, or it is cut off.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let prefix: &[u8; PREFIX_BYTES] = bytes.first_chunk()?;
    let body_bytes = u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    let head_bytes = u16::from_le_bytes([prefix[12], prefix[13]]);
    let length = PREFIX_BYTES + usize::from(head_bytes) + body_bytes as usize;
    let padded = length.next_multiple_of(8);
    (prefix[14] != 0 && padded <= bytes.len()).then_some(padded)
}

fn parse(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(length) = length(bytes) {
        let (frame, rest) = bytes.split_at(length);
        let head_end = PREFIX_BYTES + usize::from(u16::from_le_bytes([frame[12], frame[13]]));
        let body_bytes = u32::from_le_bytes([frame[8], frame[9], frame[10], frame[11]]) as usize;
        frames.push(Frame {
            kind: frame[14],
            head: frame[PREFIX_BYTES..head_end].to_vec(),
            body: frame[head_end..head_end + body_bytes].to_vec(),
            unsynced_bytes: u32::from_le_bytes([frame[15], frame[16], frame[17], frame[18]]),
        });
        bytes = rest;
    }
    frames
}

/// Edits the frames in `bytes`, a segment or a reserve from its first frame on. The length stays; what does not fit is
/// left out. Checksums are not corrected.
pub(super) fn edit_frames(bytes: &mut [u8], script: &mut Script<'_>) {
    let mut frames = parse(bytes);
    for _ in 0..=script.u8() % 4 {
        edit_one(&mut frames, script);
    }
    bytes.fill(0);
    let mut at = 0;
    for frame in frames {
        let head_bytes = frame.head.len().min(usize::from(u16::MAX));
        let length = (PREFIX_BYTES + head_bytes + frame.body.len()).next_multiple_of(8);
        let Some(room) = bytes.get_mut(at..at + length) else {
            break;
        };
        room[8..12].copy_from_slice(&(frame.body.len() as u32).to_le_bytes());
        room[12..14].copy_from_slice(&(head_bytes as u16).to_le_bytes());
        room[14] = frame.kind;
        room[15..19].copy_from_slice(&frame.unsynced_bytes.to_le_bytes());
        let head_end = PREFIX_BYTES + head_bytes;
        room[PREFIX_BYTES..head_end].copy_from_slice(&frame.head[..head_bytes]);
        room[head_end..head_end + frame.body.len()].copy_from_slice(&frame.body);
        at += length;
    }
}

fn edit_one(frames: &mut Vec<Frame>, script: &mut Script<'_>) {
    let operation = script.u8() % 8;
    let at = usize::from(script.u8()) % (frames.len() + 1);
    match (operation, frames.get_mut(at)) {
        (0 | 1, Some(frame)) => edit(&mut frame.head, script),
        (2, Some(frame)) => edit(&mut frame.body, script),
        (3, Some(frame)) => {
            frame.kind = script.u8() % (KIND_MAX + 2);
            frame.unsynced_bytes = script.number() as u32;
        }
        (4, Some(_)) => drop(frames.remove(at)),
        (5, Some(frame)) => {
            let copy = frame.clone();
            let to = usize::from(script.u8()) % (frames.len() + 1);
            frames.insert(to, copy);
        }
        (6, Some(frame)) => {
            let mut copy = frame.clone();
            edit(&mut copy.head, script);
            frames.push(copy);
        }
        _ => {
            let frame = Frame {
                kind: 1 + script.u8() % KIND_MAX,
                head: script.piece().to_vec(),
                body: script.piece().to_vec(),
                unsynced_bytes: u32::from(script.u8()),
            };
            frames.insert(at, frame);
        }
    }
}
