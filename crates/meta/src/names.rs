//! Rules for names, addresses and attributes.

use crate::attributes::{AttributeChange, Attributes};
use crate::error::MetaError;
use crate::records::FILE_NAME_BYTES;
use std::collections::BTreeMap;

/// Most bytes of a pool's name.
const POOL_NAME_BYTES: usize = 64;

/// Most bytes of a name in a directory, as of POSIX file systems.
const PART_BYTES: usize = 255;

/// Most bytes of a symbolic link's target, as of Linux.
const TARGET_BYTES: usize = 4095;

/// Most bytes of the users' attributes of an inode, with their names: one row and one message hold them.
const USER_ATTRIBUTES_BYTES: usize = 64 << 10;

/// Most names of a path.
pub(crate) const LEVELS_MAX: usize = 64;

/// Refuses new paths of files and directories that could not be listed, typed or stored.
///
/// # Errors
/// [`MetaError::FileName`]; [`MetaError::NameTooLong`].
pub(crate) fn check_file_name(path: &str) -> Result<(), MetaError> {
    if path.len() > FILE_NAME_BYTES {
        let problem = "is too long";
        return Err(MetaError::NameTooLong { problem });
    }
    check_form(path)
}

/// Refuses an invalid target of a symbolic link. The target need not exist.
///
/// # Errors
/// [`MetaError::Target`].
pub(crate) fn check_target(target: &str) -> Result<(), MetaError> {
    let problem = if target.is_empty() {
        "a target"
    } else if target.len() > TARGET_BYTES {
        "a target of at most 4095 bytes"
    } else if target.contains('\0') {
        "a target without a zero byte"
    } else {
        return Ok(());
    };
    Err(MetaError::Target { problem })
}

/// Refuses what is no path of a file or a directory, whatever its length: a rename of a directory makes the paths
/// below it longer.
///
/// # Errors
/// [`MetaError::FileName`]; [`MetaError::NameTooLong`].
pub fn check_form(path: &str) -> Result<(), MetaError> {
    let problem = if path.is_empty() {
        "must not be empty"
    } else if path.chars().any(char::is_control) {
        "holds a control character"
    } else if path.split('/').any(str::is_empty) {
        "has a '/' at an end or beside another one"
    } else if path.split('/').any(|name| name == "." || name == "..") {
        "has the part '.' or '..'"
    } else {
        return check_lengths(path);
    };
    Err(MetaError::FileName { problem })
}

fn check_lengths(path: &str) -> Result<(), MetaError> {
    let problem = if path.split('/').any(|name| name.len() > PART_BYTES) {
        "has a part of more than 255 bytes"
    } else if path.split('/').count() > LEVELS_MAX {
        "has more than 64 parts"
    } else {
        return Ok(());
    };
    Err(MetaError::NameTooLong { problem })
}

/// Refuses pool names that are not simple identifiers.
pub(crate) fn check_pool_name(name: &str) -> Result<(), MetaError> {
    let follows = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let simple = name.len() <= POOL_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(follows);
    if simple {
        Ok(())
    } else {
        Err(MetaError::PoolName(name.to_owned()))
    }
}

/// Refuses attributes that no inode can have.
///
/// # Errors
/// [`MetaError::Attributes`].
pub(crate) fn check_attributes(change: &AttributeChange) -> Result<(), MetaError> {
    let times = [change.accessed, change.modified];
    let problem = if change.mode.is_some_and(|mode| mode > Attributes::MODE_MAX) {
        "a mode has 12 bits, 7777 in octal at most"
    } else if [change.owner, change.group].contains(&Some(u32::MAX)) {
        "an owner and a group are below 4,294,967,295, which means none"
    } else if times.iter().flatten().any(|time| !time.is_valid()) {
        "a time has fewer than 1,000,000,000 nanoseconds"
    } else {
        return Ok(());
    };
    Err(MetaError::Attributes { problem })
}

/// Refuses users' attributes that no inode can have.
///
/// # Errors
/// [`MetaError::UserAttribute`]; [`MetaError::UserAttributesTooLarge`].
pub(crate) fn check_user_attributes(all: &BTreeMap<String, Vec<u8>>) -> Result<(), MetaError> {
    let problem = if all
        .keys()
        .any(|name| name.is_empty() || name.contains('\0'))
    {
        "a name without a zero byte"
    } else if all.keys().any(|name| name.len() > PART_BYTES) {
        "a name of at most 255 bytes"
    } else {
        let bytes: usize = all
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let limit_bytes = USER_ATTRIBUTES_BYTES;
        let fits = bytes <= limit_bytes;
        return if fits {
            Ok(())
        } else {
            Err(MetaError::UserAttributesTooLarge { limit_bytes })
        };
    };
    Err(MetaError::UserAttribute { problem })
}

/// Refuses addresses that are not `host:port`.
pub(crate) fn check_address(address: &str) -> Result<(), MetaError> {
    let dialable = address.len() <= 255
        && address
            .rsplit_once(':')
            .is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|p| p > 0));
    if dialable {
        Ok(())
    } else {
        Err(MetaError::Address(address.to_owned()))
    }
}

/// Whether `host` has only characters of host names and IP addresses, version 6 in brackets.
fn is_host(host: &str) -> bool {
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-' || c == '_';
    if bracketed {
        host[1..host.len() - 1]
            .parse::<std::net::Ipv6Addr>()
            .is_ok()
    } else {
        !host.is_empty() && host.chars().all(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names() {
        let part = "x".repeat(PART_BYTES);
        let longest = [part.as_str(); FILE_NAME_BYTES / (PART_BYTES + 1)].join("/");
        let deepest = ["x"; LEVELS_MAX].join("/");
        for name in ["a", "a/b c/ü", "...", ".a/b.", &part, &longest, &deepest] {
            assert_eq!(check_file_name(name), Ok(()));
        }
        let too_long = format!("{longest}/x");
        let (long_part, too_deep) = (format!("{part}x"), format!("{deepest}/x"));
        for name in [
            "", "a\0b", "a\nb", "a\u{7f}", &too_long, &long_part, &too_deep,
        ] {
            assert!(check_file_name(name).is_err(), "{name:?}");
        }
        assert_eq!(check_form(&too_long), Ok(()));
        for name in ["/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/.."] {
            assert!(check_file_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn pool_names() {
        let longest = "p".repeat(POOL_NAME_BYTES);
        for name in ["a", "hot-6_3", longest.as_str()] {
            assert_eq!(check_pool_name(name), Ok(()));
        }
        for name in ["", "6", "-a", "A", "a b", "ä", &format!("{longest}p")] {
            assert!(check_pool_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn addresses() {
        for address in ["127.0.0.1:1", "node-7.rack:65535", "[::1]:9000"] {
            assert_eq!(check_address(address), Ok(()));
        }
        for address in [
            "",
            "host",
            ":80",
            "host:0",
            "host:65536",
            "a b:1",
            "::1:80",
            "[]:1",
            "[:1",
            "]:1",
        ] {
            assert!(check_address(address).is_err(), "{address:?}");
        }
    }
}
