//! Arguments of `gabion mount` and `gabion umount`, also in the form in which `mount` calls a helper.

use super::checks;
use clap::Args;
use gabion_fuse::MountSource;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The name under which `mount -t fuse.gabion` calls this program.
const HELPER: &str = "mount.fuse.gabion";

#[derive(Args, Debug)]
pub(crate) struct MountArguments {
    #[arg(value_name = "POOL[:/PATH]", value_parser = checks::mount_source, help = "Pool of new files, and the directory of \
        the cluster to mount, as POOL or POOL:/PATH; files of all pools lie below the cluster's root")]
    pub(crate) source: MountSource,
    /// Mount point, a directory of this machine
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[arg(
        short = 'o',
        value_name = "OPTIONS",
        help = "Options separated by commas: ro, allow_other, noexec, suid, sync, \
        attr_timeout=SECONDS, cache=SIZE, coordinator=HOST:PORT, tls=DIR, and words of fstab"
    )]
    pub(crate) options: Vec<String>,
    /// Serve the mount in this process until the mount or the process ends
    #[arg(long)]
    pub(crate) foreground: bool,
    /// File to which the background process appends its log [default: none]
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    pub(crate) log: Option<PathBuf>,
    /// Serve metrics by HTTP at /metrics of this address; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) metrics: Option<String>,
    /// Become the background process
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Args, Debug)]
pub(crate) struct UmountArguments {
    /// Directory that 'gabion mount' has mounted
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Detach the mount at once, although processes use it
    #[arg(long)]
    pub(crate) lazy: bool,
}

/// The words of this process's command line, as [`words`] has them.
pub(crate) fn own_words() -> Vec<OsString> {
    words(std::env::args_os())
}

/// The words of the command line. If `mount` calls this program as its helper, this function prepends the command and
/// omits the words that only `mount` itself needs.
fn words(mut words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let Some(program) = words.next() else {
        return Vec::new();
    };
    if Path::new(&program).file_name() != Some(OsStr::new(HELPER)) {
        return std::iter::once(program).chain(words).collect();
    }
    let mut all = vec![program, "mount".into()];
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-t") => drop(words.next()),
            Some(flags) if is_for_mount_alone(flags) => {}
            _ => all.push(word),
        }
    }
    all
}

/// Whether these are flags by which `mount` says that it is verbose, tolerant, or does not write its table.
fn is_for_mount_alone(word: &str) -> bool {
    let flags = word.strip_prefix('-').unwrap_or_default();
    !flags.is_empty() && flags.chars().all(|flag| "fnsv".contains(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_of_mount_is_the_command_mount() {
        let of = |line: &str| {
            let all = words(line.split(' ').map(OsString::from));
            all.join(OsStr::new(" ")).into_string().expect("text")
        };
        assert_eq!(of("gabion df -v"), "gabion df -v");
        assert_eq!(
            of("/sbin/mount.fuse.gabion vm:/a /mnt -sv -t fuse.gabion -o rw,_netdev"),
            "/sbin/mount.fuse.gabion mount vm:/a /mnt -o rw,_netdev"
        );
    }
}
