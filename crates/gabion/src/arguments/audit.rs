//! The command line of `gabion audit`.

use super::events::since;
use clap::Args;
use jiff::Timestamp;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct AuditOptions {
    /// Data directory of a coordinator on this machine [default: all coordinators of the cluster in --dir]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Show only orders since then: a time such as 2026-01-31T08:00:00Z, or an age such as 90s, 15m, 6h or 2d
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Timestamp>,
    /// Number of newest orders to show [default: 100, or all with --since]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) last: Option<u64>,
    /// Check that no record was changed, added or removed, and print the last seal instead of the orders; exit code 1
    /// if the check fails
    #[arg(long, conflicts_with_all = ["since", "last"])]
    pub(crate) check: bool,
    /// With --check: the last seal of an earlier check; exit code 1 if no record has it, because records were removed
    /// since or the log is another one
    #[arg(long, value_name = "SEAL", requires = "check", value_parser = seal)]
    pub(crate) seal: Option<String>,
}

fn seal(text: &str) -> Result<String, String> {
    let is_seal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let wrong = || "a seal has 32 hexadecimal digits; 'gabion audit --check' prints it".to_owned();
    is_seal.then(|| text.to_ascii_lowercase()).ok_or_else(wrong)
}
