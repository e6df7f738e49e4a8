//! The kernel's requests: each is translated, run as a task, and answered.
//!
//! Operations that are not here answer `ENOSYS`: the kernel then does without them.

use crate::attributes::{Maker, Requested};
use crate::content::{Destination, Sought};
use crate::directory::Entry;
use crate::errno::Errno;
use crate::extended;
use crate::gateway::NAME_BYTES;
use crate::handles::open_flags;
use crate::lock_request::LockCall;
use crate::locks::UNLOCK;
use crate::served::{GENERATION, Served};
use crate::signals::Waiter;
use crate::space::BLOCK_BYTES;
use crate::times::requested_time;
use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use gabion_layout::ByteRange;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Most bytes of one write or read. The kernel cuts larger ones.
const TRANSFER_BYTES: u32 = 1 << 20;
/// Most requests that the kernel sends ahead of need.
const BACKGROUND_COUNT: u16 = 64;

/// Capabilities that are requested of the kernel, if it has them.
const CAPABILITIES: [InitFlags; 9] = [
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_FLOCK_LOCKS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

fn maker(request: &Request, mode: u32, mask: u32) -> Maker {
    Maker {
        owner: request.uid(),
        group: request.gid(),
        mode: mode & !mask,
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in CAPABILITIES {
            // An older kernel does without it.
            let _ = config.add_capabilities(capability);
        }
        let _ = config.set_max_write(TRANSFER_BYTES);
        let _ = config.set_max_background(BACKGROUND_COUNT);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (gateway, at) = (self.gateway(), self.gateway.entry(parent, name));
        let work = async move { gateway.look_up(at?).await };
        self.start_entry("lookup", work, reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let gateway = self.gateway();
        let work = async move { gateway.stat_number(inode).await };
        self.start_stat("getattr", work, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        group: Option<u32>,
        size_bytes: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let gateway = self.gateway();
        let requested = Requested {
            mode,
            owner,
            group,
            size_bytes,
            accessed: accessed.map(requested_time),
            modified: modified.map(requested_time),
        };
        let work = async move { gateway.change((inode, handle), requested).await };
        self.start_stat("setattr", work, reply);
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let gateway = self.gateway();
        let work = async move { gateway.read_link(inode).await };
        self.requests.start("readlink", 0, work, |done| match done {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        const KIND: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        let (gateway, at) = (self.gateway(), self.gateway.new_entry(parent, name));
        let maker = maker(request, mode, mask);
        let work = async move {
            if !matches!(mode & KIND, 0 | REGULAR) {
                return Err(Errno::NotPermitted);
            }
            let file = gateway.make_file((parent, at?), maker).await?;
            let inode = gabion_meta::Inode::File(file.put_id());
            gateway.stat_inode(inode).await
        };
        self.start_entry("mknod", work, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        reply: ReplyEntry,
    ) {
        let (gateway, at) = (self.gateway(), self.gateway.new_entry(parent, name));
        let maker = maker(request, mode, mask);
        let work = async move { gateway.make_directory((parent, at?), maker).await };
        self.start_entry("mkdir", work, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (gateway, at) = (self.gateway(), self.gateway.entry(parent, name));
        let work = async move { gateway.unlink(at?).await };
        self.start_plain("unlink", work, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (gateway, at) = (self.gateway(), self.gateway.entry(parent, name));
        let work = async move { gateway.remove_directory(at?).await };
        self.start_plain("rmdir", work, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        const ALL: u32 = 0o777;
        let (gateway, at) = (self.gateway(), self.gateway.new_entry(parent, name));
        let (maker, target) = (maker(request, ALL, 0), target.to_owned());
        let work = async move { gateway.make_symlink((parent, at?), &target, maker).await };
        self.start_entry("symlink", work, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let gateway = self.gateway();
        let from = gateway.entry(parent, name);
        let to = gateway.new_entry(new_parent, new_name);
        let work = async move { gateway.rename(from?, to?, flags).await };
        self.start_plain("rename", work, reply);
    }

    fn link(
        &self,
        _: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (gateway, to) = (self.gateway(), self.gateway.new_entry(new_parent, new_name));
        let work = async move { gateway.link(inode, to?).await };
        self.start_entry("link", work, reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let gateway = self.gateway();
        let work = async move { gateway.open(inode, flags.0).await };
        self.requests.start("open", 0, work, |done| match done {
            Ok(opened) => reply.opened(opened.handle, opened.flags),
            Err(errno) => reply.error(errno),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (gateway, at) = (self.gateway(), self.gateway.new_entry(parent, name));
        let (maker, kept) = (maker(request, mode, mask), self.kept());
        let work = async move { gateway.create((parent, at?), maker, flags).await };
        self.requests
            .start("create", 0, work, move |done| match done {
                Ok((stat, opened)) => {
                    reply.created(&kept, &stat, GENERATION, opened.handle, opened.flags);
                }
                Err(errno) => reply.error(errno),
            });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let gateway = self.gateway();
        let work = async move { gateway.read(handle, offset, size).await };
        self.requests
            .start("read", size as usize, work, |done| match done {
                Ok(bytes) => reply.data(&bytes),
                Err(errno) => reply.error(errno),
            });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (gateway, bytes) = (self.gateway(), Bytes::copy_from_slice(data));
        // Pages of a mapping belong at their offset.
        let is_mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let may_append = !is_mapped && flags.0 & open_flags::APPEND != 0;
        let is_synchronous = open_flags::is_synchronous(flags.0);
        let drops_set_id = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let work = async move {
            let open = gateway.handles.get(handle)?;
            if drops_set_id {
                gateway.drop_set_id(open.shared.put).await?;
            }
            let destination = if may_append && open.appends {
                Destination::End
            } else if is_synchronous {
                Destination::Through(offset)
            } else {
                Destination::At(offset)
            };
            gateway.write(handle, bytes, destination).await
        };
        self.requests
            .start("write", data.len(), work, |done| match done {
                Ok(length) => reply.written(length),
                Err(errno) => reply.error(errno),
            });
    }

    fn flush(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.start_settling("flush", (handle, Some(owner.0)), reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.start_settling("fsync", (handle, None), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        flock_owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let gateway = self.gateway();
        let work = async move {
            let flock_owner = flock_owner.map(|owner| owner.0);
            gateway.close_handle_locks(handle, flock_owner).await;
            gateway.release(handle).await
        };
        self.start_plain("release", work, reply);
    }

    fn getlk(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        mode: i32,
        process: u32,
        reply: ReplyLock,
    ) {
        let call = LockCall {
            inode,
            handle,
            owner,
            first,
            last,
            mode,
            process,
        };
        let gateway = self.gateway();
        let work = async move { gateway.find_lock(call).await };
        self.requests.start("getlk", 0, work, |done| match done {
            Ok(found) => reply.locked(found.first, found.last, found.mode, found.process),
            Err(errno) => reply.error(errno),
        });
    }

    fn setlk(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        mode: i32,
        process: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let call = LockCall {
            inode,
            handle,
            owner,
            first,
            last,
            mode,
            process,
        };
        let kind = match self.memory.kind(request, &call) {
            Ok(kind) => kind,
            Err(errno) => return reply.error(errno.number()),
        };
        let gateway = self.gateway();
        let waiter = waits.then(|| Waiter(request.pid()));
        let work = async move { gateway.set_lock(call, kind, waiter).await };
        if mode == UNLOCK {
            // It waits for no other request, and is not refused at the limit of requests for locks.
            self.start_plain("setlk", work, reply);
        } else {
            self.start_locking(if waits { "setlkw" } else { "setlk" }, work, reply);
        }
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let gateway = self.gateway();
        let work = async move { gateway.open_directory(inode).await };
        self.requests.start("opendir", 0, work, |done| match done {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let add = |reply: &mut ReplyDirectory, entry: Entry| {
            let stat = entry.stat;
            !reply.add(stat.ino, entry.offset, stat.kind, entry.name)
        };
        self.start_listing("readdir", (handle, offset), (reply, add));
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let kept = self.kept();
        let add = move |reply: &mut ReplyDirectoryPlus, entry: Entry| {
            let (stat, at) = (entry.stat, entry.offset);
            !reply.add(stat.ino, at, entry.name, &kept, &stat, GENERATION)
        };
        self.start_listing("readdirplus", (handle, offset), (reply, add));
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.gateway.listings.remove(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Changes of names are durable when they return.
        reply.ok();
    }

    fn statfs(&self, _: &Request, inode: INodeNo, reply: ReplyStatfs) {
        let gateway = self.gateway();
        let work = async move { gateway.space(inode).await };
        self.requests.start("statfs", 0, work, |done| match done {
            Ok(space) => reply.statfs(
                space.block_count,
                space.free_block_count,
                space.free_block_count,
                space.inode_limit,
                space.free_inode_count,
                BLOCK_BYTES,
                NAME_BYTES as u32,
                BLOCK_BYTES,
            ),
            Err(errno) => reply.error(errno),
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (gateway, name) = (self.gateway(), extended::writable(name));
        let value = value.to_vec();
        let work = async move { gateway.set_attribute(inode, &name?, (value, flags)).await };
        self.start_plain("setxattr", work, reply);
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = match extended::readable(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno.number()),
        };
        let gateway = self.gateway();
        let work = async move { gateway.attribute(inode, &name).await };
        self.start_attribute("getxattr", work, (size, reply));
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let gateway = self.gateway();
        let work = async move { gateway.attribute_names(inode).await };
        self.start_attribute("listxattr", work, (size, reply));
    }

    fn removexattr(&self, _: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (gateway, name) = (self.gateway(), extended::writable(name));
        let work = async move { gateway.remove_attribute(inode, &name?).await };
        self.start_plain("removexattr", work, reply);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions by itself, and does not ask again.
        reply.error(Errno::NoSuchOperation.number());
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (gateway, range) = (self.gateway(), ByteRange::new(offset, length));
        let waiter = Waiter(request.pid());
        let work = async move { gateway.allocate(handle, range, (mode, waiter)).await };
        self.start_plain("fallocate", work, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let gateway = self.gateway();
        let work = async move {
            let sought = Sought::from_number(whence)?;
            gateway.seek(handle, offset, sought).await
        };
        self.requests.start("lseek", 0, work, |done| match done {
            Ok(found) => reply.offset(found),
            Err(errno) => reply.error(errno),
        });
    }
}
