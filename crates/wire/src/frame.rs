//! The byte format of frames: a fixed header with checksums, then a body.
//!
//! `docs/wire.md` specifies every byte. This module knows layouts, limits and checksums only; what
//! bodies mean is in [`crate::body`], and nothing here does I/O. Input is hostile until proven
//! otherwise: decoding returns [`WireError::Corrupt`] and never panics.

use crate::error::WireError;
use crate::versions::VERSION;

/// Bytes of a header, in this and every later version.
pub const HEADER_BYTES: usize = 40;

/// The most bytes that a body may have. Checked before anything is allocated for it.
pub const MAX_BODY_BYTES: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"GBNW";
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The sender's identity. The first frame each way, and only the first.
    Hello = 1,
    /// A request to a node.
    NodeRequest = 2,
    /// Its reply.
    NodeReply = 3,
    /// A request to the coordinator.
    CoordinatorRequest = 4,
    /// Its reply.
    CoordinatorReply = 5,
    /// One slice of a value; the body is the slice's bytes as they are.
    Slice = 6,
    /// Room for more slices of a value.
    Credit = 7,
    /// The sender aborted a run.
    Abort = 8,
    /// No reply to a request will come; the body is the reason as text.
    NoReply = 9,
    /// The sender closes the connection; the body is the reason as text.
    Goodbye = 10,
    /// A request to the coordinator about certificates.
    CertificateRequest = 11,
    /// Its reply.
    CertificateReply = 12,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Hello,
        Self::NodeRequest,
        Self::NodeReply,
        Self::CoordinatorRequest,
        Self::CoordinatorReply,
        Self::Slice,
        Self::Credit,
        Self::Abort,
        Self::NoReply,
        Self::Goodbye,
        Self::CertificateRequest,
        Self::CertificateReply,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// A header, decoded. Fields that a kind does not use are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The version in which the frame is encoded. A hello's is the newest version of its sender.
    pub version: u16,
    /// The kind of the frame.
    pub kind: Kind,
    /// Slice: the purpose's number. Otherwise 0.
    pub purpose: u8,
    /// Bytes of the body.
    pub body_bytes: u32,
    /// CRC-32C of the body.
    pub body_crc: u32,
    /// Requests and replies: the request's number. Slice, Credit and Abort: the run.
    pub id: u64,
    /// Slice: the slice's number. Credit: how many more slices. Otherwise 0.
    pub slice: u64,
    /// Slice and Credit: the value. Otherwise 0.
    pub value: u32,
}

impl Header {
    /// A header of `kind` for `body` in the newest version, with all numbers 0. A connection sets the version on which
    /// its two sides have agreed.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] when the body is over [`MAX_BODY_BYTES`].
    pub fn new(kind: Kind, body: &[u8]) -> Result<Self, WireError> {
        if body.len() > MAX_BODY_BYTES {
            return Err(WireError::TooLarge {
                bytes: body.len(),
                limit: MAX_BODY_BYTES,
            });
        }
        Ok(Self {
            version: VERSION,
            kind,
            purpose: 0,
            body_bytes: body.len() as u32,
            body_crc: crc_fast::crc32_iscsi(body),
            id: 0,
            slice: 0,
            value: 0,
        })
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6] = self.kind as u8;
        bytes[7] = self.purpose;
        bytes[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.slice.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.value.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header of any version. The receiver compares the version with the one that it expects.
    ///
    /// # Errors
    /// [`WireError::Corrupt`] for anything that [`Header::encode`] does not make.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        if bytes[0..4] != MAGIC {
            return Err(WireError::Corrupt(
                "it does not begin as a frame of Gabion's protocol",
            ));
        }
        if crc_fast::crc32_iscsi(&bytes[..CHECKED_BYTES]) != read_u32(bytes, CHECKED_BYTES) {
            return Err(WireError::Corrupt("the header's checksum is wrong"));
        }
        let header = Self {
            version: u16::from_le_bytes([bytes[4], bytes[5]]),
            kind: Kind::from_byte(bytes[6]).ok_or(WireError::Corrupt("its kind is unknown"))?,
            purpose: bytes[7],
            body_bytes: read_u32(bytes, 8),
            body_crc: read_u32(bytes, 12),
            id: read_u64(bytes, 16),
            slice: read_u64(bytes, 24),
            value: read_u32(bytes, 32),
        };
        header.check_fields()?;
        Ok(header)
    }

    /// Checks a received body against the header.
    ///
    /// # Errors
    /// [`WireError::Corrupt`] when the length or the checksum differs.
    pub fn check_body(&self, body: &[u8]) -> Result<(), WireError> {
        if body.len() != self.body_bytes as usize {
            return Err(WireError::Corrupt("the body's length is wrong"));
        }
        if crc_fast::crc32_iscsi(body) != self.body_crc {
            return Err(WireError::Corrupt("the body's checksum is wrong"));
        }
        Ok(())
    }

    /// Refuses lengths over the limit and numbers in fields that the kind does not use, so that
    /// those fields are free to mean something in a later version.
    fn check_fields(&self) -> Result<(), WireError> {
        if self.body_bytes as usize > MAX_BODY_BYTES {
            return Err(WireError::Corrupt("the body is longer than the limit"));
        }
        let (uses_id, uses_slice, uses_purpose, uses_body) = match self.kind {
            Kind::Hello | Kind::Goodbye => (false, false, false, true),
            Kind::NodeRequest
            | Kind::NodeReply
            | Kind::CoordinatorRequest
            | Kind::CoordinatorReply
            | Kind::CertificateRequest
            | Kind::CertificateReply
            | Kind::NoReply => (true, false, false, true),
            Kind::Slice => (true, true, true, true),
            Kind::Credit => (true, true, false, false),
            Kind::Abort => (true, false, false, false),
        };
        let is_clean = (uses_id || self.id == 0)
            && (uses_slice || (self.slice == 0 && self.value == 0))
            && (uses_purpose || self.purpose == 0)
            && (uses_body || self.body_bytes == 0);
        if is_clean {
            Ok(())
        } else {
            Err(WireError::Corrupt(
                "a field that its kind does not use is not 0",
            ))
        }
    }
}

