//! Randomness of the system, for keys and ids.

use std::fs::File;
use std::io::Read as _;

/// Bytes that no peer can guess.
///
/// # Errors
/// When the system gives no randomness.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], std::io::Error> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
