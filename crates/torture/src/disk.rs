//! Disks of nodes that can die, hang or be full: file systems in files, behind loop devices.
//!
//! They are mounted in the mount namespace of the testbed, so they end with its last process.

use crate::cluster::{Cluster, Process, tool};
use crate::stop::{Context, Stop};
use std::fs::{self, File};
use std::path::PathBuf;

/// Bytes of the file behind a disk; it is sparse.
const DISK_BYTES: u64 = 8 << 30;
/// `FS_IOC_SHUTDOWN` of Linux: `_IOR('X', 125, __u32)`.
const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
/// `FIFREEZE` of Linux: `_IOWR('X', 119, int)`.
const FREEZE: rustix::ioctl::Opcode = 0xc004_5877;
/// `FITHAW` of Linux: `_IOWR('X', 120, int)`.
const THAW: rustix::ioctl::Opcode = 0xc004_5878;
/// Do not write the file system's journal, as for a disk that is gone.
const WITHOUT_JOURNAL: u32 = 2;

/// The file behind a node's disk.
fn image(cluster: &Cluster, node: u32) -> PathBuf {
    cluster.beside(&format!("disk-{node}"))
}

/// Moves a node's data to a disk of its own. The node is stopped and started for that.
pub(crate) fn give(cluster: &Cluster, node: u32) -> Result<(), Stop> {
    let process = Process::Node(node);
    cluster.kill(process)?;
    let image = image(cluster, node);
    let file = File::create(&image).context("make the file of a disk")?;
    file.set_len(DISK_BYTES)
        .context("size the file of a disk")?;
    tool(
        "mkfs.ext4",
        ["-q".as_ref(), "-F".as_ref(), image.as_os_str()],
    )?;
    let directory = cluster.directory_of(process);
    let aside = directory.with_extension("aside");
    fs::rename(&directory, &aside).context("move a node's directory")?;
    fs::create_dir(&directory).context("make a node's directory")?;
    mount(cluster, node)?;
    let all = aside.join(".");
    tool(
        "cp",
        ["-a".as_ref(), all.as_os_str(), directory.as_os_str()],
    )?;
    // The copied data was durable before.
    tool("sync", ["-f".as_ref(), directory.as_os_str()])?;
    fs::remove_dir_all(&aside).context("remove a node's former directory")?;
    cluster.start(process)
}

/// Mounts a node's disk.
pub(crate) fn mount(cluster: &Cluster, node: u32) -> Result<(), Stop> {
    let directory = cluster.directory_of(Process::Node(node));
    let image = image(cluster, node);
    let options = ["-t", "ext4", "-o", "loop"].map(AsRef::as_ref);
    tool(
        "mount",
        options
            .into_iter()
            .chain([image.as_os_str(), directory.as_os_str()]),
    )
}

/// Unmounts a node's disk; no process may use it.
pub(crate) fn unmount(cluster: &Cluster, node: u32) -> Result<(), Stop> {
    tool("umount", [cluster.directory_of(Process::Node(node))])
}

/// Makes a node's disk answer everything with EIO from now on.
pub(crate) fn die(cluster: &Cluster, node: u32) -> Result<(), Stop> {
    let directory = open(cluster, node)?;
    order::<SHUTDOWN>(&directory, WITHOUT_JOURNAL).context("shut a file system down")
}

/// A node's disk that writes nothing and answers no write; it still reads. It goes on when this is dropped.
#[derive(Debug)]
pub(crate) struct Frozen(File);

/// Freezes a node's disk.
pub(crate) fn freeze(cluster: &Cluster, node: u32) -> Result<Frozen, Stop> {
    let directory = open(cluster, node)?;
    order::<FREEZE>(&directory, 0).context("freeze a file system")?;
    Ok(Frozen(directory))
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = order::<THAW>(&self.0, 0) {
            eprintln!("gabion-torture: cannot thaw a file system: {error}");
        }
    }
}

fn open(cluster: &Cluster, node: u32) -> Result<File, Stop> {
    let directory = File::open(cluster.directory_of(Process::Node(node)));
    directory.context("open a node's directory")
}

/// Gives a file system an order.
#[expect(unsafe_code, reason = "a system call that no safe interface has")]
fn order<const ORDER: rustix::ioctl::Opcode>(
    directory: &File,
    argument: u32,
) -> rustix::io::Result<()> {
    // SAFETY: the kernel reads at most one u32 behind the pointer and writes nothing.
    unsafe {
        rustix::ioctl::ioctl(
            directory,
            rustix::ioctl::Setter::<ORDER, u32>::new(argument),
        )
    }
}

/// The file that fills a node's disk.
fn ballast(cluster: &Cluster, node: u32) -> PathBuf {
    cluster.directory_of(Process::Node(node)).join("ballast")
}

/// Fills a node's disk to the last block.
pub(crate) fn fill(cluster: &Cluster, node: u32) -> Result<(), Stop> {
    let directory = cluster.directory_of(Process::Node(node));
    let space = rustix::fs::statvfs(&directory).context("query the free space of a disk")?;
    let file = File::create(ballast(cluster, node)).context("make a ballast")?;
    let mut rest = space.f_bfree * space.f_frsize;
    // The file system's own blocks need space too, so the last part is found by halving.
    let mut length = 0;
    while rest >= space.f_frsize {
        let flags = rustix::fs::FallocateFlags::empty();
        if rustix::fs::fallocate(&file, flags, length, rest).is_ok() {
            length += rest;
        } else {
            rest /= 2;
        }
    }
    Ok(())
}

/// Frees the space again.
pub(crate) fn empty(cluster: &Cluster, node: u32) -> Result<(), Stop> {
    fs::remove_file(ballast(cluster, node)).context("remove a ballast")
}
