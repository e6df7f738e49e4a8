//! Options of `gabion bench`.

use super::checks;
use clap::{Args, ValueEnum};
use gabion_testbed::bench::Order;
use gabion_testbed::replay::Access;
use std::num::NonZeroU64;
use std::path::PathBuf;

/// The bench's requests, with the names of fio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Requests {
    /// Overwrites of random blocks
    Randwrite,
    /// Reads of random blocks
    Randread,
    /// Overwrites of one block after another
    Write,
    /// Reads of one block after another
    Read,
}

impl Requests {
    /// Direction and order of the requests.
    pub(crate) const fn parts(self) -> (Access, Order) {
        match self {
            Self::Randwrite => (Access::Write, Order::Random),
            Self::Randread => (Access::Read, Order::Random),
            Self::Write => (Access::Write, Order::Sequential),
            Self::Read => (Access::Read, Order::Sequential),
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    /// Pool to measure; repeat the option to compare pools, for example an erasure-coded and a replicated one [default:
    /// the only pool]
    #[arg(long = "pool", value_name = "POOL")]
    pub(crate) pools: Vec<String>,
    /// Size of the file that the bench stores in each pool and removes at the end
    #[arg(long, default_value = "256MiB", value_parser = checks::some_bytes)]
    pub(crate) size: NonZeroU64,
    /// Requests to measure, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "randwrite,randread,write,read"
    )]
    pub(crate) workload: Vec<Requests>,
    /// Sizes of random requests, separated by commas; sequential requests have 1 MiB
    #[arg(long, value_delimiter = ',', default_value = "4KiB,128KiB", value_parser = checks::some_bytes)]
    pub(crate) block: Vec<NonZeroU64>,
    /// Numbers of random requests in flight, separated by commas; 16 sequential requests are in flight
    #[arg(long, value_delimiter = ',', default_value = "1,16,64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: Vec<u32>,
    /// Duration of each measurement in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Number of rounds; each round measures every pool in turn, and the report adds up the rounds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Kill this node after the first measurements, measure without it and during its repair, then restart it; only in
    /// a cluster on this machine
    #[arg(long, value_name = "NODE")]
    pub(crate) kill_node: Option<u32>,
    /// Seed of the offsets of random requests
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Draw the rates into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}
