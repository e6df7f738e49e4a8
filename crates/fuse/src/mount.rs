//! A mounted directory, from its mount to its end.

use crate::gateway::Gateway;
use crate::handles::Handles;
use crate::lock_request::OwnMemory;
use crate::mount_table::{self, Entry, SUBTYPE, UnmountError};
use crate::numbers::Numbers;
use crate::open_files::OpenFiles;
use crate::options::{MountOptions, MountSource};
use crate::pools::Pools;
use crate::requests::Requests;
use crate::served::Served;
use crate::unstored::CacheMemory;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use gabion_client::{Cause, Client, ClientError};
use gabion_gateway::RequestMetrics;
use gabion_meta::{DirectoryId, Inode, PoolRecord, RelativePath};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Threads that read the kernel's requests. Each only starts tasks.
const THREAD_COUNT: usize = 2;
/// Bytes that the kernel reads ahead of a sequential reader, in its unit. Its own choice is 128 KiB, of which each is
/// one round trip.
const READ_AHEAD_KIB: &str = "4096";
/// Maximum wait of the end of a mount for the kernel, and then for requests in flight.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Maximum wait of the end of a mount for bytes that its memory holds.
const STORE_LIMIT: Duration = Duration::from_mins(1);

/// Threads in which the kernel forgets pages, of the 512 that the run-time has.
const FORGETTING_COUNT: usize = 64;
/// Period of further tries to release locks of closed files.
const OWED_EVERY: Duration = Duration::from_secs(5);

/// The source, the directory and the options of a mount.
#[derive(Clone, Debug)]
pub struct MountSettings {
    /// The pool, and the directory in the cluster.
    pub source: MountSource,
    /// The directory of this machine.
    pub directory: PathBuf,
    /// Options.
    pub options: MountOptions,
}

/// Errors of mounting a directory.
#[derive(Debug, Error)]
pub enum MountError {
    /// The arguments do not fit the cluster.
    #[error("{0}")]
    Unfit(String),
    /// The cluster refuses, or does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system refuses.
    #[error("cannot mount {}: {source}", .directory.display())]
    System {
        /// The directory of this machine.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A mounted directory. Dropping it leaves it mounted.
#[derive(Debug)]
pub struct Mount {
    served: Served,
    metrics: Arc<RequestMetrics>,
    entry: Entry,
    /// Ends when the kernel has unmounted.
    session: JoinHandle<io::Result<()>>,
}

impl Mount {
    /// Mounts a directory of the cluster. Requests run on the run-time of the caller.
    ///
    /// # Errors
    /// [`MountError`].
    pub async fn start(client: Client, settings: MountSettings) -> Result<Self, MountError> {
        let MountSettings {
            source,
            directory,
            options,
        } = settings;
        let pools = client.pools().await?;
        check_pool(&source.pool, &pools)?;
        let root = root(&client, &source.path).await?;
        client.begin_session().await?;
        let metrics = Arc::new(RequestMetrics::new("gabion_fuse"));
        let gateway = Gateway {
            client,
            pool: source.pool.clone(),
            numbers: Numbers { root },
            is_read_only: options.is_read_only,
            kept: options.kept,
            open_files: OpenFiles::default(),
            handles: Handles::default(),
            listings: Handles::default(),
            pools: Pools::new(pools),
            notifier: OnceLock::new(),
            forgetting: Arc::new(Semaphore::new(FORGETTING_COUNT)),
            cache: options.cache_bytes.map(CacheMemory::new),
        };
        let memory = OwnMemory::open().map_err(|source| MountError::System {
            directory: directory.clone(),
            source,
        })?;
        let served = Served {
            gateway: Arc::new(gateway),
            requests: Requests::new(Handle::current(), Arc::clone(&metrics)),
            memory: Arc::new(memory),
        };
        let (session, entry) = mounted(&served, &source, (directory, &options)).await?;
        let _ = served.gateway.notifier.set(session.notifier());
        read_ahead(&entry);
        tokio::spawn(Arc::clone(&served.gateway).follow());
        let gateway = Arc::clone(&served.gateway);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(OWED_EVERY).await;
                gateway.client.release_owed_locks().await;
            }
        });
        if served.gateway.cache.is_some() {
            let gateway = Arc::clone(&served.gateway);
            tokio::spawn(async move { gateway.store_old_forever().await });
        }
        Ok(Self {
            served,
            metrics,
            entry,
            // Dropping a session would unmount by a path that may be another file system's by then.
            session: tokio::task::spawn_blocking(|| session.join()),
        })
    }

    /// The counts of its requests.
    pub fn metrics(&self) -> Arc<RequestMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Returns the directory at which it is mounted.
    pub fn directory(&self) -> &Path {
        &self.entry.directory
    }

    /// Serves it until it is unmounted, or `end` is done, which unmounts it: lazily if it is in use.
    ///
    /// # Errors
    /// The error of the connection to the kernel.
    pub async fn serve(mut self, end: impl Future<Output = ()>) -> io::Result<()> {
        let ended = tokio::select! {
            ended = &mut self.session => flatten(ended),
            () = end => {
                self.unmount();
                match timeout(END_LIMIT, &mut self.session).await {
                    Ok(ended) => flatten(ended),
                    // Processes have files open. Their further requests fail when this process ends.
                    Err(_) => Ok(()),
                }
            }
        };
        // Processes that have files open on a lazily unmounted file system could write on, behind the end of their
        // locks.
        let drained = self.served.requests.drain(END_LIMIT).await;
        let stored = self.served.gateway.store_all_files();
        if timeout(STORE_LIMIT, stored).await.is_err() {
            tracing::error!(
                "written bytes that were not synced are lost: the cluster does not answer"
            );
        }
        let settled = self.served.gateway.settle_all();
        if timeout(END_LIMIT, settled).await.is_err() {
            tracing::warn!("times of writes may be lost: the cluster does not answer");
        }
        // A write on its way is fenced out before others get its lock, when the session is not renewed any more.
        if drained.is_some() {
            let _ = timeout(END_LIMIT, self.served.gateway.client.end_session()).await;
        }
        ended
    }

    fn unmount(&self) {
        // It may be unmounted already, or another file system be mounted over it.
        let Some(entry) = mount_table::of_device(&self.entry.device) else {
            return;
        };
        if mount_table::top(&entry.directory).as_ref() != Some(&entry) {
            let directory = entry.directory.display();
            tracing::warn!(%directory, "another file system is mounted over it; unmount the other one first");
            return;
        }
        let unmounted = match mount_table::unmount_entry(&entry, false) {
            Err(UnmountError::Busy(path)) => {
                tracing::warn!(directory = %path.display(), "it is in use and is unmounted lazily");
                mount_table::unmount_entry(&entry, true)
            }
            unmounted => unmounted,
        };
        if let Err(error) = unmounted {
            tracing::warn!("{error}");
        }
    }
}

