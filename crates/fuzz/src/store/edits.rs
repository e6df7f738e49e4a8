//! Edits of a store's files that an input describes.

use super::frames::edit_frames;
use super::image::Image;
use super::sums::{correct, reserve};
use crate::script::{Script, edit};

/// The longest file after edits; those of the image are shorter.
const FILE_BYTES_MAX: usize = 96 << 10;
/// Files that an input changes.
const FILE_COUNT_MAX: usize = 3;
/// Bytes of a segment before its frames.
const SEGMENT_FRAMES_AT: usize = 4096;

/// The files that a target changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    /// All files but the journal's and those with a reserve.
    Chunks,
    /// The journal's segments.
    Journals,
    /// Chunks with a reserve.
    Reserves,
}

/// The files of a store that an input changed.
pub(super) struct Edited {
    /// Places in the image's list, each with the new bytes, or none if the file is gone.
    pub(super) files: Vec<(usize, Option<Vec<u8>>)>,
    /// Whether the only change is one flipped bit. Every checksum notices that.
    pub(super) is_one_bit: bool,
}

impl Family {
    fn has(self, path: &str, bytes: &[u8]) -> bool {
        let is_journal = path.starts_with("journal/");
        let has_reserve = path.starts_with("chunks/") && reserve(bytes).is_some();
        self == match (is_journal, has_reserve) {
            (true, _) => Self::Journals,
            (_, true) => Self::Reserves,
            _ => Self::Chunks,
        }
    }
}

/// Edits files until the input ends.
pub(super) fn edited(image: &Image, family: Family, script: &mut Script<'_>) -> Edited {
    let mut edited = Edited {
        files: Vec::new(),
        is_one_bit: false,
    };
    let is_meant = |at: &usize| {
        let (path, bytes) = &image.files[*at];
        // The spare segment of the journal is empty until it is used.
        !bytes.is_empty() && family.has(path, bytes)
    };
    let family: Vec<usize> = (0..image.files.len()).filter(is_meant).collect();
    while !script.is_empty() && edited.files.len() < FILE_COUNT_MAX {
        let mode = script.u8();
        let at = family[usize::from(script.u8()) % family.len()];
        edited.files.retain(|(other, _)| *other != at);
        let (path, bytes) = &image.files[at];
        if mode % 8 == 7 {
            edited.is_one_bit = edited.files.is_empty();
            let mut bytes = bytes.clone();
            let bit = script.below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            edited.files.push((at, Some(bytes)));
            return edited;
        }
        let changed = match mode % 8 {
            0 => {
                let mut bytes = bytes.clone();
                edit_bytes(&mut bytes, mode, script);
                Some(bytes)
            }
            1 | 2 => {
                let mut bytes = bytes.clone();
                edit_bytes(&mut bytes, mode, script);
                correct(path, &mut bytes);
                Some(bytes)
            }
            3 if mode & 0x80 != 0 => None,
            _ => {
                let mut bytes = bytes.clone();
                edit_structure(path, &mut bytes, script);
                correct(path, &mut bytes);
                Some(bytes)
            }
        };
        edited.files.push((at, changed));
    }
    edited
}

/// Edits bytes anywhere, or only those of the header and of the first frames.
fn edit_bytes(bytes: &mut Vec<u8>, mode: u8, script: &mut Script<'_>) {
    for _ in 0..=mode >> 6 {
        if mode & 0x10 != 0 {
            let at = script.below(128).min(bytes.len());
            let number = script.number().to_le_bytes();
            let width = 1 << (script.u8() & 3);
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        } else {
            edit(bytes, script);
        }
    }
    bytes.truncate(FILE_BYTES_MAX);
}

/// Edits the frames of a journal or a reserve; a field of the header of other files.
fn edit_structure(path: &str, bytes: &mut Vec<u8>, script: &mut Script<'_>) {
    let frames_at = if path.starts_with("journal/") {
        Some(SEGMENT_FRAMES_AT)
    } else if path.starts_with("chunks/") {
        reserve(bytes).map(|(at, _)| at)
    } else {
        None
    };
    match frames_at.filter(|&at| at <= bytes.len()) {
        Some(at) => edit_frames(&mut bytes[at..], script),
        None => edit_bytes(bytes, 0x10, script),
    }
}
