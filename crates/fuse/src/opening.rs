//! Open, create, flush and release.

use crate::attributes::Maker;
use crate::errno::Errno;
use crate::gateway::{Gateway, Stat};
use crate::handles::{Handle, Opened, open_flags};
use crate::open_files::{OpenFile, State};
use crate::times::now;
use fuser::{FileHandle, FopenFlags, INodeNo};
use gabion_client::{ClientError, File, NewFile};
use gabion_meta::{Existing, Inode, Kind, PutId, RelativePath};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::MutexGuard;

impl Gateway {
    /// Opens a file.
    pub(crate) async fn open(&self, number: INodeNo, flags: i32) -> Result<Opened, Errno> {
        let Inode::File(put) = self.numbers.inode(number) else {
            return Err(Errno::IsADirectory);
        };
        let opened = self.open_put(put, flags).await?;
        // A process that opens a file sees what other mounts wrote before they closed it, its size included.
        self.forget_attributes(Inode::File(put));
        Ok(opened)
    }

    async fn open_put(&self, put: PutId, flags: i32) -> Result<Opened, Errno> {
        let shared = self.open_files.entry(put);
        // It counts before it is looked up: other handles that end during the look-up do not close the file. No
        // look-up waits for another one.
        let known = {
            let mut state = shared.state.lock().await;
            state.handle_count += 1;
            state.file.clone()
        };
        let at = Instant::now();
        let found = match known {
            Some(file) => file.refresh_size().await.map(|_| file),
            None => self.open_first(&shared).await,
        };
        let mut state = shared.state.lock().await;
        let writes = flags & open_flags::ACCESS != open_flags::READ_ONLY;
        let found = match found {
            Ok(file) if writes && file.is_read_only() => Err(Errno::ReadOnly),
            found => found.map_err(Errno::from),
        };
        match found {
            Ok(file) => {
                shared.note_checked(at, file.size_bytes());
                Ok(self.handle(&shared, &mut state, (file, flags)))
            }
            Err(error) => {
                // The caller's error is the one to tell.
                let _ = self.end_handle(&shared, state).await;
                Err(error)
            }
        }
    }

    /// Opens a file that has no handles, for a handle that is counted already. If another open is faster, its file is
    /// shared: all handles have to know each other's changes of the size.
    async fn open_first(&self, shared: &OpenFile) -> Result<File, ClientError> {
        let file = self.client.open_held(shared.put).await?;
        let first = shared.state.lock().await.share(&file);
        if !first.shares_state_with(&file) {
            first.refresh_size().await?;
        }
        Ok(first)
    }

    /// The caller has counted the handle.
    fn handle(
        &self,
        shared: &Arc<OpenFile>,
        state: &mut State,
        (file, flags): (File, i32),
    ) -> Opened {
        let appends = flags & open_flags::APPEND != 0;
        let file = state.share(&file);
        let handle = Handle::new(&file, shared, self.client.locks(shared.put), appends);
        Opened {
            handle: self.handles.insert(handle),
            // The kernel's pages would be at offsets that other mounts may have taken.
            flags: if appends {
                FopenFlags::FOPEN_DIRECT_IO
            } else {
                FopenFlags::empty()
            },
        }
    }

    /// Makes and opens a file. Without `O_EXCL`, if a file has the name by now, the kernel is told to look again: it
    /// opens that as any other, with its checks of permissions.
    pub(crate) async fn create(
        &self,
        (parent, at): (INodeNo, RelativePath),
        maker: Maker,
        flags: i32,
    ) -> Result<(Stat, Opened), Errno> {
        let file = match self.make_file((parent, at), maker).await {
            Ok(file) => file,
            Err(Errno::Exists) if flags & open_flags::EXCLUSIVE == 0 => return Err(Errno::Stale),
            Err(error) => return Err(error),
        };
        let put = file.put_id();
        let shared = self.open_files.entry(put);
        let mut state = shared.state.lock().await;
        state.handle_count += 1;
        shared.note_checked(Instant::now(), file.size_bytes());
        let (status, asked) = (file.known_status(), self.ask_now());
        let opened = self.handle(&shared, &mut state, (file, flags));
        drop(state);
        Ok((self.stat(&status, &asked), opened))
    }

    /// Makes an empty file, which is open.
    pub(crate) async fn make_file(
        &self,
        (parent, at): (INodeNo, RelativePath),
        maker: Maker,
    ) -> Result<File, Errno> {
        let above = self.numbers.inode(parent);
        let attributes = self.new_attributes(above, maker, Kind::File).await?;
        let new = NewFile {
            directory: at.directory,
            name: &at.path,
            existing: Existing::Stays,
            pool: Some(&self.pool),
            attributes,
        };
        let made = self.client.create_held(new).await;
        Ok(made?)
    }

    /// Tells the cluster when the file was written last: an update in place changes nothing else there.
    pub(crate) async fn settle_times(&self, shared: &OpenFile) -> Result<(), Errno> {
        let _telling = shared.tell().await;
        let Some(written) = shared.written() else {
            return Ok(());
        };
        let inode = Inode::File(shared.put);
        self.client.note_written(inode, written, now()).await?;
        shared.note_told(written);
        Ok(())
    }

    /// Ends a handle. With the last one the file is closed: the client tells the cluster.
    pub(crate) async fn release(&self, handle: FileHandle) -> Result<(), Errno> {
        let handle = self.handles.remove(handle).ok_or(Errno::BadDescriptor)?;
        let shared = Arc::clone(&handle.shared);
        // A mapping may have written since the last close.
        if let Err(errno) = self.settle_bytes(&handle).await {
            tracing::error!(file = %shared.put, error = errno.name(), "written bytes are lost");
        }
        drop(handle);
        let state = shared.state.lock().await;
        self.end_handle(&shared, state).await
    }

    async fn end_handle(
        &self,
        shared: &Arc<OpenFile>,
        mut state: MutexGuard<'_, State>,
    ) -> Result<(), Errno> {
        state.handle_count = state.handle_count.saturating_sub(1);
        if state.handle_count > 0 {
            return Ok(());
        }
        // Until the time of the last write is told, the file stays open.
        let file = state.file.take();
        drop(state);
        let settled = self.settle_times(shared).await;
        drop(file);
        match settled {
            // Another client has removed the file, and this mount was silent for too long.
            Err(Errno::Stale | Errno::NotFound) => Ok(()),
            settled => settled,
        }
    }

    /// Tells the times of all open files when the mount ends: the kernel drops releases that it has not sent by then.
    pub(crate) async fn settle_all(&self) {
        for shared in self.open_files.all() {
            if let Err(errno) = self.settle_times(&shared).await {
                tracing::warn!(file = %shared.put, error = errno.name(), "a file is not settled");
            }
        }
    }
}
