//! The store's identity file: the cluster, the node, the node's starts, and the newest coordinator
//! start that the node knows.
//!
//! The file lies beside the chunks, so that an older copy of them brings its own: the coordinator
//! then finds that the starts do not follow those that it knows. The file is replaced atomically.
//! The store keeps it and draws no conclusions.

use crate::checksum::crc32c;
use crate::codec::{Reader, put_varint};
use crate::disk::{Disk, remove_if_there, rename_in_root, write_file};
use crate::error::{IoContext, StoreError};
use gabion_layout::{ClusterId, NodeId, Start};
use std::io;

const PATH: &str = "identity";
const UNFINISHED_PATH: &str = "identity.new";
const MAGIC: [u8; 8] = *b"GABIONID";
const VERSION: u32 = 1;
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

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
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
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c(body).to_le_bytes() != *crc {
            return None;
        }
        let mut reader = Reader::new(body);
        if reader.bytes(8)? != MAGIC || reader.u32()? != VERSION {
            return None;
        }
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
        reader.finish()?;
        Some(identity)
    }
}

fn read_start(reader: &mut Reader<'_>) -> Option<Start> {
    let number = reader.varint()?;
    let nonce = reader.varint()?;
    Some(Start { number, nonce })
}

/// The identity on the disk; empty if the file is missing or damaged. A node without one is treated
/// as one whose disk was rolled back, which is safe.
pub(crate) fn read(disk: &dyn Disk) -> Result<Identity, StoreError> {
    remove_if_there(disk, UNFINISHED_PATH)?;
    let file = match disk.open(PATH) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Identity::default()),
        Err(error) => return Err(StoreError::io("open", PATH, error)),
    };
    let length = file.length().context("measure", PATH)?;
    // A file larger than any identity is damaged.
    let mut bytes = vec![0; length.min(4096) as usize];
    file.read_exact_at(&mut bytes, 0).context("read", PATH)?;
    Ok(Identity::decode(&bytes).unwrap_or_default())
}

/// Records where the journal ends, unless an earlier opening since the last admitted start did.
/// Call it before any append to the journal.
pub(crate) fn note_found(
    disk: &dyn Disk,
    identity: &mut Identity,
    position: u64,
) -> Result<(), StoreError> {
    // A store that has not joined needs no record.
    if identity.node.is_none() || identity.found_position.is_some() {
        return Ok(());
    }
    identity.found_position = Some(position);
    write_file(disk, UNFINISHED_PATH, &identity.encode())?;
    rename_in_root(disk, UNFINISHED_PATH, PATH)
}

/// Replaces the identity on the disk. `require` sees the outcome of operations that may fail
/// half-way.
pub(crate) fn replace(
    disk: &dyn Disk,
    identity: &Identity,
    require: impl FnOnce(Result<(), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if let Err(error) = write_file(disk, UNFINISHED_PATH, &identity.encode()) {
        // A leftover would only block the next replacement.
        let _ = disk.remove(UNFINISHED_PATH);
        return Err(error);
    }
    require(rename_in_root(disk, UNFINISHED_PATH, PATH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(number: u64) -> Start {
        let nonce = u64::MAX - number;
        Start { number, nonce }
    }

    #[test]
    fn an_identity_comes_back_and_a_damaged_one_does_not() {
        let mut identity = Identity::default();
        assert_eq!(Identity::decode(&identity.encode()), Some(identity.clone()));
        identity.cluster = Some(ClusterId(u128::MAX - 3));
        identity.node = Some(NodeId(7));
        identity.coordinator = Some(start(3));
        identity.found_position = Some(u64::MAX);
        identity.metadata_changes = Some(300);
        identity.begin(start(1));
        identity.begin(start(2));
        let bytes = identity.encode();
        assert_eq!(Identity::decode(&bytes), Some(identity));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Identity::decode(&damaged), None, "byte {at}");
            assert_eq!(Identity::decode(&bytes[..at]), None, "cut at {at}");
        }
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
        assert_eq!(Identity::decode(&identity.encode()), Some(identity));
    }
}
