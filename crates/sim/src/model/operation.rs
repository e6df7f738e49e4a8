//! The operations of the model's client.

use super::answer::FileNumber;
use super::holders::{ClientNumber, HandleNumber, Holder};
use gabion_meta::{Limit, LockKind, LockMode, QuotaChange};
use std::ops::Range;

/// The kind of an operation, for counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// An empty file.
    Create,
    /// A put of known size.
    Put,
    /// A put of known size that may replace a file.
    PutOver,
    /// A put of unknown size.
    PutStream,
    /// A new directory.
    MakeDirectory,
    /// The removal of a directory.
    RemoveDirectory,
    /// The removal of a file's name.
    Remove,
    /// A rename.
    Rename,
    /// A rename that may replace a file or an empty directory.
    RenameOver,
    /// An exchange of two names.
    Exchange,
    /// One more name of a file.
    Link,
    /// A symbolic link.
    Symlink,
    /// A read of a symbolic link's target.
    ReadLink,
    /// A snapshot of a file.
    Snapshot,
    /// A clone of a file.
    Clone,
    /// A change of a mode.
    SetMode,
    /// A change of a user attribute.
    SetUserAttribute,
    /// A look at the status of a name.
    Look,
    /// A page of a list by prefix.
    List,
    /// A page of the list of one directory.
    ListDirectory,
    /// A write, atomic whatever it spans.
    Write,
    /// A write stripe by stripe.
    WritePieces,
    /// A write of zeros.
    Zero,
    /// An append.
    Append,
    /// A growth.
    Grow,
    /// A truncation, in either direction.
    Truncate,
    /// A hole.
    Punch,
    /// A read.
    Read,
    /// A look at the stored ranges.
    ReadStored,
    /// A change through a handle whose file is removed.
    UseRemoved,
    /// A snapshot of a directory.
    SnapshotTree,
    /// A clone of a directory.
    CloneTree,
    /// An advisory lock of a range.
    Lock,
    /// An advisory lock of a whole file.
    LockWhole,
    /// An unlock.
    Unlock,
    /// A question for the lock that is in the way.
    FindLock,
    /// A close by an owner of locks.
    ReleaseLocks,
    /// A time in which a client does not reach the coordinator.
    CutOff,
    /// An exclusive open of a file that no other client has.
    OpenAlone,
    /// An exclusive open that displaces another client.
    TakeOver,
    /// A read or a change through the handle of an exclusive open.
    UseAlone,
    /// The end of an exclusive session.
    EndSession,
    /// The end of a handle whose session goes with it.
    DropHandle,
    /// The death of a client.
    KillClient,
    /// Time without an operation.
    Wait,
    /// A limit of what is below a directory.
    SetQuota,
    /// The end of a directory's quota.
    RemoveQuota,
    /// A limit of a pool's files.
    LimitFiles,
    /// A limit of a pool's bytes.
    LimitBytes,
    /// A put into the pool with limited bytes.
    PutWithin,
    /// A change of a file of this pool.
    ChangeWithin,
    /// A removal from this pool.
    RemoveWithin,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 52] = [
        Self::Create,
        Self::Put,
        Self::PutOver,
        Self::PutStream,
        Self::MakeDirectory,
        Self::RemoveDirectory,
        Self::Remove,
        Self::Rename,
        Self::RenameOver,
        Self::Exchange,
        Self::Link,
        Self::Symlink,
        Self::ReadLink,
        Self::Snapshot,
        Self::Clone,
        Self::SetMode,
        Self::SetUserAttribute,
        Self::Look,
        Self::List,
        Self::ListDirectory,
        Self::Write,
        Self::WritePieces,
        Self::Zero,
        Self::Append,
        Self::Grow,
        Self::Truncate,
        Self::Punch,
        Self::Read,
        Self::ReadStored,
        Self::UseRemoved,
        Self::SnapshotTree,
        Self::CloneTree,
        Self::Lock,
        Self::LockWhole,
        Self::Unlock,
        Self::FindLock,
        Self::ReleaseLocks,
        Self::CutOff,
        Self::OpenAlone,
        Self::TakeOver,
        Self::UseAlone,
        Self::EndSession,
        Self::DropHandle,
        Self::KillClient,
        Self::Wait,
        Self::SetQuota,
        Self::RemoveQuota,
        Self::LimitFiles,
        Self::LimitBytes,
        Self::PutWithin,
        Self::ChangeWithin,
        Self::RemoveWithin,
    ];
}

