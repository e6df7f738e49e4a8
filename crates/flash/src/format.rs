//! Encoding of everything but page contents: superblock, device header, stripe header, entry,
//! summary and inode. All numbers are little-endian.
//!
//! Each field that changes in place in the non-volatile memory is one word of eight bytes, which no
//! crash tears, or is verified by its contents (an entry of a buffer, by its page's checksum). The
//! superblock does not change.

use crate::allotment::{ALLOTTED_MAX, Allotment};
use crate::checksum::{Begun, crc32c};
use crate::error::FlashError;
use crate::geometry::{Geometry, PAGE_BYTES, SUMMARY_HEADER_BYTES, ZEROS, is_zero};
use std::sync::LazyLock;

const SUPERBLOCK_MAGIC: &[u8; 8] = b"GBNTWN02";
const DEVICE_MAGIC: &[u8; 8] = b"GBNTWND2";
const SUMMARY_MAGIC: &[u8; 8] = b"GBNTWNS2";
/// Bytes of the superblock and of a device's header.
pub(crate) const SUPERBLOCK_BYTES: usize = 64;
/// Bytes of an inode in the table file.
pub(crate) const INODE_BYTES: usize = 256;
/// Bytes of a file's name at most.
pub(crate) const NAME_BYTES_MAX: usize = 120;
/// Most cuts in an inode.
pub(crate) const CUTS_MAX: usize = 4;

/// A store's parameters, and an identity that its devices share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) identity: u64,
    pub(crate) geometry: Geometry,
}

impl Superblock {
    pub(crate) fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(SUPERBLOCK_MAGIC);
        self.fill(&mut bytes);
        bytes
    }

    /// The header of a device, in the first page.
    pub(crate) fn encode_device(&self, index: usize) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(DEVICE_MAGIC);
        bytes[48] = index as u8;
        self.fill(&mut bytes);
        bytes
    }

    fn fill(&self, bytes: &mut [u8; SUPERBLOCK_BYTES]) {
        let geometry = &self.geometry;
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..24].copy_from_slice(&geometry.chunk_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&geometry.stripe_count.to_le_bytes());
        bytes[28] = geometry.data_devices as u8;
        bytes[29] = geometry.parity_devices as u8;
        bytes[30] = geometry.group_count as u8;
        bytes[31] = geometry.spare_buffers as u8;
        let sum = crc32c(&[&bytes[..60]]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Self::parse(bytes, *SUPERBLOCK_MAGIC)
    }

    /// Decodes a device's header, and returns its index in the array.
    pub(crate) fn decode_device(bytes: &[u8]) -> Option<(Self, usize)> {
        Some((Self::parse(bytes, *DEVICE_MAGIC)?, bytes[48] as usize))
    }

    fn parse(bytes: &[u8], magic: [u8; 8]) -> Option<Self> {
        if bytes[..8] != magic || u32_at(bytes, 60) != crc32c(&[&bytes[..60]]) {
            return None;
        }
        let geometry = Geometry {
            data_devices: bytes[28] as usize,
            parity_devices: bytes[29] as usize,
            chunk_bytes: u64_at(bytes, 16),
            stripe_count: u32_at(bytes, 24),
            group_count: bytes[30] as usize,
            spare_buffers: bytes[31] as usize,
        };
        geometry.check().ok()?;
        Some(Self {
            identity: u64_at(bytes, 8),
            geometry,
        })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The use of a stripe, as its header gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StripeState {
    /// It holds nothing.
    Free,
    /// Its slots are in a buffer.
    Open {
        /// The buffer's number.
        buffer: u8,
    },
    /// Its slots are on the devices.
    Sealed {
        /// A bit for each device that lacks its chunk.
        missing: u16,
    },
}

/// Encodes the header. Its first word changes atomically. The second is `base`, and does not change
/// unless the first is free.
pub(crate) fn encode_header(stripe: u32, base: u64, state: StripeState) -> [u8; 8] {
    let mut word = [0; 8];
    match state {
        StripeState::Free => return word,
        StripeState::Open { buffer } => (word[0], word[1]) = (1, buffer),
        StripeState::Sealed { missing } => {
            word[0] = 2;
            word[2..4].copy_from_slice(&missing.to_le_bytes());
        }
    }
    let sum = crc32c(&[&word[..4], &stripe.to_le_bytes(), &base.to_le_bytes()]);
    word[4..].copy_from_slice(&sum.to_le_bytes());
    word
}

/// The state and base of a stripe; `None` if its header is damaged.
pub(crate) fn decode_header(stripe: u32, bytes: &[u8; 16]) -> Option<(StripeState, u64)> {
    let base = u64_at(bytes, 8);
    let missing = u16::from_le_bytes([bytes[2], bytes[3]]);
    let state = match bytes[0] {
        0 => return Some((StripeState::Free, base)),
        1 => StripeState::Open { buffer: bytes[1] },
        2 => StripeState::Sealed { missing },
        _ => return None,
    };
    (encode_header(stripe, base, state) == bytes[..8]).then_some((state, base))
}

/// The content of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Never 0, which marks an empty slot.
    pub(crate) file: u32,
    pub(crate) page: u32,
    /// Larger for later writes of the same page.
    pub(crate) sequence: u64,
    /// Covers file, page, sequence and contents.
    pub(crate) checksum: u32,
}

