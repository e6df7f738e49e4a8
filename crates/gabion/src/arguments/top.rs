//! The command line of `gabion top`.

use clap::Args;

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct TopOptions {
    /// Print the view once as plain text, for a pipe or a log
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between two refreshes, and the period of the measured rates
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) interval: u64,
}
