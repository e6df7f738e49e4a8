//! Requests of the transmission phase: their headers, and the checks that need no device.

use super::errno::Errno;
use super::fields::{Fields, PAYLOAD_BYTES_MAX};
use gabion_layout::ByteRange;

/// Bytes of the longest header of a request.
pub(crate) const REQUEST_BYTES_MAX: usize = 32;

const COMPACT_MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// Flags of requests.
mod flag {
    pub(super) const FUA: u16 = 1;
    pub(super) const NO_HOLE: u16 = 1 << 1;
    pub(super) const DF: u16 = 1 << 2;
    pub(super) const REQ_ONE: u16 = 1 << 3;
    pub(super) const FAST_ZERO: u16 = 1 << 4;
    pub(super) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of requests.
mod kind {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const DISC: u16 = 2;
    pub(super) const FLUSH: u16 = 3;
    pub(super) const TRIM: u16 = 4;
    pub(super) const CACHE: u16 = 5;
    pub(super) const WRITE_ZEROES: u16 = 6;
    pub(super) const BLOCK_STATUS: u16 = 7;
}

/// The headers that both sides have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Style {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies.
    Structured,
    /// Extended requests and replies.
    Extended,
}

impl Style {
    /// Bytes of a request's header.
    pub(crate) const fn request_bytes(self) -> usize {
        match self {
            Self::Simple | Self::Structured => 28,
            Self::Extended => REQUEST_BYTES_MAX,
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    flags: u16,
    kind: u16,
    /// The client's number of the request; the reply repeats it.
    pub(crate) cookie: u64,
    /// The first byte of the range.
    pub(crate) offset: u64,
    length: u64,
}

/// The facts about an export by which requests are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Export {
    /// Its size when the client attached to it.
    pub(crate) size_bytes: u64,
    /// Whether writes are refused.
    pub(crate) is_read_only: bool,
    /// Whether the client has selected a metadata context.
    pub(crate) has_contexts: bool,
}

/// A valid request. Every range is within the export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// Reply with the bytes.
    Read {
        range: ByteRange,
        /// In one piece.
        is_whole: bool,
    },
    /// Write the bytes that follow.
    Write { range: ByteRange },
    /// Finish all other requests, and close the connection.
    Disconnect,
    /// Make all acknowledged writes durable.
    Flush,
    /// The bytes are no longer needed.
    Trim { range: ByteRange },
    /// The bytes will be read soon.
    Cache { range: ByteRange },
    /// Make the bytes zero.
    Zero {
        range: ByteRange,
        /// They may not become a hole.
        keeps_space: bool,
        /// Refuse if that takes as long as a write.
        is_fast: bool,
    },
    /// Reply with the state of the range in each selected metadata context.
    Status {
        range: ByteRange,
        /// Of the first extent only.
        is_one: bool,
    },
}

impl Command {
    /// Its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Disconnect => "disconnect",
            Self::Flush => "flush",
            Self::Trim { .. } => "trim",
            Self::Cache { .. } => "cache",
            Self::Zero { .. } => "write_zeroes",
            Self::Status { .. } => "block_status",
        }
    }
}

impl Request {
    /// Decodes a header; none if it is not one, after which nothing on the connection makes sense.
    pub(crate) fn decode(style: Style, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.u32()?;
        let (flags, kind) = (fields.u16()?, fields.u16()?);
        let (cookie, offset) = (fields.u64()?, fields.u64()?);
        let (expected, length) = match style {
            Style::Simple | Style::Structured => (COMPACT_MAGIC, u64::from(fields.u32()?)),
            Style::Extended => (EXTENDED_MAGIC, fields.u64()?),
        };
        (magic == expected).then_some(Self {
            flags,
            kind,
            cookie,
            offset,
            length,
        })
    }

    /// Bytes that follow the header.
    pub(crate) fn payload_bytes(&self, style: Style) -> u64 {
        let has_payload = match style {
            Style::Simple | Style::Structured => self.kind == kind::WRITE,
            Style::Extended => self.has(flag::PAYLOAD_LEN),
        };
        if has_payload { self.length } else { 0 }
    }