impl Entry {
    /// The entry of a page with its checksum.
    pub(crate) fn of(file: u32, page: u32, sequence: u64, contents: &Summed) -> Self {
        let mut entry = Self {
            file,
            page,
            sequence,
            checksum: 0,
        };
        entry.checksum = entry.sum(contents);
        entry
    }

    /// Whether the checksum matches these contents.
    pub(crate) fn fits(&self, contents: &[u8]) -> bool {
        self.fitting(contents).is_some()
    }

    /// The checksum over these contents if they match.
    pub(crate) fn fitting(&self, contents: &[u8]) -> Option<Summed> {
        let summed = Summed::of(contents);
        (self.sum(&summed) == self.checksum).then_some(summed)
    }

    fn sum(&self, contents: &Summed) -> u32 {
        let mut name = [0; 16];
        name[..4].copy_from_slice(&self.file.to_le_bytes());
        name[4..8].copy_from_slice(&self.page.to_le_bytes());
        name[8..].copy_from_slice(&self.sequence.to_le_bytes());
        contents.0.then(&name)
    }

    /// Encodes the entry for the table of a stripe whose base is at most 2^32 - 1 below the
    /// sequence.
    pub(crate) fn encode(&self, base: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.file.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.page.to_le_bytes());
        let age = (self.sequence - base) as u32;
        bytes[8..12].copy_from_slice(&age.to_le_bytes());
        bytes[12..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// The entry of a slot, if there is one.
    pub(crate) fn decode(base: u64, bytes: &[u8]) -> Option<Self> {
        let file = u32_at(bytes, 0);
        (file != 0).then(|| Self {
            file,
            page: u32_at(bytes, 4),
            sequence: base + u64::from(u32_at(bytes, 8)),
            checksum: u32_at(bytes, 12),
        })
    }
}

/// The checksum over a page's contents, to be continued with the entry's fields: this much of the
/// work needs no lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summed(Begun);

/// That of a page of zeros. Volumes have many, and comparing a page is faster than its checksum.
static SUMMED_ZEROS: LazyLock<Summed> = LazyLock::new(|| Summed(Begun::with(&ZEROS)));

impl Summed {
    pub(crate) fn of(contents: &[u8]) -> Self {
        if contents.len() == PAGE_BYTES && is_zero(contents) {
            return *SUMMED_ZEROS;
        }
        Self(Begun::with(contents))
    }
}

/// A stripe's summary on the devices: the table of its entries as it was when the stripe was sealed.
pub(crate) fn encode_summary(
    identity: u64,
    stripe: u32,
    base: u64,
    table: &[u8],
    output: &mut [u8],
) {
    let (header, body) = output.split_at_mut(SUMMARY_HEADER_BYTES);
    body[..table.len()].copy_from_slice(table);
    body[table.len()..].fill(0);
    header.fill(0);
    header[..8].copy_from_slice(SUMMARY_MAGIC);
    header[8..16].copy_from_slice(&identity.to_le_bytes());
    header[16..24].copy_from_slice(&base.to_le_bytes());
    header[24..28].copy_from_slice(&stripe.to_le_bytes());
    let sum = crc32c(&[&header[..60], body]);
    header[60..].copy_from_slice(&sum.to_le_bytes());
}

/// The base and the table of a summary, if it belongs to this stripe.
pub(crate) fn decode_summary(identity: u64, stripe: u32, bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (header, body) = bytes.split_at(SUMMARY_HEADER_BYTES);
    let is_ours = &header[..8] == SUMMARY_MAGIC
        && u64_at(header, 8) == identity
        && u32_at(header, 24) == stripe
        && u32_at(header, 60) == crc32c(&[&header[..60], body]);
    is_ours.then(|| (u64_at(header, 16), body))
}

/// Freed pages of a file: those older than `sequence` are stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    pub(crate) first: u32,
    /// One past the last, or `u32::MAX` for all that follow.
    pub(crate) end: u32,
    pub(crate) sequence: u64,
}

