//! Attributes of files and directories, as POSIX has them: permissions and times. They are kept for gateways and
//! people; the cluster does not enforce them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A moment by a wall clock, which may step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct WallTime {
    /// Whole seconds since the beginning of 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds since then, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Resolution of the times of a directory, in nanoseconds: many names may change in it at nearly the same time, and
/// then not each change writes its row.
const NAMES_NS: i128 = 10_000_000;

impl WallTime {
    /// Whether it is this time, or one shortly before it.
    fn is_just_before(self, now: Self) -> bool {
        let ns =
            |time: Self| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        (0..NAMES_NS).contains(&(ns(now) - ns(self)))
    }

    /// Whether its nanoseconds are less than a second.
    pub(crate) const fn is_valid(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }
}

/// The attributes of a new file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewAttributes {
    /// The mode, of 12 bits.
    pub mode: u32,
    /// The owner's number.
    pub owner: u32,
    /// The group's number.
    pub group: u32,
    /// When it was read last; none for now.
    pub accessed: Option<WallTime>,
    /// When its content changed last; none for now.
    pub modified: Option<WallTime>,
}

impl NewAttributes {
    /// Those of a new file of which the client says nothing else.
    pub const FILE: Self = Self::of_root(0o644);
    /// Those of a new directory of which the client says nothing else.
    pub const DIRECTORY: Self = Self::of_root(0o755);

    const fn of_root(mode: u32) -> Self {
        Self {
            mode,
            owner: 0,
            group: 0,
            accessed: None,
            modified: None,
        }
    }
}

/// New attributes of an inode; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AttributeChange {
    /// Its mode, of 12 bits.
    pub mode: Option<u32>,
    /// Its owner's number.
    pub owner: Option<u32>,
    /// Its group's number.
    pub group: Option<u32>,
    /// When it was read last.
    pub accessed: Option<WallTime>,
    /// When its content changed last.
    pub modified: Option<WallTime>,
    /// Users' attributes that get a value, or lose it. The others stay.
    pub user: BTreeMap<String, Option<Vec<u8>>>,
}

impl From<NewAttributes> for AttributeChange {
    fn from(new: NewAttributes) -> Self {
        Self {
            mode: Some(new.mode),
            owner: Some(new.owner),
            group: Some(new.group),
            accessed: new.accessed,
            modified: new.modified,
            user: BTreeMap::new(),
        }
    }
}

/// The attributes of a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// The mode, of 12 bits: permissions, and the set-user-id, set-group-id and sticky bits.
    pub mode: u32,
    /// The owner's number.
    pub owner: u32,
    /// The group's number.
    pub group: u32,
    /// When it was made.
    pub created: WallTime,
    /// When it was read last, as far as clients say so.
    pub accessed: WallTime,
    /// When its content changed last: its size or its stripes, the names in a directory, or what a client has said.
    /// A write in place changes no metadata.
    pub modified: WallTime,
    /// When anything of its inode changed last. It never goes back.
    pub changed: WallTime,
    /// Number of times that clients have set attributes; it reveals a late message of an earlier change.
    pub version: u64,
}

impl Attributes {
    /// The highest mode: permissions, and the set-user-id, set-group-id and sticky bits.
    pub const MODE_MAX: u32 = 0o7777;

    /// Those of what is made now.
    pub fn new(new: NewAttributes, now: WallTime) -> Self {
        Self {
            mode: new.mode,
            owner: new.owner,
            group: new.group,
            created: now,
            accessed: new.accessed.unwrap_or(now),
            modified: new.modified.unwrap_or(now),
            changed: now,
            version: 0,
        }
    }

    /// Notes that the inode changes now.
    pub(crate) fn note_change(&mut self, now: WallTime) {
        self.changed = self.changed.max(now);
    }

    /// Notes that the content changes now.
    pub(crate) fn note_content(&mut self, now: WallTime) {
        self.modified = now;
        self.note_change(now);
    }

    /// Whether a change of the content was noted just now, so that the times are exact enough without another note.
    pub(crate) fn are_of(&self, now: WallTime) -> bool {
        self.modified.is_just_before(now) && self.changed.is_just_before(now)
    }

    /// Sets some of them now.
    pub(crate) fn set(&mut self, change: &AttributeChange, now: WallTime) {
        let AttributeChange {
            mode,
            owner,
            group,
            accessed,
            modified,
            user: _,
        } = *change;
        self.mode = mode.unwrap_or(self.mode);
        self.owner = owner.unwrap_or(self.owner);
        self.group = group.unwrap_or(self.group);
        self.accessed = accessed.unwrap_or(self.accessed);
        self.modified = modified.unwrap_or(self.modified);
        self.version = self.version.saturating_add(1);
        self.note_change(now);
    }

    /// Those of directories that are made above it.
    pub(crate) const fn for_parent(&self) -> NewAttributes {
        NewAttributes {
            owner: self.owner,
            group: self.group,
            ..NewAttributes::DIRECTORY
        }
    }
}
