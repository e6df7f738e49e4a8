//! What a node keeps its store on: a directory, or an array of SSDs. Nothing above asks which it is.

use crate::ServerError;
use crate::array::{Array, ArrayConfig};
use crate::array_watch::ArrayWatch;
use gabion_store::{Disk, RealDisk};
use std::path::Path;
use std::sync::Arc;

/// What a node keeps its store on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Files of a directory.
    Files,
    /// An array of SSDs that is written in whole stripes (TWEEN).
    Tween(ArrayConfig),
}

/// What a store of that engine is opened on.
pub(crate) struct EngineDisk {
    pub(crate) disk: Arc<dyn Disk>,
    /// Bytes that it may hold in all, where that is not the file system's to say.
    pub(crate) capacity_bytes: Option<u64>,
    /// The array's health, where it is one.
    pub(crate) watch: Option<ArrayWatch>,
}

impl Engine {
    /// Whether there is anything of a disk where a node keeps its store. What there is may still hold
    /// no store.
    pub(crate) fn exists(&self, store: &Path) -> bool {
        match self {
            Self::Files => store.exists(),
            Self::Tween(config) => config.nvram.exists(),
        }
    }

    /// Opens what a node keeps its store on, or makes it. Blocks.
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