    const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Checks the request. Each refusal is the one that the protocol names.
    ///
    /// # Errors
    /// The error of the reply.
    pub(crate) fn check(&self, style: Style, export: Export) -> Result<Command, Errno> {
        if self.kind == kind::DISC {
            return Ok(Command::Disconnect);
        }
        if self.flags & !self.allowed_flags(style) != 0 {
            return Err(Errno::Invalid);
        }
        let is_write = matches!(self.kind, kind::WRITE | kind::WRITE_ZEROES);
        if export.is_read_only && (is_write || self.kind == kind::TRIM) {
            return Err(Errno::NotPermitted);
        }
        let end = self.offset.checked_add(self.length);
        if self.kind != kind::FLUSH && end.is_none_or(|end| end > export.size_bytes) {
            return Err(if is_write {
                Errno::NoSpace
            } else {
                Errno::Invalid
            });
        }
        let range = ByteRange::new(self.offset, self.length);
        let is_long = self.length > PAYLOAD_BYTES_MAX;
        match self.kind {
            kind::READ if is_long && self.has(flag::DF) => Err(Errno::Overflow),
            kind::READ | kind::WRITE if is_long => Err(Errno::Invalid),
            kind::READ => Ok(Command::Read {
                range,
                is_whole: self.has(flag::DF),
            }),
            kind::WRITE if style == Style::Extended && !self.has(flag::PAYLOAD_LEN) => {
                Err(Errno::Invalid)
            }
            kind::WRITE => Ok(Command::Write { range }),
            kind::FLUSH if (self.offset, self.length) != (0, 0) => Err(Errno::Invalid),
            kind::FLUSH => Ok(Command::Flush),
            kind::TRIM => Ok(Command::Trim { range }),
            kind::CACHE => Ok(Command::Cache { range }),
            kind::WRITE_ZEROES => Ok(Command::Zero {
                range,
                keeps_space: self.has(flag::NO_HOLE),
                is_fast: self.has(flag::FAST_ZERO),
            }),
            kind::BLOCK_STATUS if range.is_empty() || !export.has_contexts => Err(Errno::Invalid),
            kind::BLOCK_STATUS => Ok(Command::Status {
                range,
                is_one: self.has(flag::REQ_ONE),
            }),
            _ => Err(Errno::Invalid),
        }
    }

