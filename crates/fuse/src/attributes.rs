//! Attributes of inodes: what the kernel is told, and what it asks to change.

use crate::errno::Errno;
use crate::gateway::{Gateway, Stat};
use crate::open_files::OpenFile;
use crate::times::system_time;
use fuser::{FileAttr, FileHandle, FileType, INodeNo};
use gabion_meta::{
    AttributeChange, Attributes, Inode, InodeStatus, Kind, NewAttributes, PutId, WallTime,
};
use std::sync::Arc;
use std::time::Instant;

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// The transfer size that programs are told to prefer.
const PREFERRED_BYTES: u32 = 1 << 20;
/// The bit of a directory's mode by which new entries get its group.
const SET_GROUP_ID: u32 = 0o2000;
/// The bit of a program's mode by which it runs as its owner.
const SET_USER_ID: u32 = 0o4000;

/// A change that the kernel asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requested {
    pub(crate) mode: Option<u32>,
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) accessed: Option<WallTime>,
    pub(crate) modified: Option<WallTime>,
}

/// The owner and the group of a new inode, and its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker {
    pub(crate) owner: u32,
    pub(crate) group: u32,
    /// Already without the bits of the process's mask.
    pub(crate) mode: u32,
}

/// The moment of a question about inodes.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    at: Instant,
    /// Files with bytes that the cluster did not have at that moment, and whose status may say so. They may be closed
    /// before the answer is there.
    _unstored: Vec<Arc<OpenFile>>,
}

impl Gateway {
    /// Notes that the status of inodes is asked for now.
    pub(crate) fn ask_now(&self) -> Asked {
        let mut unstored = Vec::new();
        if self.cache.is_some() {
            unstored = self.open_files.all();
            unstored.retain(|open| !open.unstored.is_empty());
        }
        Asked {
            at: Instant::now(),
            _unstored: unstored,
        }
    }

    /// Returns an inode's attributes for the kernel, by a status that was asked for at this moment.
    pub(crate) fn stat(&self, status: &InodeStatus, asked: &Asked) -> Stat {
        let InodeStatus {
            inode,
            kind,
            attributes,
            mut size_bytes,
            ..
        } = *status;
        let mut attributes = attributes;
        let mut stored_bytes = self.stored_bytes(status);
        if let Inode::File(put) = inode
            && let Some(open) = self.open_files.find(put)
        {
            let shown = open.unstored.shown(asked.at);
            size_bytes = size_bytes.max(shown.end);
            stored_bytes = stored_bytes.max(shown.length.min(size_bytes));
            if let Some(written) = open.written().max(shown.written) {
                attributes.modified = written;
                attributes.changed = attributes.changed.max(written);
            }
            open.note_seen(size_bytes);
        }
        let kind = kind_of(kind);
        FileAttr {
            ino: self.numbers.number(inode),
            size: size_bytes,
            blocks: stored_bytes.div_ceil(BLOCK_BYTES),
            atime: system_time(attributes.accessed),
            mtime: system_time(attributes.modified),
            ctime: system_time(attributes.changed),
            crtime: system_time(attributes.created),
            kind,
            perm: attributes.mode as u16,
            nlink: match kind {
                // Tools that count subdirectories by the links of a directory take one for 'unknown'.
                FileType::Directory => 1,
                _ => u32::try_from(status.link_count).unwrap_or(u32::MAX),
            },
            uid: attributes.owner,
            gid: attributes.group,
            rdev: 0,
            blksize: PREFERRED_BYTES,
            flags: 0,
        }
    }

    /// Bytes of a file that take space, without parity, about.
    fn stored_bytes(&self, status: &InodeStatus) -> u64 {
        let pool = status.pool.and_then(|pool| self.pools.known(pool));
        match (status.kind, pool) {
            (Kind::File, Some(pool)) => {
                let segments = status
                    .stripe_count
                    .saturating_mul(pool.spec.segment_bytes());
                segments.min(status.size_bytes).max(status.inline_bytes)
            }
            (Kind::File, None) if status.stripe_count == 0 => status.inline_bytes,
            _ => status.size_bytes,
        }
    }

    /// The status of an inode now.
    pub(crate) async fn status(&self, inode: Inode) -> Result<InodeStatus, Errno> {
        let status = self.client.inode_status(inode).await?;
        status.ok_or(Errno::Stale)
    }

    /// Returns the present attributes of the inode with a number.
    pub(crate) async fn stat_number(&self, number: INodeNo) -> Result<Stat, Errno> {
        self.stat_inode(self.numbers.inode(number)).await
    }

    /// Returns an inode's present attributes for the kernel.
    pub(crate) async fn stat_inode(&self, inode: Inode) -> Result<Stat, Errno> {
        let asked = self.ask_now();
        Ok(self.stat(&self.status(inode).await?, &asked))
    }

    /// Changes attributes, by an open handle if there is one. The size changes first.
    pub(crate) async fn change(
        &self,
        (number, handle): (INodeNo, Option<FileHandle>),
        requested: Requested,
    ) -> Result<Stat, Errno> {
        self.check_writable()?;
        let inode = self.numbers.inode(number);
        if let Some(size_bytes) = requested.size_bytes {
            self.resize((inode, handle), size_bytes).await?;
        }
        let change = AttributeChange {
            mode: requested.mode.map(|mode| mode & Attributes::MODE_MAX),
            owner: requested.owner,
            group: requested.group,
            accessed: requested.accessed,
            modified: requested.modified,
            ..AttributeChange::default()
        };
        if change != AttributeChange::default() {
            // The process's own choice is later than the writes before it.
            let open = match inode {
                Inode::File(put) if change.modified.is_some() => self.open_files.find(put),
                _ => None,
            };
            if let Some(open) = &open {
                self.store_all(open).await;
            }
            let _telling = match &open {
                Some(open) => Some(open.tell().await),
                None => None,
            };
            let before = open.as_ref().and_then(|open| open.written());
            self.client.set_inode_attributes(inode, &change).await?;
            if let (Some(open), Some(before)) = (&open, before) {
                open.note_told(before);
            }
        }
        self.stat_number(number).await
    }

    /// Takes the set-id bits of a file away, as Linux does when another user writes it.
    pub(crate) async fn drop_set_id(&self, put: PutId) -> Result<(), Errno> {
        let inode = Inode::File(put);
        let mode = self.status(inode).await?.attributes.mode;
        let is_executable_for_group = mode & 0o010 != 0;
        let lost = SET_USER_ID
            | if is_executable_for_group {
                SET_GROUP_ID
            } else {
                0
            };
        if mode & lost == 0 {
            return Ok(());
        }
        let change = AttributeChange {
            mode: Some(mode & !lost),
            ..AttributeChange::default()
        };
        self.client.set_inode_attributes(inode, &change).await?;
        self.forget_attributes(inode);
        Ok(())
    }

    /// The attributes of a new inode in a directory.
    pub(crate) async fn new_attributes(
        &self,
        parent: Inode,
        maker: Maker,
        kind: Kind,
    ) -> Result<NewAttributes, Errno> {
        let above = self.status(parent).await?.attributes;
        let inherits = above.mode & SET_GROUP_ID != 0;
        let inherited_bit = match kind {
            Kind::Directory if inherits => SET_GROUP_ID,
            _ => 0,
        };
        Ok(NewAttributes {
            mode: maker.mode & Attributes::MODE_MAX | inherited_bit,
            owner: maker.owner,
            group: if inherits { above.group } else { maker.group },
            accessed: None,
            modified: None,
        })
    }
}

/// The kind for the kernel.
pub(crate) const fn kind_of(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
    }
}
