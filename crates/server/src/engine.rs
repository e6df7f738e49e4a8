//! The storage of a node: a directory, or an array of SSDs. The code above does not distinguish
//! them.

use crate::array::{Array, ArrayConfig};
use crate::array_watch::ArrayWatch;
use crate::error::ServerError;
use gabion_store::{Disk, RealDisk};
use std::path::Path;
use std::sync::Arc;

/// The storage engine of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Files of a directory.
    Files,
    /// An array of SSDs that is written in whole stripes (TWEEN).
    Tween(ArrayConfig),
}

/// The disk for a store with that engine.
pub(crate) struct EngineDisk {
    pub(crate) disk: Arc<dyn Disk>,
    /// Its capacity in bytes, unless the file system determines it.
    pub(crate) capacity_bytes: Option<u64>,
    /// The health of its array, if it has one.
    pub(crate) watch: Option<ArrayWatch>,
}

impl Engine {
    /// Whether any disk exists for a node's store. It may still hold no store.
    pub(crate) fn exists(&self, store: &Path) -> bool {
        match self {
            Self::Files => store.exists(),
            Self::Tween(config) => Array::exists(config),
        }
    }

    /// The name of the other engine, if a node's directory has a store of that engine and none of this one.
    pub(crate) fn other_in(&self, directory: &Path) -> Option<&'static str> {
        let (files, nvram) = (directory.join("store"), directory.join("nvram"));
        match self {
            Self::Files => (!files.exists() && nvram.exists()).then_some("tween"),
            Self::Tween(config) => (!config.nvram.exists() && files.exists()).then_some("files"),
        }
    }

    /// Opens or creates the disk of a node's store. Blocks.
    pub(crate) fn open(&self, store: &Path) -> Result<EngineDisk, ServerError> {
        Ok(match self {
            Self::Files => EngineDisk {
                disk: Arc::new(RealDisk::open(store)?),
                capacity_bytes: None,
                watch: None,
            },
            Self::Tween(config) => {
                let array = Array::open(config)?;
                EngineDisk {
                    capacity_bytes: Some(array.capacity_bytes()),
                    watch: Some(array.watch().clone()),
                    disk: Arc::new(array),
                }
            }
        })
    }
}
