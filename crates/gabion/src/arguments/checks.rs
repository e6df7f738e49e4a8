//! Checks of command line words, before any request. The coordinator checks names again, since
//! other programs send requests too.

use gabion_fuse::{MountSource, OptionError};
use gabion_layout::parse_bytes;
use gabion_meta::{Attributes, FILE_BYTES_MAX, Limit, check_form};
use gabion_nbd::{ImageName, ImageNameError};
use gabion_wire::parse_rate;
use std::num::NonZeroU64;

/// Most bytes of a pool's name.
const POOL_NAME_BYTES: usize = 64;

/// Checks the address of a process, `host:port`, at which others reach it.
///
/// # Errors
/// One plain sentence.
pub(super) fn peer_address(text: &str) -> Result<String, String> {
    match port_of(text) {
        Some(port) if port > 0 => Ok(text.to_owned()),
        _ => Err("write HOST:PORT, such as 10.0.0.1:7070".to_owned()),
    }
}

/// Checks the addresses of coordinators: one, or several of which one leads.
///
/// # Errors
/// One plain sentence.
pub(crate) fn coordinator_addresses(text: &str) -> Result<String, String> {
    for address in gabion_wire::coordinator_addresses(text) {
        peer_address(address)?;
    }
    Ok(text.to_owned())
}

/// Checks an address to listen on: `host:port`, where port 0 takes a free one.
///
/// # Errors
/// One plain sentence.
pub(super) fn own_address(text: &str) -> Result<String, String> {
    let port = port_of(text).map(|_| text.to_owned());
    port.ok_or_else(|| "write HOST:PORT, such as 10.0.0.1:7070; port 0 takes a free one".to_owned())
}

/// The port of `host:port`, if that is one.
fn port_of(text: &str) -> Option<u16> {
    let (host, port) = text.rsplit_once(':')?;
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    port.parse().ok().filter(|_| is_host)
}

/// Whether this can be the name of a host, or its IPv4 address.
fn is_name(host: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    !host.is_empty() && host.chars().all(of_name)
}

/// Checks a host name without a port.
///
/// # Errors
/// One plain sentence.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let is_address = text.parse::<std::net::Ipv6Addr>().is_ok();
    let name = Some(text.to_owned()).filter(|text| is_address || is_name(text));
    name.ok_or_else(|| {
        "write the name alone, such as console.example; it has no scheme, port or path".to_owned()
    })
}

/// Checks a stored file's name.
///
/// # Errors
/// One plain sentence.
pub(super) fn file_name(text: &str) -> Result<String, String> {
    check_form(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// A new owner, a new group, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
}

/// Checks the path of a file or directory. The root's path, `/`, becomes the empty path.
///
/// # Errors
/// One plain sentence.
pub(super) fn path(text: &str) -> Result<String, String> {
    if text == "/" {
        return Ok(String::new());
    }
    file_name(text)
}

/// Reads a mode in octal.
///
/// # Errors
/// One plain sentence.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal);
    mode.filter(|mode| *mode <= Attributes::MODE_MAX)
        .ok_or_else(|| "a mode is an octal number of at most 7777, for example 640".to_owned())
}

/// Reads the numbers of an owner and a group.
///
/// # Errors
/// One plain sentence.
pub(super) fn owner(text: &str) -> Result<Owner, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        _ if text.starts_with('+') => Err(()),
        // The highest means none.
        _ => text
            .parse()
            .ok()
            .filter(|n| *n < u32::MAX)
            .map(Some)
            .ok_or(()),
    };
    let (owner, group) = text.split_once(':').unwrap_or((text, ""));
    match (number(owner), number(group)) {
        (Ok(owner), Ok(group)) if owner.is_some() || group.is_some() => Ok(Owner { owner, group }),
        _ => Err(
            "an owner and a group are numbers, as in 1000, 1000:100 or :100; 'id' tells yours"
                .to_owned(),
        ),
    }
}

/// Checks a prefix of files' names.
///
/// # Errors
/// One plain sentence.
pub(super) fn name_prefix(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a prefix has at least one character".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks a pool's name.
///
/// # Errors
/// One plain sentence.
pub(super) fn pool_name(text: &str) -> Result<String, String> {
    let follows = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let is_simple = text.len() <= POOL_NAME_BYTES
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(follows);
    if is_simple {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a pool's name has 1 to {POOL_NAME_BYTES} characters of a to z, 0 to 9, - and _, and starts with a letter"
    ))
}

