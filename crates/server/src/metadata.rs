//! The place of a coordinator's metadata: a file of its directory, or a database. The code above does not
//! distinguish them.

use crate::error::{ServerError, io_error};
use gabion_flash::CacheFault;
use gabion_meta::{
    ClusterId, KeyValue, LogError, Meta, MetaError, ReadTxn, RedbStore, WriteTxn, is_log_file,
};
use gabion_sql::{DatabaseAddress, Leadership, PostgresStore, StoreOptions};
use gabion_wire::system_wall_clock;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The name of the file in a coordinator's directory.
const FILE: &str = "metadata.redb";
/// Interval of checking whether a metadata log is due for a new base.
const RENEW_EVERY: Duration = Duration::from_secs(30);

/// Bytes of a metadata log's disk that a new base leaves free.
const LOG_ROOM_BYTES: u64 = 64 << 20;

/// The place of a cluster's metadata.
#[derive(Clone, Debug)]
pub enum MetadataPlace {
    /// A redb file.
    File {
        /// Its path.
        path: PathBuf,
        /// The directory of its metadata log, if it has one.
        log: Option<PathBuf>,
    },
    /// A database.
    Database(DatabaseAddress),
}

impl MetadataPlace {
    /// The file in a coordinator's directory.
    pub fn in_directory(directory: &Path) -> Self {
        Self::file(directory.join(FILE))
    }

    /// A file without a log.
    pub const fn file(path: PathBuf) -> Self {
        Self::File { path, log: None }
    }

    /// Opens a store in which a cluster is, or is to be. Blocks; `options` are for a database.
    ///
    /// # Errors
    /// If the store does not exist, is in use, or cannot be used.
    pub fn open(&self, options: &StoreOptions) -> Result<MetadataStore, ServerError> {
        Ok(match self {
            Self::File { path, log } => {
                forget_cached(path)?;
                if let Some(log) = log {
                    forget_log(log)?;
                }
                logged(RedbStore::open(path)?, log.as_deref())?
            }
            Self::Database(address) => {
                MetadataStore::Database(PostgresStore::open(address.clone(), options)?)
            }
        })
    }

    /// Opens a store, and makes the file if there is none. Blocks.
    ///
    /// # Errors
    /// As [`MetadataPlace::open`].
    pub fn open_or_create(&self, options: &StoreOptions) -> Result<MetadataStore, ServerError> {
        match self {
            Self::File { path, log } => {
                if path.try_exists().map_err(io_error("look for", path))? {
                    return self.open(options);
                }
                // Another process may have made it just now.
                let store = RedbStore::create(path)?;
                let is_blank = store.is_blank();
                let made = logged(store, log.as_deref());
                if made.is_err() && is_blank {
                    // The first error is the one to tell.
                    let _ = std::fs::remove_file(path);
                }
                made
            }
            Self::Database(_) => self.open(options),
        }
    }

    /// Opens the cluster for a process that changes nothing. A database is refused, because opening it takes the
    /// leadership from another process. Blocks.
    pub(crate) fn open_to_read(&self) -> Result<Meta<MetadataStore>, ServerError> {
        let Self::File { path, .. } = self else {
            return Err(ServerError::RecoversNoDatabase);
        };
        forget_cached(path)?;
        let store = logged(RedbStore::open(path)?, None)?;
        Ok(Meta::open_to_read(store, system_wall_clock())?)
    }

    /// Opens the cluster, or makes a new one if there is none and `new_cluster` is given. Blocks.
    pub(crate) fn open_cluster(
        &self,
        options: &StoreOptions,
        new_cluster: Option<ClusterId>,
    ) -> Result<Meta<MetadataStore>, ServerError> {
        let missing = || match self {
            Self::File { path, .. } => ServerError::NoMetadata { path: path.clone() },
            Self::Database(address) => ServerError::NoCluster {
                address: address.to_string(),
            },
        };
        if let Self::File { path, .. } = self
            && new_cluster.is_none()
            && !path.exists()
        {
            return Err(missing());
        }
        // The disk of the log may not be mounted. A log that is made then would be on the wrong disk.
        if let Self::File { log: Some(log), .. } = self
            && new_cluster.is_none()
            && !log.is_dir()
        {
            return Err(MetaError::Log(LogError::Gone(log.clone())).into());
        }
        let open = || match new_cluster {
            Some(_) => self.open_or_create(options),
            None => self.open(options),
        };
        match Meta::open(open()?, system_wall_clock()) {
            // A new file or database; or the process ended between making it and making the cluster in it.
            Err(MetaError::NoCluster) => {
                let cluster = new_cluster.ok_or_else(missing)?;
                Ok(Meta::create(open()?, cluster, system_wall_clock())?)
            }
            opened => Ok(opened?),
        }
    }
}

/// The store of a file, with its log if it has one.
fn logged(store: RedbStore, log: Option<&Path>) -> Result<MetadataStore, ServerError> {
    let store = match log {
        Some(log) => store.with_log(log)?,
        None => store,
    };
    Ok(MetadataStore::File(Arc::new(store)))
}

/// Writes a new base of a metadata log whenever one is due, until the store is dropped elsewhere.
pub(crate) async fn keep_log_short(store: Weak<RedbStore>) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        let renewed = tokio::task::spawn_blocking(move || renew_log(&store)).await;
        match renewed.expect("a base of the metadata log does not panic") {
            Ok(true) => tracing::info!("the metadata log has a new base"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the metadata log continues without a new base"),
        }
    }
}

