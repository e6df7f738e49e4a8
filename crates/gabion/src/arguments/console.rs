//! The arguments of `gabion console`.

use super::checks;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct ConsoleArguments {
    /// Loopback address to listen on; port 0 takes a free port. Other machines reach the console through a tunnel or a
    /// TLS proxy
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) listen: String,
    /// Host name by which browsers reach the console through a TLS proxy; may be repeated
    #[arg(long = "host", value_name = "NAME", value_parser = checks::host_name)]
    pub(crate) hosts: Vec<String>,
    /// File for the valid one-time password, readable by its owner only [default: print it]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}
