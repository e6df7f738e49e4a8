//! The store's identity file: the cluster, the node, the node's starts, and the newest coordinator
//! start that the node knows.
//!
//! The file lies beside the chunks, so that an older copy of them brings its own: the coordinator
//! then finds that the starts do not follow those that it knows. The store keeps it and draws no
//! conclusions.
//!
//! The file has two slots. A new identity overwrites the older one, so a crash leaves one of the two
//! whole. This takes neither space nor a descriptor: a node whose disk is full goes on renewing its
//! lease, for which it notes the coordinator here.

use crate::checksum::crc32c;
use crate::codec::{Reader, put_varint};
use crate::disk::{Disk, DiskFile, remove_if_there, rename_in_root, write_file};
use crate::error::{IoContext, StoreError, is_full, is_lost};
use gabion_layout::{ClusterId, NodeId, Start};
use std::io;
use std::sync::Arc;

const PATH: &str = "identity";
const UNFINISHED_PATH: &str = "identity.new";
const MAGIC: [u8; 8] = *b"GABIONID";
const VERSION: u32 = 2;
/// The version without slots: the file is one identity and has no number.
const UNNUMBERED_VERSION: u32 = 1;
/// Bytes of a slot: one identity, zeros, and a checksum.
const SLOT_BYTES: usize = 4096;
/// Most starts kept; a node with more starts that were not admitted is taken for a copy.
const START_COUNT_MAX: usize = 64;

/// The identity of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// The cluster, once the node has joined it.
    pub cluster: Option<ClusterId>,
    /// The node's id, once it has joined.
    pub node: Option<NodeId>,
    /// The node's starts since the last one that the coordinator is known to have admitted, that
    /// one included, oldest first.
    pub starts: Vec<Start>,
    /// The newest start of the coordinator that the node knows.
    pub coordinator: Option<Start>,
    /// The number of changes that the coordinator's metadata had made when that was written last.
    pub metadata_changes: Option<u64>,
    /// The journal's end when the store was first opened after the last admitted start. Opening a
    /// store appends to its journal, so each opening of an older copy would look newer. `None`
    /// while that start runs.
    pub found_position: Option<u64>,
}

impl Identity {
    /// Adds a start, unless it is listed, and forgets the oldest if there are too many.
    pub fn begin(&mut self, start: Start) {
        if self.starts.last() == Some(&start) {
            return;
        }
        self.starts.push(start);
        let excess = self.starts.len().saturating_sub(START_COUNT_MAX);
        self.starts.drain(..excess);
    }

    /// A slot with this identity. The slot with the higher number is the newer one.
    fn encode(&self, number: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        let flag = |is_there: bool, bit: u8| u8::from(is_there) << bit;
        bytes.push(
            flag(self.cluster.is_some(), 0)
                | flag(self.node.is_some(), 1)
                | flag(self.coordinator.is_some(), 2)
                | flag(self.found_position.is_some(), 3)
                | flag(self.metadata_changes.is_some(), 4),
        );
        if let Some(cluster) = self.cluster {
            bytes.extend_from_slice(&cluster.0.to_le_bytes());
        }
        if let Some(node) = self.node {
            put_varint(&mut bytes, u64::from(node.0));
        }
        put_varint(&mut bytes, self.starts.len() as u64);
        for start in self.starts.iter().chain(&self.coordinator) {
            put_varint(&mut bytes, start.number);
            put_varint(&mut bytes, start.nonce);
        }
        for number in [self.found_position, self.metadata_changes] {
            number.inspect(|&number| put_varint(&mut bytes, number));
        }
        bytes.resize(SLOT_BYTES - 4, 0);
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The identity in a slot, or in a whole file without slots, and its number.
    fn decode(bytes: &[u8]) -> Option<(u64, Self)> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c(body).to_le_bytes() != *crc {
            return None;
        }
        let mut reader = Reader::new(body);
        if reader.bytes(8)? != MAGIC {
            return None;
        }
        let number = match reader.u32()? {
            VERSION => reader.u64()?,
            UNNUMBERED_VERSION => 0,
            _ => return None,
        };
        let flags = reader.u8()?;
        let has = |bit: u8| flags >> bit & 1 == 1;
        let mut identity = Self::default();
        if has(0) {
            let id = reader.bytes(16)?.try_into().ok()?;
            identity.cluster = Some(ClusterId(u128::from_le_bytes(id)));
        }
        if has(1) {
            identity.node = Some(NodeId(u32::try_from(reader.varint()?).ok()?));
        }
        let start_count = reader.varint()?;
        if start_count > START_COUNT_MAX as u64 {
            return None;
        }
        for _ in 0..start_count {
            identity.starts.push(read_start(&mut reader)?);
        }
        if has(2) {
            identity.coordinator = Some(read_start(&mut reader)?);
        }
        if has(3) {
            identity.found_position = Some(reader.varint()?);
        }
        if has(4) {
            identity.metadata_changes = Some(reader.varint()?);
        }
        // Zeros follow.
        Some((number, identity))
    }
}

