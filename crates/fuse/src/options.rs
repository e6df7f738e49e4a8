//! The words of `mount -o`, and what is mounted.

use crate::unstored::{CACHE_BYTES_MAX, CACHE_BYTES_MIN};
use gabion_layout::parse_bytes;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// The source of a mount: `POOL` or `POOL:/path`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountSource {
    /// The pool of new files.
    pub pool: String,
    /// The directory that becomes the root of the mount; empty for the cluster's.
    pub path: String,
}

/// Options of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// Refuse changes.
    pub is_read_only: bool,
    /// Let other users than the mounting one use it.
    pub allows_others: bool,
    /// Time for which the kernel may go by attributes and names that it was told.
    pub kept: Duration,
    /// Memory, in bytes, for what programs write and the cluster gets later; none if each write waits.
    pub cache_bytes: Option<u64>,
    /// The rights of programs on it.
    pub programs: Programs,
    /// The coordinator's address, for lines of fstab.
    pub coordinator: Option<String>,
    /// The directory of the mounting process's certificate, for lines of fstab.
    pub tls: Option<String>,
}

/// The rights of the programs on a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Programs {
    /// Be run.
    pub run: bool,
    /// Run with their file's owner or group, if their mode has the bit for it.
    pub set_id: bool,
}

/// A text that is no option or source.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct OptionError(String);

/// Words that mean something to `mount` or `systemd`, or what holds here anyway.
const ACCEPTED: [&str; 20] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "nouser",
    "default_permissions",
    "async",
    "dirsync",
    "nodev",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "noatime",
    "nodiratime",
    "diratime",
    "lazytime",
    "nolazytime",
    "silent",
];
/// Beginnings of such words.
const ACCEPTED_BEGINNINGS: [&str; 3] = ["x-", "X-", "comment="];

/// Options with values.
const WITH_VALUES: [(&str, &str); 4] = [
    ("attr_timeout", "SECONDS"),
    ("cache", "SIZE"),
    ("coordinator", "HOST:PORT"),
    ("tls", "DIR"),
];

/// Longest time for which attributes are kept.
const KEPT_S_MAX: f64 = 3600.0;

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            is_read_only: false,
            allows_others: false,
            kept: Duration::from_secs(1),
            cache_bytes: None,
            programs: Programs {
                run: true,
                set_id: false,
            },
            coordinator: None,
            tls: None,
        }
    }
}

impl FromStr for MountSource {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let (pool, path) = text.split_once(':').unwrap_or((text, "/"));
        let is_whole = !pool.is_empty() && path.starts_with('/');
        if !is_whole {
            return Err(OptionError(format!(
                "write POOL or POOL:/path, for example vm or vm:/home; '{text}' is neither"
            )));
        }
        Ok(Self {
            pool: pool.to_owned(),
            path: path.trim_matches('/').to_owned(),
        })
    }
}

impl MountOptions {
    /// These options, and those of a further `-o`: later words win.
    ///
    /// # Errors
    /// [`OptionError`] for an unknown word or an invalid value.
    pub fn with(mut self, words: &str) -> Result<Self, OptionError> {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            self.set(word)?;
        }
        Ok(self)
    }

    fn set(&mut self, word: &str) -> Result<(), OptionError> {
        match word.split_once('=') {
            Some(("attr_timeout", seconds)) => self.kept = kept(seconds)?,
            Some(("cache", size)) => self.cache_bytes = Some(cache_bytes(size)?),
            None if word == "sync" => self.cache_bytes = None,
            Some(("coordinator", address)) => {
                self.coordinator = Some(given("coordinator", address)?);
            }
            Some(("tls", directory)) => self.tls = Some(given("tls", directory)?),
            None if WITH_VALUES.iter().any(|(name, _)| *name == word) => {
                return Err(lacks_value(word));
            }
            None if word == "ro" => self.is_read_only = true,
            None if word == "rw" => self.is_read_only = false,
            None if word == "allow_other" => self.allows_others = true,
            None if word == "exec" => self.programs.run = true,
            None if word == "noexec" => self.programs.run = false,
            None if word == "suid" => self.programs.set_id = true,
            None if word == "nosuid" => self.programs.set_id = false,
            _ if ACCEPTED.contains(&word) => {}
            _ if ACCEPTED_BEGINNINGS
                .iter()
                .any(|begin| word.starts_with(begin)) => {}
            _ => {
                return Err(OptionError(format!(
                    "there is no mount option '{word}'; use ro, rw, allow_other, exec, noexec, suid, nosuid, \
                     attr_timeout=SECONDS, cache=SIZE, sync, coordinator=HOST:PORT, tls=DIR and fstab's own words"
                )));
            }
        }
        Ok(())
    }
}

