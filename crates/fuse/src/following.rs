//! Follows the changes of other clients, and makes the kernel forget the names and attributes that it keeps of them.
//!
//! This only shortens the time in which the kernel goes by old ones: by itself it forgets them after `attr_timeout`,
//! also while the coordinator does not answer. No request waits for it.
//!
//! The kernel forgets a name under the lock of its directory, which it holds during requests in the directory. So each
//! directory has a thread of its own, and no task that serves a request forgets a name.

use crate::gateway::Gateway;
use fuser::INodeNo;
use gabion_client::OthersChanges;
use gabion_meta::{Changed, DirectoryId, Inode};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Pause after a question that was not answered.
const PAUSE: Duration = Duration::from_secs(1);
/// Threads in which the kernel forgets names, of the 512 that the run-time has.
const THREAD_COUNT: usize = 16;

impl Gateway {
    /// Follows the changes of other clients as long as the process runs.
    pub(crate) async fn follow(self: Arc<Self>) {
        let threads = Arc::new(Semaphore::new(THREAD_COUNT));
        let mut follower = self.client.follow();
        loop {
            match follower.next().await {
                Ok(OthersChanges::These(changes)) => self.forget(changes, &threads).await,
                // The kernel keeps nothing for longer than `attr_timeout`.
                Ok(OthersChanges::Any) => {}
                Err(error) => {
                    tracing::debug!(%error, "changes of other clients are not known");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Makes the kernel forget names and attributes.
    async fn forget(&self, changes: Vec<Changed>, threads: &Arc<Semaphore>) {
        let mut names: BTreeMap<DirectoryId, Vec<String>> = BTreeMap::new();
        for changed in changes {
            match changed {
                Changed::Inode(inode) => self.forget_inode(inode),
                Changed::Name { directory, name } => names.entry(directory).or_default().push(name),
            }
        }
        for (directory, names) in names {
            let directory = self.numbers.number(Inode::Directory(directory));
            let place = Arc::clone(threads).acquire_owned().await;
            let place = place.expect("it is never closed");
            self.forget_names(directory, names, place);
        }
    }

    /// If the time of a file has changed, the kernel then drops its pages too.
    fn forget_inode(&self, inode: Inode) {
        if let Inode::File(put) = inode
            && let Some(open) = self.open_files.find(put)
        {
            open.forget_checked();
        }
        self.forget_attributes(inode);
    }

    /// Waits for requests in the directory, in a thread of its own which has a `place`.
    fn forget_names(&self, directory: INodeNo, names: Vec<String>, place: impl Send + 'static) {
        let Some(notifier) = self.notifier.get().cloned() else {
            return;
        };
        spawn_blocking(move || {
            let _place = place;
            for name in names {
                // It fails for a directory that the kernel does not know, of which it has no names.
                let _ = notifier.inval_entry(directory, OsStr::new(&name));
            }
        });
    }
}
