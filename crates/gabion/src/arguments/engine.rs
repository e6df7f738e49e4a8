//! Arguments that say what nodes keep their stores on.

use crate::output::parse_bytes;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a node keeps its store on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineName {
    /// Files of a directory
    #[default]
    Files,
    /// An array of SSDs that is written in whole stripes only
    Tween,
}

/// The engine of a node, and what an array is made of.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineOptions {
    /// What the node keeps its store on
    #[arg(long, value_enum, default_value_t)]
    pub(crate) engine: EngineName,
    /// The array's devices, in their order: raw block devices, or files. What goes from its path is done
    /// without, and something blank that comes there is taken in
    #[arg(long, value_delimiter = ',', value_name = "PATH,...")]
    pub(crate) devices: Vec<PathBuf>,
    /// How many devices may be lost
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) parity_devices: u8,
    /// The file that is the array's non-volatile memory, DIR/nvram when absent. It belongs on memory that
    /// keeps its bytes (a DAX file system) or on the fastest disk: every write waits for it
    #[arg(long, value_name = "FILE")]
    pub(crate) nvram: Option<PathBuf>,
    /// Bytes of data of a stripe, for a new array
    #[arg(long, default_value = "8MiB", value_name = "SIZE", value_parser = parse_stripe)]
    pub(crate) stripe: u64,
    /// Bytes of a device whose file does not exist, for a new array
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
