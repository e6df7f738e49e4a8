//! Arguments for the storage engine of nodes.

use crate::output::parse_bytes;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The storage engine of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum EngineName {
    /// Files of a directory
    #[default]
    Files,
    /// An array of SSDs that is written in whole stripes only
    Tween,
}

impl From<EngineName> for gabion_testbed::Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Files => Self::Files,
            EngineName::Tween => Self::Tween,
        }
    }
}

/// The engine of a node, and the parameters of an array.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineOptions {
    /// Storage engine of the node
    #[arg(long, value_enum, default_value_t)]
    pub(crate) engine: EngineName,
    /// Devices of the array, in order: raw block devices, or files. A missing device counts as
    /// failed. A blank replacement is rebuilt
    #[arg(long, value_delimiter = ',', value_name = "PATH,...")]
    pub(crate) devices: Vec<PathBuf>,
    /// Number of devices that may fail
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) parity_devices: u8,
    /// Non-volatile memory of the array, a file [default: DIR/nvram]. Place it on memory that keeps
    /// its bytes (a DAX file system) or on the fastest disk: every write waits for it
    #[arg(long, value_name = "FILE")]
    pub(crate) nvram: Option<PathBuf>,
    /// Data bytes of a stripe, for a new array
    #[arg(long, default_value = "8MiB", value_name = "SIZE", value_parser = parse_stripe)]
    pub(crate) stripe: u64,
    /// Size of a device whose file does not exist, for a new array
    #[arg(long, default_value = "16GiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) device_size: u64,
}

fn parse_stripe(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (64 << 10..=1 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("a stripe has 64KiB to 1GiB, not {text}"))
    }
}
