//! The log of a process, on stderr: its form and its level, which a signal changes while the process runs.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::io::IsTerminal as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

/// The default level. Events of nodes, disks and repairs are always logged.
const DEFAULT: &str = "warn,cluster=info";
/// The level from the signal on, until the next signal.
const DETAILED: &str = "debug";

/// Options of a server's log.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LogOptions {
    /// Form of the log
    #[arg(long, value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    /// Level of the log, such as info, or levels of its parts, such as warn,cluster=info; SIGUSR1 switches to debug and
    /// back [default: the level in the environment, or warn,cluster=info]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub(crate) log_level: Option<String>,
    /// Threshold in milliseconds: longer operations are logged, with the reason if it is known; 0 logs none
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    pub(crate) slow_ms: u64,
}

/// The form of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// A level of the log, or levels of its parts. A single word must be a level, because the filter takes any other word
/// for the name of a part.
fn level(text: &str) -> Result<String, String> {
    let is_level = |part: &str| {
        let level = part.rsplit('=').next().unwrap_or(part);
        !level.is_empty() && level.parse::<LevelFilter>().is_ok()
    };
    if text.split(',').all(is_level) && EnvFilter::builder().parse(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err(
        "write error, warn, info, debug or trace, or levels of parts such as warn,cluster=info"
            .to_owned(),
    )
}

/// The running log of a process.
pub(crate) struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    first: String,
}

impl Log {
    /// Starts the log. A file gets no colours.
    pub(crate) fn start(options: &LogOptions) -> Self {
        let in_environment = std::env::var("GABION_LOG").ok();
        let (in_environment, error) = match in_environment.as_deref().map(level).transpose() {
            Ok(level) => (level, None),
            Err(error) => (None, Some(error)),
        };
        let wanted = options.log_level.clone().or(in_environment);
        let first = wanted.unwrap_or_else(|| DEFAULT.to_owned());
        let (filter, handle) = reload::Layer::new(EnvFilter::new(&first));
        let lines = fmt::layer().with_writer(std::io::stderr);
        let lines = match options.log_format {
            LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .init();
        if let Some(error) = error {
            tracing::warn!("GABION_LOG is ignored: {error}");
        }
        Self {
            filter: handle,
            first,
        }
    }

    /// Switches between the first level and a detailed one at each SIGUSR1, until the process ends.
    ///
    /// # Errors
    /// If the system does not deliver the signal.
    pub(crate) fn follow_signal(self) -> Result<(), Failure> {
        let failed = |error| Failure::failed(format!("cannot wait for SIGUSR1: {error}"));
        let mut signals = signal(SignalKind::user_defined1()).map_err(failed)?;
        tokio::spawn(async move {
            let mut is_detailed = false;
            while signals.recv().await.is_some() {
                is_detailed = !is_detailed;
                let level = if is_detailed { DETAILED } else { &self.first };
                // The log ends with the process only.
                if self.filter.reload(EnvFilter::new(level)).is_ok() {
                    tracing::warn!(level, "the level of the log has changed");
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_checked() {
        for right in ["info", "warn,cluster=info", "gabion_wire=trace"] {
            assert!(level(right).is_ok(), "{right}");
        }
        for wrong in ["", ",", "cluster=", "loud", "warn,cluster=loud"] {
            assert!(level(wrong).is_err(), "{wrong}");
        }
    }
}