    /// The flags that a request of this type may have. FUA is valid with all of them.
    fn allowed_flags(&self, style: Style) -> u16 {
        let own = match self.kind {
            kind::READ if style != Style::Simple => flag::DF,
            kind::WRITE if style == Style::Extended => flag::PAYLOAD_LEN,
            kind::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
            kind::BLOCK_STATUS => flag::REQ_ONE,
            _ => 0,
        };
        own | flag::FUA
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    const EXPORT: Export = Export {
        size_bytes: 64 << 20,
        is_read_only: false,
        has_contexts: true,
    };
    const END: u64 = EXPORT.size_bytes;
    const MIB: u64 = 1 << 20;

    fn request(kind: u16, flags: u16, offset: u64, length: u64) -> Request {
        Request {
            flags,
            kind,
            cookie: 7,
            offset,
            length,
        }
    }

    #[test]
    fn both_headers_are_read_byte_by_byte() {
        let compact = [
            0x25, 0x60, 0x95, 0x13, // magic
            0x00, 0x01, // flags: FUA
            0x00, 0x01, // type: WRITE
            1, 2, 3, 4, 5, 6, 7, 8, // cookie
            0, 0, 0, 0, 0, 0, 0x10, 0x00, // offset
            0, 0, 2, 0, // length
        ];
        let expected = Request {
            flags: flag::FUA,
            kind: kind::WRITE,
            cookie: 0x0102_0304_0506_0708,
            offset: 4096,
            length: 512,
        };
        assert_eq!(Request::decode(Style::Simple, &compact), Some(expected));
        assert_eq!(expected.payload_bytes(Style::Simple), 512);
        let extended = [
            0x21, 0xe4, 0x1c, 0x71, // magic
            0x00, 0x02, // flags: NO_HOLE
            0x00, 0x06, // type: WRITE_ZEROES
            0, 0, 0, 0, 0, 0, 0, 9, // cookie
            0, 0, 0, 1, 0, 0, 0, 0, // offset
            0, 0, 0, 2, 0, 0, 0, 0, // length
        ];
        let expected = Request {
            cookie: 9,
            ..request(kind::WRITE_ZEROES, flag::NO_HOLE, 1 << 32, 2 << 32)
        };
        assert_eq!(Request::decode(Style::Extended, &extended), Some(expected));
        assert_eq!(expected.payload_bytes(Style::Extended), 0);
        assert_eq!(Request::decode(Style::Extended, &compact), None);
        assert_eq!(Request::decode(Style::Structured, &extended), None);
        assert_eq!(Request::decode(Style::Simple, &compact[..27]), None);
    }

    #[test]
    fn each_bad_request_gets_the_error_that_the_protocol_names() {
        use Errno::{Invalid, NoSpace, Overflow};
        for (request, expected) in [
            (request(kind::READ, 0, END - 1, 2), Invalid),
            (request(kind::READ, 0, u64::MAX, 2), Invalid),
            (request(kind::WRITE, 0, END, 1), NoSpace),
            (request(kind::WRITE, flag::FUA, u64::MAX, 1), NoSpace),
            (request(kind::WRITE_ZEROES, 0, END - 1, 2), NoSpace),
            (request(kind::TRIM, 0, END - 1, 2), Invalid),
            (request(kind::CACHE, 0, END - 1, 2), Invalid),
            (request(kind::BLOCK_STATUS, 0, END - 1, 2), Invalid),
            (request(kind::BLOCK_STATUS, 0, 0, 0), Invalid),
            (request(kind::READ, 0, 0, 32 * MIB + 1), Invalid),
            (request(kind::READ, flag::DF, 0, 32 * MIB + 1), Overflow),
            (request(kind::WRITE, 0, 0, 32 * MIB + 1), Invalid),
            (request(kind::READ, flag::NO_HOLE, 0, 1), Invalid),
            (request(kind::WRITE, flag::PAYLOAD_LEN, 0, 1), Invalid),
            (request(kind::TRIM, 1 << 15, 0, 1), Invalid),
            (request(kind::FLUSH, 0, 0, 1), Invalid),
            (request(8, 0, 0, 1), Invalid),
            (request(u16::MAX, 0, 0, 0), Invalid),
        ] {
            let checked = request.check(Style::Structured, EXPORT);
            assert_eq!(checked, Err(expected), "{request:?}");
        }
        let simple = request(kind::READ, flag::DF, 0, 1).check(Style::Simple, EXPORT);
        assert_eq!(simple, Err(Invalid), "DF needs structured replies");
        let bare = request(kind::WRITE, 0, 0, 1).check(Style::Extended, EXPORT);
        assert_eq!(bare, Err(Invalid), "an extended write has a payload");
        let stray = request(kind::READ, flag::PAYLOAD_LEN, 0, 1);
        assert_eq!(stray.check(Style::Extended, EXPORT), Err(Invalid));
        assert_eq!(stray.payload_bytes(Style::Extended), 1);
        let no_contexts = Export {
            has_contexts: false,
            ..EXPORT
        };
        let status = request(kind::BLOCK_STATUS, 0, 0, 1).check(Style::Structured, no_contexts);
        assert_eq!(status, Err(Invalid));
    }

    #[test]
    fn a_read_only_export_takes_no_writes() {
        let read_only = Export {
            is_read_only: true,
            ..EXPORT
        };
        for kind in [kind::WRITE, kind::WRITE_ZEROES, kind::TRIM] {
            let checked = request(kind, 0, 0, 1).check(Style::Simple, read_only);
            assert_eq!(checked, Err(Errno::NotPermitted));
        }
        for kind in [kind::READ, kind::CACHE] {
            let checked = request(kind, 0, 0, 1).check(Style::Simple, read_only);
            assert!(checked.is_ok());
        }
        assert!(
            request(kind::FLUSH, 0, 0, 0)
                .check(Style::Simple, read_only)
                .is_ok()
        );
    }

    #[test]
    fn valid_requests_keep_their_flags() {
        let range = ByteRange::new(0, END);
        let zero = request(kind::WRITE_ZEROES, flag::NO_HOLE | flag::FUA, 0, END);
        let expected = Command::Zero {
            range,
            keeps_space: true,
            is_fast: false,
        };
        assert_eq!(zero.check(Style::Simple, EXPORT), Ok(expected));
        let range = ByteRange::new(END - 1, 1);
        let read = request(kind::READ, flag::DF | flag::FUA, END - 1, 1);
        let expected = Command::Read {
            range,
            is_whole: true,
        };
        assert_eq!(read.check(Style::Structured, EXPORT), Ok(expected));
        let discard = request(kind::DISC, u16::MAX, 5, 5);
        assert_eq!(
            discard.check(Style::Simple, EXPORT),
            Ok(Command::Disconnect)
        );
    }

    #[test]
    fn any_bytes_give_a_request_within_the_export_or_none() {
        let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        for _ in 0..100_000 {
            let mut bytes = [0; REQUEST_BYTES_MAX];
            dice.fill(&mut bytes[..]);
            let style = match dice.random_range(0..3) {
                0 => Style::Simple,
                1 => Style::Structured,
                _ => Style::Extended,
            };
            // Most have the magic and a known type, so that the checks behind them are reached.
            let magic = if style == Style::Extended {
                EXTENDED_MAGIC
            } else {
                COMPACT_MAGIC
            };
            bytes[..4].copy_from_slice(&magic.to_be_bytes());
            bytes[6] = 0;
            bytes[7] %= 10;
            let length = dice.random_range(0..=REQUEST_BYTES_MAX);
            let Some(request) = Request::decode(style, &bytes[..length]) else {
                continue;
            };
            if let Ok(
                Command::Read { range, .. }
                | Command::Write { range }
                | Command::Trim { range }
                | Command::Zero { range, .. }
                | Command::Status { range, .. },
            ) = request.check(style, EXPORT)
            {
                assert!(range.end() <= END, "{request:?}");
            }
        }
    }
}
