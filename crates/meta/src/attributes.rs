//! Permissions and times of files and directories, as POSIX has them. They are kept for gateways and people; the
//! cluster does not enforce them.

use serde::{Deserialize, Serialize};

/// A moment by a wall clock, which may step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct WallTime {
    /// Whole seconds since the beginning of 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds since then, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl WallTime {
    /// Whether its nanoseconds are less than a second.
    pub(crate) const fn is_valid(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }
}

/// The permissions of a new file or directory, which nothing in the cluster enforces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Permissions {
    /// The mode, of 12 bits.
    pub mode: u32,
    /// The owner's number.
    pub owner: u32,
    /// The group's number.
    pub group: u32,
}

impl Permissions {
    /// The highest mode: all bits of permissions, and the set-user-id, set-group-id and sticky bits.
    pub const MODE_MAX: u32 = 0o7777;
    /// Those of a new file of which the client says nothing else.
    pub const FILE: Self = Self::of_root(0o644);
    /// Those of a new directory of which the client says nothing else.
    pub const DIRECTORY: Self = Self::of_root(0o755);

    const fn of_root(mode: u32) -> Self {
        Self {
            mode,
            owner: 0,
            group: 0,
        }
    }
}

/// Permissions and times of a file or directory, as POSIX has them.
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
    /// When its content changed last: its size or its holes, the names in a directory, or what a client has said.
    /// A write in place changes no metadata.
    pub modified: WallTime,
    /// When anything of its inode changed last.
    pub changed: WallTime,
    /// How often clients have set attributes: a late message of an earlier change is told by it.
    pub version: u64,
}

impl Attributes {
    /// Those of what is made now.
    pub const fn new(permissions: Permissions, now: WallTime) -> Self {
        let Permissions { mode, owner, group } = permissions;
        Self {
            mode,
            owner,
            group,
            created: now,
            accessed: now,
            modified: now,
            changed: now,
            version: 0,
        }
    }

    /// Notes that the content changes now.
    pub(crate) const fn note_content(&mut self, now: WallTime) {
        self.modified = now;
        self.changed = now;
    }

    /// The permissions of directories that are made above it.
    pub(crate) const fn above(&self) -> Permissions {
        Permissions {
            owner: self.owner,
            group: self.group,
            ..Permissions::DIRECTORY
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
}

impl AttributeChange {
    /// The attributes that an inode has afterwards, at this time.
    pub(crate) fn applied(&self, to: &Attributes, now: WallTime) -> Attributes {
        Attributes {
            mode: self.mode.unwrap_or(to.mode),
            owner: self.owner.unwrap_or(to.owner),
            group: self.group.unwrap_or(to.group),
            accessed: self.accessed.unwrap_or(to.accessed),
            modified: self.modified.unwrap_or(to.modified),
            changed: now,
            version: to.version.saturating_add(1),
            ..*to
        }
    }

    /// Whether an inode has all of the values.
    pub(crate) fn is_made(&self, of: &Attributes) -> bool {
        let again = self.applied(of, of.changed);
        let version = of.version;
        Attributes { version, ..again } == *of
    }
}