/// Bytes that are never zero, and differ from those of other numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    number: u64,
    pub(crate) length: u64,
}

impl Content {
    pub(crate) const fn of(number: u64, length: u64) -> Self {
        Self { number, length }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mixed = |at: u64| (self.number ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        (0..self.length).map(|at| mixed(at) as u8 | 1).collect()
    }
}

/// How a put tells its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PutAs {
    Create,
    Known,
    Stream,
}

/// A change of one file, or a read of it. Numbers are bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Write(u64, Content),
    WritePieces(u64, Content),
    Zero(Range<u64>),
    Append(Content),
    Grow(u64),
    Truncate(u64),
    Punch(Range<u64>),
    Read(Range<u64>),
    ReadStored,
}

/// An operation. Paths are below the directory of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Put {
        path: String,
        content: Content,
        replaces: bool,
        put_as: PutAs,
    },
    MakeDirectory(String),
    RemoveDirectory(String),
    Remove(String),
    Rename {
        from: String,
        to: String,
        replaces: bool,
    },
    Exchange(String, String),
    Link(String, String),
    Symlink(String, String),
    ReadLink(String),
    Share {
        path: String,
        to: String,
        is_read_only: bool,
    },
    SetMode(String, u32),
    SetUserAttribute {
        path: String,
        name: &'static str,
        value: Option<u8>,
        /// Whether it must be there before (`Some(true)`) or absent (`Some(false)`).
        is_there: Option<bool>,
    },
    Look(String),
    List {
        prefix: String,
        after: Option<String>,
        limit: u64,
        is_directory: bool,
    },
    File {
        path: String,
        /// Whether a handle is used that knows an earlier layout.
        is_old: bool,
        access: Access,
    },
    /// A growth through the handle of a file that is gone.
    UseRemoved(FileNumber),
    ShareTree {
        path: String,
        to: String,
        is_read_only: bool,
    },
    Lock(LockOperation),
    Alone(AloneOperation),
    /// The client is dead from now on, and another one takes its place.
    KillClient,
    /// The client does not reach the coordinator for this time.
    CutOff {
        ms: u64,
    },
    Wait {
        ms: u64,
    },
    /// Without a change, the quota ends.
    Quota {
        path: String,
        change: Option<QuotaChange>,
    },
    LimitFiles(Limit),
    Within(WithinOperation),
}

/// An operation on the advisory locks of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LockOperation {
    pub(crate) path: String,
    pub(crate) holder: Holder,
    pub(crate) change: LockRequest,
    /// The cells that the operation is about.
    pub(crate) cells: Range<usize>,
}

/// What a holder asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockRequest {
    Set(LockMode),
    Unlock,
    Find(LockMode),
    /// The holder has closed the file.
    Release,
}

/// An operation of a client that alone may write a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AloneOperation {
    Open {
        path: String,
        client: ClientNumber,
        takes_over: bool,
        handle: HandleNumber,
    },
    Use(HandleNumber, Access),
    End(HandleNumber),
    Drop(HandleNumber),
}

/// An operation in the pool with limited bytes, in whole stripes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WithinOperation {
    /// The most stripes.
    Limit(Option<u64>),
    Put {
        name: &'static str,
        content: Content,
        replaces: bool,
    },
    File {
        name: &'static str,
        access: Access,
    },
    Remove(&'static str),
}

