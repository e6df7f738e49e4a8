//! Sizes as people write them.

use thiserror::Error;

/// A text that is no size.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "'{0}' is not a size; write a number of bytes, or a number with a unit from KiB to TiB, such as 4096, 4KiB or 1MiB"
)]
pub struct SizeError(String);

impl From<SizeError> for String {
    /// The sentence, for parsers of arguments whose errors are text.
    fn from(error: SizeError) -> Self {
        error.to_string()
    }
}

/// Reads a number of bytes with or without a unit: `4KiB`, `1MiB`, `512`, `64M`. Units are powers of 1,024.
///
/// # Errors
/// [`SizeError`] if the text is another one, or the number has more than 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    let wrong = || SizeError(text.to_owned());
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let value: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    value.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_bytes("4KiB"), Ok(4096));
        assert_eq!(parse_bytes("1 MiB"), Ok(1 << 20));
        assert_eq!(parse_bytes("17"), Ok(17));
        for text in ["", "MiB", "1.5MiB", "-1", "1XB", "99999999999999T"] {
            let error = parse_bytes(text).expect_err(text).to_string();
            assert!(error.contains("such as"), "{error}");
        }
    }
}