/// Writes a new base of a metadata log if one is due and its disk has room for it: a change that finds no room stops
/// the coordinator.
fn renew_log(store: &RedbStore) -> Result<bool, ServerError> {
    if let Some(directory) = store.due_log() {
        // A base has the rows of the last one, and those of the changes since.
        let mut needed_bytes = LOG_ROOM_BYTES;
        for entry in std::fs::read_dir(&directory).map_err(io_error("list", &directory))? {
            let length = entry.and_then(|entry| entry.metadata());
            needed_bytes += length.map_err(io_error("list", &directory))?.len();
        }
        let space = rustix::fs::statvfs(&directory).map_err(std::io::Error::from);
        let space = space.map_err(io_error("find the free space of", &directory))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        if free_bytes < needed_bytes {
            return Err(ServerError::LogDiskFull {
                directory,
                free_bytes,
                needed_bytes,
            });
        }
    }
    Ok(store.renew_log()?)
}

/// Makes the log be read from its device: after a failed sync the page cache may hold what the device never got.
///
/// # Errors
/// When a file cannot be opened or locked.
pub fn forget_log(directory: &Path) -> Result<(), ServerError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io_error("list", directory))?,
    };
    for entry in entries {
        let entry = entry.map_err(io_error("list", directory))?;
        // The directory may be another one by mistake.
        if entry.file_name().to_str().is_some_and(is_log_file) {
            forget_cached(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes the engine read its file from the device. After a failed sync the page cache may hold pages that the device
/// never got; the engine verifies the checksums of all pages that it uses, and goes back to the commit before.
fn forget_cached(path: &Path) -> Result<(), ServerError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(io_error("open", path))?,
    };
    match file.try_lock() {
        // The engine refuses a file that another process has open.
        Err(TryLockError::WouldBlock) => return Ok(()),
        locked => locked
            .map_err(std::io::Error::from)
            .map_err(io_error("lock", path))?,
    }
    let length = file.metadata().map(|metadata| metadata.len());
    let length = length.map_err(io_error("measure", path))?;
    match gabion_flash::drop_cached(&file, length) {
        Err(error) if CacheFault::is_in(&error) => Err(io_error("read", path)(error)),
        // A page that cannot be read may be unused. The engine refuses the file if it is not.
        _ => Ok(()),
    }
}

/// A store of one of the engines.
#[derive(Debug)]
pub enum MetadataStore {
    /// A redb file.
    File(Arc<RedbStore>),
    /// A database.
    Database(PostgresStore),
}

impl MetadataStore {
    /// The store of a file.
    pub(crate) fn file(&self) -> Option<Arc<RedbStore>> {
        match self {
            Self::File(store) => Some(Arc::clone(store)),
            Self::Database(_) => None,
        }
    }

    /// The leadership of a database, to be ended before the process ends; none for a file.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        match self {
            Self::File(_) => None,
            Self::Database(store) => Some(store.leadership()),
        }
    }
}

impl KeyValue for MetadataStore {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        match self {
            Self::File(store) => store.read(body),
            Self::Database(store) => store.read(body),
        }
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        match self {
            Self::File(store) => store.write(body),
            Self::Database(store) => store.write(body),
        }
    }

    fn leads(&self) -> Result<(), MetaError> {
        match self {
            Self::File(store) => store.leads(),
            Self::Database(store) => store.leads(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_opens_no_database() {
        let address = DatabaseAddress::parse("postgres://gabion@127.0.0.1:1/gabion");
        let place = MetadataPlace::Database(address.expect("an address"));
        let refused = place.open_to_read().map(|meta| meta.cluster());
        assert!(
            matches!(refused, Err(ServerError::RecoversNoDatabase)),
            "{refused:?}"
        );
    }

    #[test]
    fn metadata_are_made_only_for_a_new_cluster() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = root.path().join(FILE);
        let open = |new_cluster| {
            let place = MetadataPlace::in_directory(root.path());
            let options = StoreOptions::of("a test".to_owned());
            let opened = place.open_cluster(&options, new_cluster);
            opened.map(|meta| meta.cluster())
        };
        // The directory of a disk that is not mounted is there, and empty.
        let refused = open(None);
        assert!(
            matches!(refused, Err(ServerError::NoMetadata { .. })),
            "{refused:?}"
        );
        assert!(!path.exists(), "nothing was made");
        let cluster = ClusterId(7);
        assert_eq!(open(Some(cluster)).expect("a new cluster"), cluster);
        assert_eq!(open(None).expect("the cluster"), cluster);
    }

    #[test]
    fn a_log_is_made_only_where_its_disk_is_mounted() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let open = |log: &str, new_cluster| {
            let place = MetadataPlace::File {
                path: root.path().join(FILE),
                log: Some(root.path().join(log)),
            };
            let options = StoreOptions::of("a test".to_owned());
            let opened = place.open_cluster(&options, new_cluster);
            opened.map(|meta| meta.cluster())
        };
        let is_empty =
            || std::fs::read_dir(root.path()).is_ok_and(|mut found| found.next().is_none());
        // Nothing is left behind of a new cluster whose log cannot be made.
        let cluster = ClusterId(7);
        open("no/such/log", Some(cluster)).expect_err("no directory is above the log");
        assert!(is_empty());
        assert_eq!(open("log", Some(cluster)).expect("a new cluster"), cluster);
        // A cluster that is there gets a log only in a directory that is there.
        let refused = open("other", None);
        assert!(
            matches!(
                &refused,
                Err(ServerError::Meta(MetaError::Log(LogError::Gone(_))))
            ),
            "{refused:?}"
        );
        assert!(!root.path().join("other").exists());
        std::fs::create_dir(root.path().join("other")).expect("mount a disk");
        assert_eq!(open("other", None).expect("a new base"), cluster);
    }
}
