//! Paths relative to a directory, as in the `*at` calls of POSIX: a gateway that knows a directory's id can name its
//! entries, regardless of the directory's current path.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifies a directory, whatever its path.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, Default,
)]
pub struct DirectoryId(pub u64);

impl DirectoryId {
    /// The directory above all others. It has no name.
    pub const ROOT: Self = Self(0);
}

/// A path from a directory on. An empty path is the directory itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RelativePath {
    /// The directory.
    pub directory: DirectoryId,
    /// The names from there on, with `/` between them.
    pub path: String,
}

impl RelativePath {
    /// A path from this directory on.
    pub fn new(directory: DirectoryId, path: impl Into<String>) -> Self {
        Self {
            directory,
            path: path.into(),
        }
    }
}

/// A path from the root on.
impl From<String> for RelativePath {
    fn from(path: String) -> Self {
        Self::new(DirectoryId::ROOT, path)
    }
}

/// A path from the root on.
impl From<&str> for RelativePath {
    fn from(path: &str) -> Self {
        path.to_owned().into()
    }
}

/// A path from the root on.
impl From<&String> for RelativePath {
    fn from(path: &String) -> Self {
        path.to_owned().into()
    }
}

/// The path, without the directory.
impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}
