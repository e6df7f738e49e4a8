//! Random numbers of the system.

use crate::error::Fault;
use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of the system's generator.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    // Calls for less than 256 bytes are not interrupted.
    match filled {
        Ok(count) if count == N => Ok(bytes),
        Ok(_) => Err(Fault::Lost("the system gave no randomness".to_owned())),
        Err(error) => Err(Fault::Lost(error.to_string())),
    }
}
