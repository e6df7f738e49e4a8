//! A socket whose two halves are read and written by two tasks while a third one checks its progress.

use gabion_protocol::ports::Passage;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io::{self, IoSlice, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// `TIOCOUTQ` of Linux: bytes that were written to a socket and that its peer's system has not acknowledged.
const UNACKNOWLEDGED: Opcode = 0x5411;

/// A socket.
#[derive(Debug)]
pub(crate) struct Stream {
    tcp: AsyncFd<TcpStream>,
    received_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// One direction of a socket.
pub(crate) struct Half(Arc<Stream>);

impl Stream {
    /// # Errors
    /// When the system cannot watch one more socket.
    #[expect(unsafe_code, reason = "not every descriptor may be watched")]
    pub(crate) fn new(tcp: tokio::net::TcpStream) -> io::Result<Arc<Self>> {
        // SAFETY: the descriptor is the socket's own, and stays the same and open for as long as it lives.
        let tcp = unsafe { AsyncFd::register(tcp.into_std()?) }?;
        Ok(Arc::new(Self {
            tcp,
            received_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }))
    }

    /// The direction to read from and the one to write to.
    pub(crate) fn halves(self: &Arc<Self>) -> (Half, Half) {
        (Half(Arc::clone(self)), Half(Arc::clone(self)))
    }

    /// The peer's address; none if the system does not say.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.tcp.get_ref().peer_addr().ok()
    }

    pub(crate) fn passage(&self) -> Passage {
        // Bytes written after this do not count as acknowledged.
        let written_bytes = self.written_bytes.load(Ordering::Acquire);
        let waiting_bytes = self.unacknowledged_bytes();
        Passage {
            received_bytes: self.received_bytes.load(Ordering::Acquire),
            acknowledged_bytes: written_bytes.saturating_sub(waiting_bytes),
            waiting_bytes,
        }
    }

    /// None when the system does not say.
    #[expect(unsafe_code, reason = "a system call that no safe interface has")]
    fn unacknowledged_bytes(&self) -> u64 {
        // SAFETY: the kernel writes one int, and takes nothing.
        let answer = unsafe {
            let call = Getter::<UNACKNOWLEDGED, i32>::new();
            ioctl(self.tcp.get_ref(), call)
        };
        answer.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
    }
}

/// Moves up to `wanted` bytes as soon as the socket is ready for it, and counts them.
fn poll_count<'a>(
    all: &AtomicU64,
    wanted: usize,
    mut ready: impl FnMut() -> Poll<io::Result<AsyncFdReadyGuard<'a, TcpStream>>>,
    mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut socket = ready!(ready())?;
        match socket.try_io(|tcp| attempt(tcp.get_ref())) {
            // Another task has consumed the readiness.
            Err(_) => {}
            Ok(Err(error)) => return Poll::Ready(Err(error)),
            Ok(Ok(count)) => {
                // The socket is empty and reports when it has more, so another read would return nothing.
                if 0 < count && count < wanted {
                    socket.clear_ready();
                }
                all.fetch_add(count as u64, Ordering::Release);
                return Poll::Ready(Ok(count));
            }
        }
    }
}

impl AsyncRead for Half {
    #[expect(unsafe_code, reason = "bytes that were not read are not zeroed either")]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Stream {
            tcp,
            received_bytes,
            ..
        } = &*self.0;
        // SAFETY: what was initialized before stays so, since the kernel only writes.
        let free = unsafe { buffer.unfilled_mut() };
        let count = ready!(poll_count(
            received_bytes,
            free.len(),
            || tcp.poll_read_ready(cx),
            |tcp| Ok(recv(tcp, &mut *free, RecvFlags::empty())?.1),
        ))?;
        // SAFETY: the kernel has written `count` bytes there.
        unsafe { buffer.assume_init(count) };
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Half {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Stream {
            tcp, written_bytes, ..
        } = &*self.0;
        poll_count(
            written_bytes,
            slices.iter().map(|slice| slice.len()).sum(),
            || tcp.poll_write_ready(cx),
            |mut tcp| tcp.write_vectored(slices),
        )
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = shutdown(self.0.tcp.get_ref(), Shutdown::Write);
        Poll::Ready(shut.map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Stream};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (Arc<Stream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (Stream::new(near).unwrap(), far)
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_are_counted() {
        let (stream, mut far) = pair().await;
        let (mut reader, mut writer) = stream.halves();
        writer.write_all(b"question").await.unwrap();
        writer.shutdown().await.unwrap();
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        far.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        reader.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        assert_eq!(stream.passage().received_bytes, 6);
    }

    /// The far end reads no bytes, so its system stops acknowledging when its buffer is full.
    #[tokio::test]
    async fn a_peer_that_takes_nothing_shows_no_life() {
        let (stream, mut far) = pair().await;
        let (_, mut writer) = stream.halves();
        let begun = stream.passage();
        let bytes = vec![7; 1 << 16];
        let filling = async {
            loop {
                writer.write_all(&bytes).await.unwrap();
            }
        };
        // Both buffers are full when a second passes without room for more.
        let mut filling = std::pin::pin!(filling);
        let mut full = stream.passage();
        loop {
            let moment = std::time::Duration::from_secs(1);
            let _ = tokio::time::timeout(moment, filling.as_mut()).await;
            let now = stream.passage();
            if now == full {
                break;
            }
            full = now;
        }
        assert!(full.waiting_bytes > 0 && full.acknowledged_bytes > 0);
        assert!(full.shows_life_since(begun) && !stream.passage().shows_life_since(full));
        // It takes what its system has.
        let mut taken = vec![0; usize::try_from(full.acknowledged_bytes).unwrap()];
        far.read_exact(&mut taken).await.unwrap();
        while !stream.passage().shows_life_since(full) {
            tokio::task::yield_now().await;
        }
    }
}
