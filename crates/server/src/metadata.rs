//! The place of a coordinator's metadata: a file of its directory, or a database. The code above does not
//! distinguish them.

use crate::error::{ServerError, io_error};
use gabion_flash::CacheFault;
use gabion_meta::{ClusterId, KeyValue, Meta, MetaError, ReadTxn, RedbStore, WriteTxn};
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
            Self::File { path, .. } if path.exists() => self.open(options),
            Self::File { path, log } => logged(RedbStore::create(path)?, log.as_deref()),
            Self::Database(_) => self.open(options),
        }
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
        let renewed = tokio::task::spawn_blocking(move || store.renew_log()).await;
        match renewed.expect("a base of the metadata log does not panic") {
            Ok(true) => tracing::info!("the metadata log has a new base"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the metadata log goes on without a new base"),
        }
    }
}

/// Makes the log be read from its device, as `forget_cached` does for a store.
fn forget_log(directory: &Path) -> Result<(), ServerError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io_error("list", directory))?,
    };
    for entry in entries {
        let entry = entry.map_err(io_error("list", directory))?;
        if entry.path().is_file() {
            forget_cached(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes the engine read its file from the device. After a failed sync the page cache may hold pages that the device
/// never got; the engine verifies the checksums of all pages that it uses, and goes back to the commit before.
fn forget_cached(path: &Path) -> Result<(), ServerError> {
    let file = match File::options().read(true).write(true).open(path) {
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
}