fn read_start(reader: &mut Reader<'_>) -> Option<Start> {
    let number = reader.varint()?;
    let nonce = reader.varint()?;
    Some(Start { number, nonce })
}

/// The file on the disk.
pub(crate) struct IdentityFile {
    file: Arc<dyn DiskFile>,
    /// The number of the newest identity, which is in slot `number % 2`.
    number: u64,
}

impl IdentityFile {
    /// Opens the file, and makes it if it is missing or damaged: then the identity is empty. A node
    /// without one is treated as one whose disk was rolled back, which is safe.
    pub(crate) fn open(disk: &dyn Disk) -> Result<(Self, Identity), StoreError> {
        remove_if_there(disk, UNFINISHED_PATH)?;
        let file = match disk.open(PATH) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::create(disk, Identity::default());
            }
            Err(error) => return Err(StoreError::io("open", PATH, error)),
        };
        let length = file.length().context("measure", PATH)?;
        // A file without slots is shorter than one.
        let first = read(&*file, 0, length.min(SLOT_BYTES as u64) as usize)?;
        let has_slots = length >= 2 * SLOT_BYTES as u64;
        let second = if has_slots {
            read(&*file, SLOT_BYTES as u64, SLOT_BYTES)?
        } else {
            None
        };
        let found = first.into_iter().chain(second);
        match found.max_by_key(|&(number, _)| number) {
            Some((number, identity)) if has_slots => Ok((Self { file, number }, identity)),
            Some((_, identity)) => Self::create(disk, identity),
            None => Self::create(disk, Identity::default()),
        }
    }

    fn create(disk: &dyn Disk, identity: Identity) -> Result<(Self, Identity), StoreError> {
        let mut bytes = identity.encode(0);
        bytes.resize(2 * SLOT_BYTES, 0);
        write_file(disk, UNFINISHED_PATH, &bytes)?;
        rename_in_root(disk, UNFINISHED_PATH, PATH)?;
        let file = disk.open(PATH).context_or_busy("open", PATH)?;
        Ok((Self { file, number: 0 }, identity))
    }

    /// Records where the journal ends, unless an earlier opening since the last admitted start did.
    /// Call it before any append to the journal.
    pub(crate) fn note_found(
        &mut self,
        identity: &mut Identity,
        position: u64,
    ) -> Result<(), StoreError> {
        // A store that has not joined needs no record.
        if identity.node.is_none() || identity.found_position.is_some() {
            return Ok(());
        }
        identity.found_position = Some(position);
        self.replace(identity, |written| written)
    }

    /// Replaces the identity, durably. `require` sees the outcome of what may fail half-way.
    pub(crate) fn replace(
        &mut self,
        identity: &Identity,
        require: impl FnOnce(Result<(), StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let number = self.number + 1;
        let offset = number % 2 * SLOT_BYTES as u64;
        let written = self.file.write_all_at(&identity.encode(number), offset);
        let synced = written.and_then(|()| self.file.sync());
        if matches!(&synced, Err(error) if is_full(error)) {
            // Some file systems write elsewhere and need space. The newest identity is untouched, and the
            // next attempt writes the same slot.
            return synced.context("write", PATH);
        }
        require(synced.context("write", PATH))?;
        self.number = number;
        Ok(())
    }
}

