//! Names of images.
//!
//! The image `POOL/NAME` is the file of that name in the pool of that name: the same words name it in every command
//! and as an export. Pools' names have no `/`, so the first one ends the pool's name.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The name of an image: `POOL/NAME`.
///
/// ```
/// use gabion_nbd::ImageName;
///
/// let name: ImageName = "vm/disks/web-1".parse()?;
/// assert_eq!((name.pool(), name.as_str()), ("vm", "vm/disks/web-1"));
/// assert!("web-1".parse::<ImageName>().is_err());
/// # Ok::<(), gabion_nbd::ImageNameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ImageName {
    name: String,
    /// Bytes of the pool's name. Invariant: a `/` follows, and something behind it.
    pool_bytes: usize,
}

/// A text that names no image.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("an image is named as POOL/NAME, for example vm/disk; '{0}' is not")]
pub struct ImageNameError(String);

impl ImageName {
    /// The pool's name.
    pub fn pool(&self) -> &str {
        &self.name[..self.pool_bytes]
    }

    /// The whole name, which is that of the file.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl FromStr for ImageName {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        match text.split_once('/') {
            Some((pool, name)) if !pool.is_empty() && !name.is_empty() => Ok(Self {
                name: text.to_owned(),
                pool_bytes: pool.len(),
            }),
            _ => Err(ImageNameError(text.to_owned())),
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_a_pool_and_something_behind_it() {
        let pool = |text: &str| text.parse::<ImageName>().map(|name| name.pool().to_owned());
        assert_eq!(pool("vm/a/b").as_deref(), Ok("vm"));
        for wrong in ["", "vm", "/disk", "vm/", "/"] {
            assert!(pool(wrong).is_err(), "{wrong}");
        }
    }
}