/// The value of an option that names something.
fn given(word: &str, value: &str) -> Result<String, OptionError> {
    if value.is_empty() {
        return Err(lacks_value(word));
    }
    Ok(value.to_owned())
}

/// The error of an option without its value.
fn lacks_value(word: &str) -> OptionError {
    let mut all = WITH_VALUES.iter();
    let value = all.find(|(name, _)| *name == word);
    let value = value.map_or("VALUE", |(_, value)| value);
    OptionError(format!(
        "the mount option '{word}' needs a value, as {word}={value}"
    ))
}

fn cache_bytes(text: &str) -> Result<u64, OptionError> {
    let size = parse_bytes(text).ok();
    size.filter(|size| (CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(size))
        .ok_or_else(|| {
            OptionError(format!(
                "cache is a size from 16MiB to 1GiB, for example cache=64MiB, not '{text}'"
            ))
        })
}

fn kept(text: &str) -> Result<Duration, OptionError> {
    let seconds: Option<f64> = text.parse().ok();
    let valid = seconds.filter(|seconds| (0.0..=KEPT_S_MAX).contains(seconds));
    valid.map(Duration::from_secs_f64).ok_or_else(|| {
        OptionError(format!(
            "attr_timeout is a number of seconds from 0 to 3600, for example attr_timeout=0.5, not '{text}'"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_name_a_pool_and_may_name_a_directory() {
        for (text, pool, path) in [
            ("vm", "vm", ""),
            ("vm:/", "vm", ""),
            ("vm:/a/b/", "vm", "a/b"),
        ] {
            let source: MountSource = text.parse().expect("it is one");
            assert_eq!((source.pool.as_str(), source.path.as_str()), (pool, path));
        }
        for wrong in ["", ":/a", "vm:a", "vm:"] {
            assert!(wrong.parse::<MountSource>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_taken_as_in_fstab_and_unknown_ones_are_refused() {
        let with = |words: &str| MountOptions::default().with(words);
        let all =
            with("defaults,_netdev,ro,allow_other,attr_timeout=0.5,x-systemd.automount,noexec");
        let all = all.expect("all are known");
        assert!(all.is_read_only && all.allows_others && !all.programs.run);
        assert_eq!(all.kept, Duration::from_millis(500));
        assert_eq!(with("ro,rw"), Ok(MountOptions::default()));
        let named = with("coordinator=10.0.0.1:7070").expect("it is known");
        assert_eq!(named.coordinator.as_deref(), Some("10.0.0.1:7070"));
        let proven = with("tls=/etc/gabion").expect("it is known");
        assert_eq!(proven.tls.as_deref(), Some("/etc/gabion"));
        let cached = with("cache=64MiB").expect("it is known");
        assert_eq!(cached.cache_bytes, Some(64 << 20));
        assert_eq!(with("cache=64MiB,sync"), Ok(MountOptions::default()));
        for (wrong, form) in [
            ("coordinator", "coordinator=HOST:PORT"),
            ("ro,coordinator=,rw", "coordinator=HOST:PORT"),
            ("tls", "tls=DIR"),
            ("tls=", "tls=DIR"),
            ("cache", "cache=SIZE"),
            ("attr_timeout", "attr_timeout=SECONDS"),
        ] {
            let error = with(wrong).expect_err(wrong).to_string();
            assert!(
                error.contains(&format!("needs a value, as {form}")),
                "{error}"
            );
        }
        for wrong in [
            "cache=",
            "cache=1MiB",
            "cache=2GiB",
            "bogus",
            "attr_timeout=",
            "attr_timeout=-1",
            "ro=1",
            "dev",
        ] {
            let error = with(wrong).expect_err(wrong).to_string();
            assert!(
                ["option", "seconds", "size"]
                    .iter()
                    .any(|word| error.contains(word)),
                "{error}"
            );
        }
    }
}