/// Offsets in an inode of its cuts, its name and its allotment.
const CUTS_AT: usize = 32;
const NAME_AT: usize = CUTS_AT + CUTS_MAX * 16;
const ALLOTMENT_AT: usize = NAME_AT + NAME_BYTES_MAX;
const _: () = assert!(ALLOTMENT_AT + ALLOTTED_MAX * 8 <= INODE_BYTES);

/// The inode of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inode {
    /// Empty for a file that lives only while it is in use: a restart removes it.
    pub(crate) name: String,
    pub(crate) length_bytes: u64,
    /// Older pages belong to an earlier file with this number.
    pub(crate) born: u64,
    /// When it got its name: the later of two with one name keeps it.
    pub(crate) named: u64,
    pub(crate) cuts: Vec<Cut>,
    /// Pages that can be written even when the store is full.
    pub(crate) allotment: Allotment,
}

impl Inode {
    /// Pages up to the file's end.
    pub(crate) fn page_count(&self) -> u64 {
        self.length_bytes.div_ceil(PAGE_BYTES as u64)
    }

    /// Whether a page of this age belongs to the file.
    pub(crate) fn holds(&self, page: u32, sequence: u64) -> bool {
        let is_cut = |cut: &Cut| (cut.first..cut.end).contains(&page) && sequence < cut.sequence;
        sequence >= self.born
            && u64::from(page) < self.page_count()
            && !self.cuts.iter().any(is_cut)
    }

    pub(crate) fn encode(&self, output: &mut [u8]) {
        output.fill(0);
        output[..8].copy_from_slice(&self.born.to_le_bytes());
        output[8..16].copy_from_slice(&self.length_bytes.to_le_bytes());
        output[16..24].copy_from_slice(&self.named.to_le_bytes());
        output[24] = self.name.len() as u8;
        output[25] = 1;
        let places = output[CUTS_AT..NAME_AT].chunks_mut(16);
        for (cut, place) in self.cuts.iter().zip(places) {
            place[..4].copy_from_slice(&cut.first.to_le_bytes());
            place[4..8].copy_from_slice(&cut.end.to_le_bytes());
            place[8..].copy_from_slice(&cut.sequence.to_le_bytes());
        }
        output[NAME_AT..NAME_AT + self.name.len()].copy_from_slice(self.name.as_bytes());
        let places = output[ALLOTMENT_AT..].chunks_mut(8);
        for (range, place) in self.allotment.ranges().iter().zip(places) {
            place[..4].copy_from_slice(&range.start.to_le_bytes());
            place[4..].copy_from_slice(&range.end.to_le_bytes());
        }
    }

