//! Replies of the transmission phase.

use super::errno::Errno;
use super::fields::shortened;
use super::request::Style;
use bytes::{BufMut, Bytes, BytesMut};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

/// The flag of a reply's last chunk.
const DONE: u16 = 1;

/// Types of chunks.
mod kind {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const BLOCK_STATUS_EXT: u16 = 6;
    pub(super) const ERROR: u16 = 1 << 15 | 1;
}

/// The longest extent that a compact descriptor can tell: whole blocks.
const COMPACT_EXTENT_BYTES_MAX: u64 = (u32::MAX - 511) as u64;

/// A part of the bytes that were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The bytes themselves; at least one.
    Bytes(Bytes),
    /// The length of a hole, from 1 byte to 32 MiB; all of its bytes are zero.
    Hole(u64),
}

impl Part {
    /// Bytes of the export that it covers.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Hole(length) => *length,
        }
    }
}

/// The state of consecutive bytes in a metadata context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// The number of bytes; at least one.
    pub length: u64,
    /// The state, whose meaning is the context's.
    pub status: u32,
}

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// It failed, with a sentence for people.
    Failed(Errno, String),
    /// The bytes of a read, in order and without gaps.
    Content(Vec<Part>),
    /// By context id: descriptors from the request's offset on, at least one.
    Status(Vec<(u32, Vec<Descriptor>)>),
}

/// The request that a reply belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipient {
    /// Its number.
    pub(crate) cookie: u64,
    /// The first byte of its range.
    pub(crate) offset: u64,
}

/// Encodes a reply as buffers that follow each other. Bytes of parts are not copied.
pub(crate) fn encode(style: Style, recipient: Recipient, answer: Answer) -> Vec<Bytes> {
    match style {
        Style::Simple => simple(recipient, answer),
        Style::Structured | Style::Extended => chunks(style, recipient, answer),
    }
}

/// A simple reply. A client without structured replies has no contexts, so no status needs one.
fn simple(recipient: Recipient, answer: Answer) -> Vec<Bytes> {
    let (number, parts) = match answer {
        Answer::Done => (0, Vec::new()),
        Answer::Failed(errno, _) => (errno.number(), Vec::new()),
        Answer::Content(parts) => (0, parts),
        Answer::Status(_) => (Errno::Invalid.number(), Vec::new()),
    };
    let mut head = BytesMut::with_capacity(16);
    head.put_u32(SIMPLE_MAGIC);
    head.put_u32(number);
    head.put_u64(recipient.cookie);
    let payload = parts.into_iter().map(|part| match part {
        Part::Bytes(bytes) => bytes,
        Part::Hole(length) => Bytes::from(vec![0; length as usize]),
    });
    [head.freeze()].into_iter().chain(payload).collect()
}

fn chunks(style: Style, recipient: Recipient, answer: Answer) -> Vec<Bytes> {
    let head = |flags, kind, length| chunk_head(style, recipient, (flags, kind), length);
    match answer {
        Answer::Done => vec![head(DONE, kind::NONE, 0).freeze()],
        Answer::Failed(errno, sentence) => {
            let text = shortened(&sentence);
            let mut chunk = head(DONE, kind::ERROR, 6 + text.len() as u64);
            chunk.put_u32(errno.number());
            chunk.put_u16(text.len() as u16);
            chunk.put_slice(text.as_bytes());
            vec![chunk.freeze()]
        }
        Answer::Content(parts) if parts.is_empty() => vec![head(DONE, kind::NONE, 0).freeze()],
        Answer::Content(parts) => {
            let (mut buffers, mut offset) = (Vec::new(), recipient.offset);
            let last = parts.len() - 1;
            for (at, part) in parts.into_iter().enumerate() {
                let (flags, length) = (if at == last { DONE } else { 0 }, part.length());
                match part {
                    Part::Bytes(bytes) => {
                        let mut chunk = head(flags, kind::OFFSET_DATA, 8 + length);
                        chunk.put_u64(offset);
                        buffers.extend([chunk.freeze(), bytes]);
                    }
                    Part::Hole(_) => {
                        let mut chunk = head(flags, kind::OFFSET_HOLE, 12);
                        chunk.put_u64(offset);
                        chunk.put_u32(length as u32);
                        buffers.push(chunk.freeze());
                    }
                }
                offset += length;
            }
            buffers
        }
        Answer::Status(contexts) => {
            let last = contexts.len().saturating_sub(1);
            let chunks = contexts.iter().enumerate();
            let chunks = chunks.map(|(at, (id, descriptors))| {
                let flags = if at == last { DONE } else { 0 };
                status_chunk(style, recipient, flags, (*id, descriptors))
            });
            chunks.collect()
        }
    }
}