fn read_u32(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn read_u64(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_header() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let kind = prop::sample::select(Kind::ALL.to_vec());
        let numbers = (any::<u8>(), any::<u64>(), any::<u64>(), any::<u32>());
        let version = any::<u16>();
        let body = prop::collection::vec(any::<u8>(), 0..200);
        let parts = (kind, version, numbers, body);
        parts.prop_map(|(kind, version, (purpose, id, slice, value), mut body)| {
            if matches!(kind, Kind::Credit | Kind::Abort) {
                body.clear();
            }
            let mut header = Header::new(kind, &body).unwrap();
            header.version = version;
            if !matches!(kind, Kind::Hello | Kind::Goodbye) {
                header.id = id;
            }
            if matches!(kind, Kind::Slice | Kind::Credit) {
                (header.slice, header.value) = (slice, value);
            }
            if kind == Kind::Slice {
                header.purpose = purpose;
            }
            (header, body)
        })
    }

    #[test]
    fn the_format_is_what_the_document_says() {
        let mut header = Header::new(Kind::Slice, b"123456789").unwrap();
        (header.purpose, header.id, header.slice, header.value) = (1, 0x0807, 0x0605, 0x0403);
        let expected = [
            b'G', b'B', b'N', b'W', 26, 0, 6, 1, 9, 0, 0, 0, 0x83, 0x92, 0x06, 0xe3, 7, 8, 0, 0, 0,
            0, 0, 0, 5, 6, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0,
        ];
        assert_eq!(header.encode()[..CHECKED_BYTES], expected);
    }

    proptest! {
        #[test]
        fn headers_survive_encoding((header, body) in any_header()) {
            prop_assert_eq!(Header::decode(&header.encode()).unwrap(), header);
            header.check_body(&body).unwrap();
        }

        #[test]
        fn every_flipped_bit_is_detected((header, body) in any_header()) {
            let bytes = header.encode();
            for bit in 0..HEADER_BYTES * 8 {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                let result = Header::decode(&damaged);
                prop_assert!(matches!(result, Err(WireError::Corrupt(_))), "bit {}", bit);
            }
            for bit in 0..body.len() * 8 {
                let mut damaged = body.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(header.check_body(&damaged).is_err(), "bit {} of the body", bit);
            }
        }

        #[test]
        fn cut_bodies_are_detected((header, body) in any_header(), at in any::<prop::sample::Index>()) {
            prop_assume!(!body.is_empty());
            prop_assert!(header.check_body(&body[..at.index(body.len())]).is_err());
        }

        #[test]
        fn what_is_accepted_is_what_we_would_send(
            mut bytes in any::<[u8; HEADER_BYTES]>(),
            kind in 0_u8..12,
            zero in any::<[bool; HEADER_BYTES]>(),
        ) {
            // Random bytes never have the right checksum, so give them one: what remains is the
            // check of fields.
            for (byte, zero) in bytes.iter_mut().zip(zero) {
                *byte *= u8::from(!zero);
            }
            bytes[0..4].copy_from_slice(&MAGIC);
            bytes[6] = kind;
            let crc = crc_fast::crc32_iscsi(&bytes[..CHECKED_BYTES]);
            bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
                prop_assert!(header.body_bytes as usize <= MAX_BODY_BYTES);
            }
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = Header::new(Kind::Hello, &[]).unwrap().encode();
        bytes[4] = 99;
        assert!(matches!(Header::decode(&bytes), Err(WireError::Corrupt(_))));
        let crc = crc_fast::crc32_iscsi(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes).unwrap().version, 99);
    }

    #[test]
    fn long_bodies_are_refused_before_they_are_sent_or_allocated() {
        let body = vec![0; MAX_BODY_BYTES + 1];
        assert!(matches!(
            Header::new(Kind::Goodbye, &body),
            Err(WireError::TooLarge { .. })
        ));
        let mut header = Header::new(Kind::Goodbye, &[]).unwrap();
        header.body_bytes = MAX_BODY_BYTES as u32 + 1;
        assert!(matches!(
            Header::decode(&header.encode()),
            Err(WireError::Corrupt(_))
        ));
    }
}