    /// Decodes the inode in these bytes, if there is one. The bytes have passed their page's
    /// checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, FlashError> {
        if bytes[25] == 0 {
            return Ok(None);
        }
        let name_bytes = bytes[24] as usize;
        let name = bytes[NAME_AT..ALLOTMENT_AT]
            .get(..name_bytes)
            .and_then(|name| std::str::from_utf8(name).ok());
        let name = name.ok_or_else(|| FlashError::UnknownFormat {
            place: "the table of files".to_owned(),
            reason: "a name is not UTF-8".to_owned(),
        })?;
        let cuts = bytes[CUTS_AT..NAME_AT].chunks(16).map(|place| Cut {
            first: u32_at(place, 0),
            end: u32_at(place, 4),
            sequence: u64_at(place, 8),
        });
        let allotted = bytes[ALLOTMENT_AT..ALLOTMENT_AT + ALLOTTED_MAX * 8]
            .chunks(8)
            .map(|place| u32_at(place, 0)..u32_at(place, 4));
        Ok(Some(Self {
            name: name.to_owned(),
            born: u64_at(bytes, 0),
            length_bytes: u64_at(bytes, 8),
            named: u64_at(bytes, 16),
            cuts: cuts.filter(|cut| cut.first < cut.end).collect(),
            allotment: Allotment::new(allotted),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_decodes_to_what_was_encoded() {
        let superblock = Superblock {
            identity: 77,
            geometry: Geometry::new(4, 2, 100),
        };
        assert_eq!(Superblock::decode(&superblock.encode()), Some(superblock));
        let device = superblock.encode_device(3);
        assert_eq!(Superblock::decode_device(&device), Some((superblock, 3)));
        assert_eq!(Superblock::decode(&device), None);
        for state in [
            StripeState::Free,
            StripeState::Open { buffer: 4 },
            StripeState::Sealed { missing: 0x8001 },
        ] {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&encode_header(9, 1234, state));
            bytes[8..].copy_from_slice(&1234_u64.to_le_bytes());
            assert_eq!(decode_header(9, &bytes), Some((state, 1234)));
        }
        let inode = Inode {
            name: "stripe/7".to_owned(),
            length_bytes: 12345,
            born: 6,
            named: 7,
            cuts: vec![Cut {
                first: 1,
                end: 3,
                sequence: 9,
            }],
            allotment: Allotment::new([0..7, 9..10]),
        };
        let mut bytes = [0xff; INODE_BYTES];
        inode.encode(&mut bytes);
        assert_eq!(Inode::decode(&bytes).unwrap(), Some(inode));
        assert_eq!(Inode::decode(&[0; INODE_BYTES]).unwrap(), None);
    }

    #[test]
    fn damage_is_noticed() {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&encode_header(9, 1234, StripeState::Open { buffer: 1 }));
        bytes[8..].copy_from_slice(&1234_u64.to_le_bytes());
        assert_eq!(decode_header(8, &bytes), None, "another stripe's");
        bytes[9] ^= 1;
        assert_eq!(decode_header(9, &bytes), None, "another base");
        let entry = Entry::of(1, 2, 3, &Summed::of(b"page"));
        assert!(entry.fits(b"page") && !entry.fits(b"pages"));
        assert!(!Entry { page: 3, ..entry }.fits(b"page"));
        let mut summary = vec![0; PAGE_BYTES];
        encode_summary(1, 2, 3, &[7; 32], &mut summary);
        let (base, table) = decode_summary(1, 2, &summary).unwrap();
        assert_eq!((base, &table[..32]), (3, &[7; 32][..]));
        assert_eq!(decode_summary(1, 3, &summary), None);
        summary[4095] ^= 1;
        assert_eq!(decode_summary(1, 2, &summary), None);
    }

    #[test]
    fn a_file_holds_what_is_neither_cut_nor_older_nor_beyond_its_end() {
        let inode = Inode {
            length_bytes: 10 * PAGE_BYTES as u64 + 1,
            born: 100,
            cuts: vec![Cut {
                first: 4,
                end: 6,
                sequence: 200,
            }],
            ..Inode::default()
        };
        assert!(inode.holds(10, 100) && !inode.holds(11, 100) && !inode.holds(0, 99));
        assert!(!inode.holds(4, 199) && inode.holds(4, 200) && inode.holds(6, 150));
    }

    #[test]
    fn the_checksum_over_zeros_is_that_of_all_their_bytes() {
        let mut almost = ZEROS;
        almost[PAGE_BYTES - 1] = 1;
        for contents in [&ZEROS[..], &almost, &ZEROS[..512], &[]] {
            let entry = Entry::of(7, 8, 9, &Summed::of(contents));
            let mut name = [0; 16];
            (name[0], name[4], name[8]) = (7, 8, 9);
            let length = contents.len();
            assert_eq!(entry.checksum, crc32c(&[contents, &name]), "{length}");
        }
    }
}
