//! Rates of links as users write them: `10Gbit`, `400Mbit`, `50MB`.

/// The error of a text that is no rate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RateError {
    /// It has no number, or an unknown unit after it.
    #[error(
        "`{0}` is not a rate: write a number and a unit a second, such as 10Gbit, 400Mbit or \
         50MB, or `unlimited`"
    )]
    NotARate(String),
    /// `b` alone may mean bits or bytes.
    #[error("`{0}` is ambiguous: write `Mbit` for bits or `MB` for bytes")]
    Ambiguous(String),
    /// Too small or too large for a link.
    #[error("`{0}` is out of range: a rate lies between 1kB and 1000GB a second")]
    OutOfRange(String),
}

/// Bytes a second of a rate such as `10Gbit`, `1.5MB` or `400Mbit/s`; 0 for `unlimited`.
///
/// Units are decimal: k, M and G are thousands, `bit` is an eighth of `B`.
///
/// # Errors
/// [`RateError`], in words for the user who typed the rate.
///
/// ```
/// assert_eq!(gabion_wire::parse_rate("10Gbit"), Ok(1_250_000_000));
/// assert_eq!(gabion_wire::parse_rate("1.5 MB/s"), Ok(1_500_000));
/// ```
pub fn parse_rate(text: &str) -> Result<u64, RateError> {
    let trimmed = text.trim();
    if trimmed == "unlimited" {
        return Ok(0);
    }
    let not_a_rate = || RateError::NotARate(text.to_owned());
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(not_a_rate)?;
    let (number, unit) = trimmed.split_at(end);
    let number: f64 = number.parse().map_err(|_| not_a_rate())?;
    let unit = unit.trim_start();
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let (scale, base) = match unit.chars().next() {
        Some('k' | 'K') => (1e3, &unit[1..]),
        Some('m' | 'M') => (1e6, &unit[1..]),
        Some('g' | 'G') => (1e9, &unit[1..]),
        _ => (1.0, unit),
    };
    let bytes_per_s = match base {
        "bit" => number * scale / 8.0,
        "B" => number * scale,
        "b" => return Err(RateError::Ambiguous(text.to_owned())),
        _ => return Err(not_a_rate()),
    };
    if (1e3..=1e12).contains(&bytes_per_s) {
        Ok(bytes_per_s.round() as u64)
    } else {
        Err(RateError::OutOfRange(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<u64, fn(String) -> RateError>) {
        assert_eq!(
            parse_rate(text),
            expected.map_err(|error| error(text.to_owned()))
        );
    }

    #[test]
    fn rates_are_understood() {
        check("10Gbit", Ok(1_250_000_000));
        check("400Mbit", Ok(50_000_000));
        check("1Gbit", Ok(125_000_000));
        check("50MB", Ok(50_000_000));
        check("0.5 Gbit/s", Ok(62_500_000));
        check("8kbit", Ok(1_000));
        check("2000B", Ok(2_000));
        check(" unlimited ", Ok(0));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "",
            "10",
            "Gbit",
            "1..5MB",
            "10Gbits",
            "10 parsecs",
            "-1MB",
            "MB10",
            "1é",
        ] {
            check(text, Err(RateError::NotARate));
        }
        check("10Mb", Err(RateError::Ambiguous));
        for text in ["0Gbit", "1bit", "2000GB", "99999999999999999999999999GB"] {
            check(text, Err(RateError::OutOfRange));
        }
    }
}
