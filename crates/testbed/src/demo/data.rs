//! The demo's data. It follows from its offset and its last write, so it is computed on demand and takes no memory.
//! Reads are compared with it byte for byte.

use crate::contents::{Contents, INITIAL, Initial, Piece, bytes_of, first_difference};
use futures::io::{AllowStdIo, AsyncRead, AsyncWrite};
use gabion_layout::ByteRange;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The expected contents of the stored file.
pub(super) struct Expected {
    pub(super) size_bytes: u64,
    contents: Contents,
    /// Number of the last write.
    last_write: u64,
}

impl Expected {
    pub(super) fn new(size_bytes: u64) -> Self {
        let mut contents = Contents::default();
        if size_bytes > 0 {
            contents.overwrite(ByteRange::new(0, size_bytes), INITIAL);
        }
        Self {
            size_bytes,
            contents,
            last_write: INITIAL,
        }
    }

    /// The bytes with which the file is stored first.
    pub(super) fn initial(&self) -> impl AsyncRead + Unpin + Send + use<> {
        AllowStdIo::new(Initial::new(self.size_bytes))
    }

    /// Makes new bytes for a range and expects them from then on.
    pub(super) fn overwrite(&mut self, range: ByteRange) -> Vec<u8> {
        self.last_write += 1;
        let write = self.last_write;
        self.contents.overwrite(range, write);
        bytes_of(Piece { range, write })
    }
}

/// Compares a file while it is read, and fails at the first wrong byte.
pub(super) struct Verifier<'a> {
    expected: &'a Expected,
    at: u64,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(expected: &'a Expected) -> Self {
        Self { expected, at: 0 }
    }

    /// Whether every byte was compared.
    pub(super) fn is_complete(&self) -> bool {
        self.at == self.expected.size_bytes
    }
}

impl AsyncWrite for Verifier<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let range = ByteRange::new(self.at, bytes.len() as u64);
        let known = self.expected.contents.known(range);
        let end = self.expected.size_bytes;
        let surplus = (range.end() > end).then_some(end);
        if let Some(at) = first_difference(&known, range.offset, bytes).or(surplus) {
            let message = format!("byte {at} differs from the written byte");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        self.at = range.end();
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
    use futures::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_verifier_finds_wrong_bytes_missing_ones_and_surplus_ones() {
        let mut expected = Expected::new(10_000);
        let mut bytes = Vec::new();
        let mut initial = expected.initial();
        initial.read_to_end(&mut bytes).await.unwrap();
        let new = expected.overwrite(ByteRange::new(5_000, 100));
        assert_ne!(bytes[5_000..5_100], new);
        bytes[5_000..5_100].copy_from_slice(&new);
        let mut verifier = Verifier::new(&expected);
        verifier.write_all(&bytes[..9_999]).await.unwrap();
        assert!(!verifier.is_complete());
        assert!(verifier.write_all(&[bytes[9_999] ^ 1]).await.is_err());
        verifier.write_all(&bytes[9_999..]).await.unwrap();
        assert!(verifier.is_complete());
        assert!(
            verifier.write_all(&[0]).await.is_err(),
            "the file has ended"
        );
    }

    #[test]
    fn a_file_of_any_size_takes_no_memory() {
        let mut expected = Expected::new(u64::MAX >> 1);
        assert_eq!(expected.overwrite(ByteRange::new(1 << 60, 10)).len(), 10);
    }
}
