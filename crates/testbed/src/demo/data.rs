//! The demo's data: generated from a seed, changed by the same writes as the stored file, and
//! compared byte for byte with reads.

use futures::io::AsyncWrite;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The expected contents of the stored file.
pub(super) struct Expected {
    pub(super) bytes: Vec<u8>,
    random: ChaCha8Rng,
}

impl Expected {
    pub(super) fn new(size: u64, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = vec![0; size as usize];
        random.fill_bytes(&mut bytes);
        Self { bytes, random }
    }

    /// Makes new bytes for a range and expects them from then on.
    pub(super) fn overwrite(&mut self, offset: u64, length: u64) -> Vec<u8> {
        let mut new = vec![0; length as usize];
        self.random.fill_bytes(&mut new);
        let at = offset as usize;
        self.bytes[at..at + new.len()].copy_from_slice(&new);
        new
    }
}

/// Compares a file while it is read, and fails at the first wrong byte.
pub(super) struct Verifier<'a> {
    expected: &'a [u8],
    at: usize,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(expected: &'a [u8]) -> Self {
        Self { expected, at: 0 }
    }

    /// Whether every byte was compared.
    pub(super) fn is_complete(&self) -> bool {
        self.at == self.expected.len()
    }
}

impl AsyncWrite for Verifier<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let expected = self.expected.get(self.at..self.at + bytes.len());
        if expected != Some(bytes) {
            let message = format!("bytes after {} differ from what was written", self.at);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        self.at += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_verifier_finds_one_wrong_byte_and_missing_ones() {
        let mut expected = Expected::new(10_000, 1);
        let new = expected.overwrite(5_000, 100);
        assert_eq!(expected.bytes[5_000..5_100], new);
        let mut verifier = Verifier::new(&expected.bytes);
        verifier.write_all(&expected.bytes[..9_999]).await.unwrap();
        assert!(!verifier.is_complete());
        let wrong = expected.bytes[9_999] ^ 1;
        assert!(verifier.write_all(&[wrong]).await.is_err());
        verifier.write_all(&expected.bytes[9_999..]).await.unwrap();
        assert!(verifier.is_complete());
    }
}