fn flatten(ended: Result<io::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
    ended.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
}

/// Refuses pools that new files of a file system cannot be in.
fn check_pool(name: &str, pools: &[PoolRecord]) -> Result<(), MountError> {
    let Some(pool) = pools.iter().find(|pool| pool.spec.name == name) else {
        return Err(MountError::Unfit(format!(
            "there is no pool '{name}'; 'gabion pool ls' lists them"
        )));
    };
    if pool.lifecycle.is_some() {
        return Err(MountError::Unfit(format!(
            "files of pool {name} cannot grow, because the pool replicates blocks first; a mount needs a pool without \
            --write"
        )));
    }
    Ok(())
}

/// The directory of a path in the cluster.
async fn root(client: &Client, path: &str) -> Result<DirectoryId, MountError> {
    let found = match client.inode(RelativePath::from(path)).await {
        Ok(status) => status.inode,
        Err(error) if error.cause() == Cause::NotFound => {
            return Err(MountError::Unfit(format!(
                "there is no directory '/{path}' in the cluster; create it with 'gabion mkdir {path}'"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    match found {
        Inode::Directory(directory) => Ok(directory),
        Inode::File(_) => Err(MountError::Unfit(format!(
            "'/{path}' is a file; mount a directory"
        ))),
    }
}

/// Mounts, and answers the kernel's first request during the mount.
async fn mounted(
    served: &Served,
    source: &MountSource,
    (directory, options): (PathBuf, &MountOptions),
) -> Result<(BackgroundSession, Entry), MountError> {
    let of = |source: io::Error| MountError::System {
        directory: directory.clone(),
        source,
    };
    let path = mount_point(&directory).map_err(of)?;
    let config = config(source, options);
    let (filesystem, place) = (served.clone(), path.clone());
    let mounting = tokio::task::spawn_blocking(move || {
        Session::new(filesystem, &place, &config).and_then(Session::spawn)
    });
    let mounted = mounting.await.map_err(io::Error::other);
    let session = mounted.and_then(|session| session).map_err(of)?;
    let entry = mount_table::top(&path);
    let entry = entry.ok_or_else(|| of(io::Error::other("it is not in the table of mounts")))?;
    Ok((session, entry))
}

/// Lets the kernel read further ahead. Only root may; other mounts are slower.
fn read_ahead(entry: &Entry) {
    let setting = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
    if let Err(error) = std::fs::write(&setting, READ_AHEAD_KIB) {
        tracing::debug!(setting, %error, "the kernel reads ahead as it does by default");
    }
}

/// The path of an existing directory.
fn mount_point(directory: &Path) -> io::Result<PathBuf> {
    let explained = |error: io::Error| {
        if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) {
            io::Error::other(
                "the directory still has the mount of a process that has died; 'gabion umount' removes it",
            )
        } else {
            error
        }
    };
    let path = directory.canonicalize().map_err(explained)?;
    // The kernel may know the path of a dead mount, and not its attributes.
    if !path.metadata().map_err(explained)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // Everyone who lists processes would wait for the mount.
    if rustix::fs::statfs(&path)?.f_type == rustix::fs::PROC_SUPER_MAGIC {
        return Err(io::Error::other(
            "the directory shows processes of this machine; choose a directory of a disk",
        ));
    }
    if mount_table::is_mounted(&path) {
        return Err(io::Error::other(
            "the directory already has a mount of gabion; 'gabion umount' removes it",
        ));
    }
    Ok(path)
}

fn config(source: &MountSource, options: &MountOptions) -> Config {
    let mut config = Config::default();
    let name = format!("{}:/{}", source.pool, source.path);
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::CUSTOM(SUBTYPE.to_owned()),
        // The kernel enforces modes and owners.
        MountOption::DefaultPermissions,
        if options.is_read_only {
            MountOption::RO
        } else {
            MountOption::RW
        },
        if options.programs.run {
            MountOption::Exec
        } else {
            MountOption::NoExec
        },
        if options.programs.set_id {
            MountOption::Suid
        } else {
            MountOption::NoSuid
        },
        MountOption::NoDev,
    ];
    if options.allows_others {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(THREAD_COUNT);
    config.clone_fd = true;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_processes_is_no_mount_point() {
        let refused = mount_point(Path::new("/proc/self"))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("shows processes"), "{refused}");
        assert!(mount_point(&std::env::temp_dir()).is_ok());
    }
}