/// The chunk of one context.
fn status_chunk(
    style: Style,
    recipient: Recipient,
    flags: u16,
    (id, descriptors): (u32, &[Descriptor]),
) -> Bytes {
    let head = |kind, length| chunk_head(style, recipient, (flags, kind), length);
    // An extent that does not fit a compact descriptor is cut, and the client asks again for what lies behind.
    let is_cut =
        |one: &Descriptor| style != Style::Extended && one.length > COMPACT_EXTENT_BYTES_MAX;
    let cut = descriptors.iter().position(is_cut);
    let descriptors = cut.map_or(descriptors, |cut| &descriptors[..=cut]);
    let count = descriptors.len() as u64;
    let mut chunk = if style == Style::Extended {
        let mut chunk = head(kind::BLOCK_STATUS_EXT, 8 + 16 * count);
        chunk.put_u32(id);
        chunk.put_u32(count as u32);
        chunk
    } else {
        let mut chunk = head(kind::BLOCK_STATUS, 4 + 8 * count);
        chunk.put_u32(id);
        chunk
    };
    for descriptor in descriptors {
        if style == Style::Extended {
            chunk.put_u64(descriptor.length);
            chunk.put_u64(u64::from(descriptor.status));
        } else {
            chunk.put_u32(descriptor.length.min(COMPACT_EXTENT_BYTES_MAX) as u32);
            chunk.put_u32(descriptor.status);
        }
    }
    chunk.freeze()
}

fn chunk_head(
    style: Style,
    recipient: Recipient,
    (flags, kind): (u16, u16),
    length: u64,
) -> BytesMut {
    let mut head = BytesMut::with_capacity(64);
    let is_extended = style == Style::Extended;
    head.put_u32(if is_extended {
        EXTENDED_MAGIC
    } else {
        STRUCTURED_MAGIC
    });
    head.put_u16(flags);
    head.put_u16(kind);
    head.put_u64(recipient.cookie);
    if is_extended {
        head.put_u64(recipient.offset);
        head.put_u64(length);
    } else {
        head.put_u32(length as u32);
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Recipient = Recipient {
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1000,
    };
    const COOKIE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

    fn check(style: Style, answer: Answer, expected: &[&[u8]]) {
        let encoded = encode(style, TO, answer).concat();
        assert_eq!(encoded, expected.concat());
    }

    #[test]
    fn simple_replies_have_the_bytes_behind_them() {
        let magic: &[u8] = &[0x67, 0x44, 0x66, 0x98];
        check(
            Style::Simple,
            Answer::Done,
            &[magic, &[0, 0, 0, 0], &COOKIE],
        );
        let failed = Answer::Failed(Errno::NoSpace, "full".to_owned());
        check(Style::Simple, failed, &[magic, &[0, 0, 0, 28], &COOKIE]);
        let parts = vec![Part::Bytes(Bytes::from_static(b"ab")), Part::Hole(3)];
        check(
            Style::Simple,
            Answer::Content(parts),
            &[magic, &[0, 0, 0, 0], &COOKIE, b"ab\0\0\0"],
        );
    }

    #[test]
    fn structured_replies_tell_holes_and_sentences() {
        let magic: &[u8] = &[0x66, 0x8e, 0x33, 0xef];
        let none = [magic, &[0, 1, 0, 0], &COOKIE, &[0, 0, 0, 0]];
        check(Style::Structured, Answer::Done, &none);
        check(Style::Structured, Answer::Content(Vec::new()), &none);
        let failed = Answer::Failed(Errno::Io, "no".to_owned());
        check(
            Style::Structured,
            failed,
            &[
                magic,
                &[0, 1, 0x80, 1],
                &COOKIE,
                &[0, 0, 0, 8],
                &[0, 0, 0, 5, 0, 2],
                b"no",
            ],
        );
        let parts = vec![Part::Hole(0x200), Part::Bytes(Bytes::from_static(b"abc"))];
        check(
            Style::Structured,
            Answer::Content(parts),
            &[
                magic,
                &[0, 0, 0, 2],
                &COOKIE,
                &[0, 0, 0, 12],
                &[0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2, 0],
                magic,
                &[0, 1, 0, 1],
                &COOKIE,
                &[0, 0, 0, 11],
                &[0, 0, 0, 0, 0, 0, 0x12, 0],
                b"abc",
            ],
        );
        let hole = Descriptor {
            length: 1 << 40,
            status: 3,
        };
        check(
            Style::Structured,
            Answer::Status(vec![(1, vec![hole])]),
            &[
                magic,
                &[0, 1, 0, 5],
                &COOKIE,
                &[0, 0, 0, 12],
                &[0, 0, 0, 1],
                &[0xff, 0xff, 0xfe, 0, 0, 0, 0, 3],
            ],
        );
    }

    #[test]
    fn extended_replies_repeat_the_offset_and_tell_long_extents() {
        let magic: &[u8] = &[0x6e, 0x8a, 0x27, 0x8c];
        let offset: &[u8] = &[0, 0, 0, 0, 0, 0, 0x10, 0];
        check(
            Style::Extended,
            Answer::Done,
            &[magic, &[0, 1, 0, 0], &COOKIE, offset, &[0; 8]],
        );
        let extents = [(1 << 40, 3), (512, 0)];
        let extents = extents.map(|(length, status)| Descriptor { length, status });
        check(
            Style::Extended,
            Answer::Status(vec![(1, extents.to_vec()), (2, extents[1..].to_vec())]),
            &[
                magic,
                &[0, 0, 0, 6],
                &COOKIE,
                offset,
                &[0, 0, 0, 0, 0, 0, 0, 40],
                &[0, 0, 0, 1, 0, 0, 0, 2],
                &[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
                &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                magic,
                &[0, 1, 0, 6],
                &COOKIE,
                offset,
                &[0, 0, 0, 0, 0, 0, 0, 24],
                &[0, 0, 0, 2, 0, 0, 0, 1],
                &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ],
        );
    }
}
