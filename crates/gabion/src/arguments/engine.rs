//! Arguments for the storage engine of nodes.

use clap::{Args, ValueEnum};
use gabion_layout::parse_bytes;
use gabion_server::{ArrayConfig, Engine};
use std::path::{Path, PathBuf};

/// The storage engine of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum EngineName {
    /// Files of a directory
    #[default]
    Files,
    /// An array of SSDs, written only in whole stripes
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

/// The engine of a node and the parameters of an array.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineOptions {
    /// Storage engine of the node
    #[arg(long, value_enum, default_value_t)]
    pub(crate) engine: EngineName,
    /// Devices of the array, in order: raw block devices, or files. A missing device counts as
    /// failed. A blank replacement is rebuilt
    #[arg(long, value_delimiter = ',', value_name = "PATH,...")]
    pub(crate) devices: Vec<PathBuf>,
    /// Number of devices that may fail [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) parity_devices: Option<u8>,
    /// Non-volatile memory of the array, a file [default: DIR/nvram]. Place it on memory that keeps
    /// its bytes (a DAX file system) or on the fastest disk: every write waits for it
    #[arg(long, value_name = "FILE")]
    pub(crate) nvram: Option<PathBuf>,
    /// Data bytes of a stripe, for a new array [default: 8MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_stripe)]
    pub(crate) stripe: Option<u64>,
    /// Size of a device whose file does not exist, for a new array [default: 16GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) device_size: Option<u64>,
}

/// Data bytes of a stripe of a new array.
const STRIPE_BYTES: u64 = 8 << 20;
/// Size of a new device.
const DEVICE_BYTES: u64 = 16 << 30;

impl EngineOptions {
    /// The engine of a node with its files in this directory.
    ///
    /// # Errors
    /// One plain sentence.
    pub(crate) fn engine(self, data: &Path) -> Result<Engine, String> {
        let of_array = [
            (!self.devices.is_empty(), "--devices"),
            (self.parity_devices.is_some(), "--parity-devices"),
            (self.nvram.is_some(), "--nvram"),
            (self.stripe.is_some(), "--stripe"),
            (self.device_size.is_some(), "--device-size"),
        ];
        if self.engine == EngineName::Files {
            let stray = of_array.into_iter().find(|(is_given, _)| *is_given);
            return match stray {
                None => Ok(Engine::Files),
                Some((_, name)) => Err(format!(
                    "{name} is an option of an array; add '--engine tween' for one, or omit it"
                )),
            };
        }
        let parity_devices = usize::from(self.parity_devices.unwrap_or(1));
        if self.devices.len() <= parity_devices {
            return Err(format!(
                "an array that survives the loss of {parity_devices} has at least {} devices, not {}; \
                 name them with --devices",
                parity_devices + 1,
                self.devices.len()
            ));
        }
        Ok(Engine::Tween(ArrayConfig {
            devices: self.devices,
            parity_devices,
            nvram: self.nvram.unwrap_or_else(|| data.join("nvram")),
            stripe_bytes: self.stripe.unwrap_or(STRIPE_BYTES),
            device_bytes: self.device_size.unwrap_or(DEVICE_BYTES),
        }))
    }
}

fn parse_stripe(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (64 << 10..=1 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("a stripe has 64KiB to 1GiB, not {text}"))
    }
}