/// Checks an image's name.
///
/// # Errors
/// One plain sentence.
pub(super) fn image_name(text: &str) -> Result<ImageName, String> {
    let name: ImageName = text
        .parse()
        .map_err(|error: ImageNameError| error.to_string())?;
    pool_name(name.pool())?;
    file_name(text)?;
    Ok(name)
}

/// Checks the pool and path to mount.
///
/// # Errors
/// One plain sentence.
pub(super) fn mount_source(text: &str) -> Result<MountSource, String> {
    let source: MountSource = text
        .parse()
        .map_err(|error: OptionError| error.to_string())?;
    pool_name(&source.pool)?;
    if !source.path.is_empty() {
        file_name(&source.path)?;
    }
    Ok(source)
}

/// Checks a link's speed.
///
/// # Errors
/// One plain sentence.
pub(super) fn rate(text: &str) -> Result<String, String> {
    let checked = parse_rate(text).map(|_| text.to_owned());
    checked.map_err(|error| error.to_string())
}

/// A number from 1 on.
pub(super) fn at_least_one(text: &str) -> Result<NonZeroU64, String> {
    let number = text.parse();
    number.map_err(|_| "use a whole number of at least 1".to_owned())
}

/// A size that is not zero.
pub(super) fn some_bytes(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(parse_bytes(text)?).ok_or_else(|| "use at least one byte".to_owned())
}

/// The size of a file.
pub(super) fn file_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes > FILE_BYTES_MAX {
        return Err(format!("a file has at most {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

/// A limit of bytes, or none.
pub(super) fn bytes_limit(text: &str) -> Result<Limit, String> {
    limit(text, |text| Ok(parse_bytes(text)?))
}

/// A limit of files, or none.
pub(super) fn files_limit(text: &str) -> Result<Limit, String> {
    limit(text, |text| {
        text.parse()
            .map_err(|_| "use a whole number of files, or 'none'".to_owned())
    })
}

fn limit(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit::Unlimited);
    }
    parse(text).map(Limit::AtMost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_stand_alone() {
        for name in ["console.example", "10.0.0.1", "::1"] {
            assert_eq!(host_name(name).as_deref(), Ok(name));
        }
        for wrong in ["", "https://x/", "a b", "x:7080", "x/"] {
            assert!(host_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for address in ["10.0.0.1:7070", "node-1.rack_2:1", "[::1]:7070"] {
            assert_eq!(peer_address(address).as_deref(), Ok(address));
        }
        for wrong in [
            "foo",
            "foo:",
            ":7070",
            "foo:0",
            "foo:65536",
            "::1:7070",
            "a b:1",
            "",
        ] {
            assert!(peer_address(wrong).is_err(), "{wrong}");
        }
        assert!(coordinator_addresses("10.0.0.1:7070, [::1]:7071").is_ok());
        assert!(coordinator_addresses("10.0.0.1:7070,").is_err());
        assert!(own_address("127.0.0.1:0").is_ok());
        assert!(own_address("127.0.0.1").is_err());
    }

    #[test]
    fn sizes_of_files_end_below_2_to_the_63() {
        assert_eq!(file_bytes("9223372036854775807"), Ok(FILE_BYTES_MAX));
        assert!(file_bytes("9223372036854775808").is_err());
    }

    #[test]
    fn names_match_those_that_the_coordinator_accepts() {
        for name in ["a", "a/b c/\u{fc}"] {
            assert_eq!(file_name(name).as_deref(), Ok(name));
        }
        for name in ["", "a\nb", "/a", "a/", "a/../b"] {
            assert!(file_name(name).is_err(), "{name:?}");
        }
        assert!(name_prefix("a/").is_ok() && name_prefix("").is_err());
        let longest = "p".repeat(POOL_NAME_BYTES);
        for name in ["a", "hot-6_3", &longest] {
            assert_eq!(pool_name(name).as_deref(), Ok(name));
        }
        for name in ["", "6", "-a", "A", "a b", &format!("{longest}p")] {
            assert!(pool_name(name).is_err(), "{name:?}");
        }
    }
}