/// The identity in a part of the file, and its number; none if it is damaged or cannot be read. Reads
/// the device: after a failed sync the page cache may hold an identity that the device never got.
fn read(
    file: &dyn DiskFile,
    offset: u64,
    length: usize,
) -> Result<Option<(u64, Identity)>, StoreError> {
    let mut bytes = vec![0; length];
    match file.read_device_at(&mut bytes, offset) {
        Ok(()) => Ok(Identity::decode(&bytes)),
        Err(error) if is_lost(&error) => Ok(None),
        Err(error) => Err(StoreError::io("read", PATH, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;

    fn start(number: u64) -> Start {
        let nonce = u64::MAX - number;
        Start { number, nonce }
    }

    #[test]
    fn an_identity_comes_back_and_a_damaged_one_does_not() {
        let mut identity = Identity::default();
        let decoded = Identity::decode(&identity.encode(3));
        assert_eq!(decoded, Some((3, identity.clone())));
        identity.cluster = Some(ClusterId(u128::MAX - 3));
        identity.node = Some(NodeId(7));
        identity.coordinator = Some(start(3));
        identity.found_position = Some(u64::MAX);
        identity.metadata_changes = Some(300);
        identity.begin(start(1));
        identity.begin(start(2));
        let bytes = identity.encode(u64::MAX);
        assert_eq!(Identity::decode(&bytes), Some((u64::MAX, identity)));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Identity::decode(&damaged), None, "byte {at}");
            assert_eq!(Identity::decode(&bytes[..at]), None, "cut at {at}");
        }
    }

    fn open(disk: &SimDisk) -> (IdentityFile, Identity) {
        IdentityFile::open(disk).expect("the disk works")
    }

    fn of_node(id: u32) -> Identity {
        Identity {
            node: Some(NodeId(id)),
            ..Identity::default()
        }
    }

    #[test]
    fn a_crash_leaves_the_old_identity_or_the_new_one() {
        let disk = SimDisk::new(1);
        let (mut file, _) = open(&disk);
        let mut found = std::collections::BTreeSet::new();
        for id in 1..20 {
            // The write is issued, and its sync is cut off.
            disk.power_off_at(disk.counts().operation_count + 2);
            assert!(file.replace(&of_node(id), |written| written).is_err());
            for seed in 0..8 {
                let (_, after) = open(&disk.after_crash(seed));
                let last = (id > 1).then(|| NodeId(id - 1));
                assert!(after.node == last || after.node == Some(NodeId(id)));
                found.insert(after.node == last);
            }
            disk.crash();
            file = open(&disk).0;
            file.replace(&of_node(id), |written| written).unwrap();
        }
        assert_eq!(found.len(), 2, "both are possible");
    }

    #[test]
    fn a_replacement_takes_no_space_and_no_descriptor() {
        let disk = SimDisk::new(1);
        let (mut file, _) = open(&disk);
        disk.set_capacity(0);
        disk.give_descriptors(false);
        for id in 1..5 {
            file.replace(&of_node(id), |written| written).unwrap();
        }
        disk.give_descriptors(true);
        assert_eq!(open(&disk).1, of_node(4));
    }

    #[test]
    fn a_damaged_slot_leaves_the_other_and_two_leave_none() {
        let disk = SimDisk::new(1);
        let (mut file, _) = open(&disk);
        file.replace(&of_node(1), |written| written).unwrap();
        file.replace(&of_node(2), |written| written).unwrap();
        disk.flip_bit(PATH, 100);
        assert_eq!(open(&disk).1, of_node(1));
        disk.flip_bit(PATH, 8 * SLOT_BYTES as u64 + 100);
        assert_eq!(open(&disk).1, Identity::default());
        // It is whole again.
        let (mut file, _) = open(&disk);
        file.replace(&of_node(3), |written| written).unwrap();
        disk.lose_page(PATH, 0);
        assert_eq!(open(&disk).1, of_node(3), "its number is odd");
    }

    #[test]
    fn an_identity_that_the_device_never_got_is_not_read() {
        let disk = SimDisk::new(1);
        let (mut file, _) = open(&disk);
        file.replace(&of_node(1), |written| written).unwrap();
        disk.fail_next_sync();
        assert!(file.replace(&of_node(2), |written| written).is_err());
        disk.restart_process();
        assert_eq!(open(&disk).1, of_node(1));
    }

    #[test]
    fn a_file_without_slots_gets_them() {
        let disk = SimDisk::new(1);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&UNNUMBERED_VERSION.to_le_bytes());
        // Only the node is there, and no start.
        bytes.extend_from_slice(&[2, 7, 0]);
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        write_file(&disk, PATH, &bytes).unwrap();
        disk.sync_directory("").unwrap();
        let (mut file, identity) = open(&disk);
        assert_eq!(identity, of_node(7));
        file.replace(&of_node(8), |written| written).unwrap();
        assert_eq!(open(&disk.after_crash(0)).1, of_node(8));
    }

    #[test]
    fn the_oldest_starts_are_forgotten_and_none_counts_twice() {
        let mut identity = Identity::default();
        let last = START_COUNT_MAX as u64 + 9;
        for number in 0..=last {
            identity.begin(start(number));
            identity.begin(start(number));
        }
        assert_eq!(identity.starts.len(), START_COUNT_MAX);
        assert_eq!(identity.starts.last(), Some(&start(last)));
        assert_eq!(Identity::decode(&identity.encode(0)), Some((0, identity)));
    }
}