impl Operation {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Put {
                put_as: PutAs::Create,
                ..
            } => Kind::Create,
            Self::Put {
                put_as: PutAs::Stream,
                ..
            } => Kind::PutStream,
            Self::Put { replaces, .. } => {
                if *replaces {
                    Kind::PutOver
                } else {
                    Kind::Put
                }
            }
            Self::MakeDirectory(_) => Kind::MakeDirectory,
            Self::RemoveDirectory(_) => Kind::RemoveDirectory,
            Self::Remove(_) => Kind::Remove,
            Self::Rename {
                replaces: false, ..
            } => Kind::Rename,
            Self::Rename { .. } => Kind::RenameOver,
            Self::Exchange(..) => Kind::Exchange,
            Self::Link(..) => Kind::Link,
            Self::Symlink(..) => Kind::Symlink,
            Self::ReadLink(_) => Kind::ReadLink,
            Self::Share {
                is_read_only: true, ..
            } => Kind::Snapshot,
            Self::Share { .. } => Kind::Clone,
            Self::SetMode(..) => Kind::SetMode,
            Self::SetUserAttribute { .. } => Kind::SetUserAttribute,
            Self::Look(_) => Kind::Look,
            Self::List {
                is_directory: false,
                ..
            } => Kind::List,
            Self::List { .. } => Kind::ListDirectory,
            Self::File { access, .. } => access.kind(),
            Self::UseRemoved(_) => Kind::UseRemoved,
            Self::ShareTree {
                is_read_only: true, ..
            } => Kind::SnapshotTree,
            Self::ShareTree { .. } => Kind::CloneTree,
            Self::Lock(lock) => lock.kind(),
            Self::Alone(alone) => alone.kind(),
            Self::KillClient => Kind::KillClient,
            Self::CutOff { .. } => Kind::CutOff,
            Self::Wait { .. } => Kind::Wait,
            Self::Quota { change: None, .. } => Kind::RemoveQuota,
            Self::Quota { .. } => Kind::SetQuota,
            Self::LimitFiles(_) => Kind::LimitFiles,
            Self::Within(within) => within.kind(),
        }
    }
}

impl LockOperation {
    const fn kind(&self) -> Kind {
        match (self.change, self.holder.kind) {
            (LockRequest::Set(_), LockKind::Range) => Kind::Lock,
            (LockRequest::Set(_), LockKind::Whole) => Kind::LockWhole,
            (LockRequest::Unlock, _) => Kind::Unlock,
            (LockRequest::Find(_), _) => Kind::FindLock,
            (LockRequest::Release, _) => Kind::ReleaseLocks,
        }
    }
}

impl AloneOperation {
    const fn kind(&self) -> Kind {
        match self {
            Self::Open {
                takes_over: true, ..
            } => Kind::TakeOver,
            Self::Open { .. } => Kind::OpenAlone,
            Self::Use(..) => Kind::UseAlone,
            Self::End(_) => Kind::EndSession,
            Self::Drop(_) => Kind::DropHandle,
        }
    }
}

impl WithinOperation {
    const fn kind(&self) -> Kind {
        match self {
            Self::Limit(_) => Kind::LimitBytes,
            Self::Put { .. } => Kind::PutWithin,
            Self::File { .. } => Kind::ChangeWithin,
            Self::Remove(_) => Kind::RemoveWithin,
        }
    }
}

impl Access {
    const fn kind(&self) -> Kind {
        match self {
            Self::Write(..) => Kind::Write,
            Self::WritePieces(..) => Kind::WritePieces,
            Self::Zero(_) => Kind::Zero,
            Self::Append(_) => Kind::Append,
            Self::Grow(_) => Kind::Grow,
            Self::Truncate(_) => Kind::Truncate,
            Self::Punch(_) => Kind::Punch,
            Self::Read(_) => Kind::Read,
            Self::ReadStored => Kind::ReadStored,
        }
    }

    /// The end of a write in pieces, which may let the file grow before it writes.
    pub(crate) const fn end_of_pieces(&self) -> Option<u64> {
        match self {
            Self::WritePieces(at, content) => Some(at.saturating_add(content.length)),
            _ => None,
        }
    }

    /// Whether an attempt whose outcome is unknown was made as a whole or not at all.
    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self, Self::Write(..) | Self::Zero(_) | Self::Grow(_))
    }
}
