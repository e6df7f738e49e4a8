//! The command line of `gabion events`.

use clap::Args;
use jiff::Timestamp;

#[derive(Args, Debug)]
pub(crate) struct EventsOptions {
    /// Print new events as they happen, until Ctrl-C; with --format json one object per line
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show only events since then: a time such as 2026-01-31T08:00:00Z, or an age such as 90s, 15m, 6h or 2d
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Timestamp>,
    /// Number of newest events to show [default: 100, or all with --since]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) last: Option<u64>,
    /// Omit the start and the end of each stripe's repair
    #[arg(long)]
    pub(crate) no_repairs: bool,
}

/// A time, or an age as the time that long ago.
pub(super) fn since(text: &str) -> Result<Timestamp, String> {
    since_at(text, Timestamp::now())
}

fn since_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || {
        "write a time such as 2026-01-31T08:00:00Z, or an age such as 90s, 15m, 6h or 2d".to_owned()
    };
    let unit_s = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return text.parse().map_err(|_| wrong()),
    };
    let count: i64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let age_s = count.checked_mul(unit_s).filter(|age_s| *age_s >= 0);
    let second = age_s.and_then(|age_s| now.as_second().checked_sub(age_s));
    let second = second.ok_or_else(wrong)?;
    Timestamp::from_second(second).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_times_are_understood() {
        let now: Timestamp = "2026-01-31T08:00:00Z".parse().unwrap();
        let check = |text: &str, expected: &str| {
            let found = since_at(text, now).map(|found| found.to_string());
            assert_eq!(found.as_deref(), Ok(expected), "{text}");
        };
        check("90s", "2026-01-31T07:58:30Z");
        check("2d", "2026-01-29T08:00:00Z");
        check("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        for wrong in ["", "h", "-3h", "yesterday", "99999999999999999d"] {
            assert!(since_at(wrong, now).is_err(), "{wrong}");
        }
    }
}
