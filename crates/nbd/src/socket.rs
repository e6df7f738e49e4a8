//! Sockets as two halves, and whole again.

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// A connected socket.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The receiving half.
    type Reader: AsyncRead + Unpin + Send + 'static;
    /// The sending half.
    type Writer: AsyncWrite + Unpin + Send + 'static;

    /// Divides the socket; its halves work at the same time.
    fn halves(self) -> (Self::Reader, Self::Writer);

    /// Makes a socket of its halves.
    ///
    /// # Panics
    /// If the halves are of two sockets.
    fn whole(reader: Self::Reader, writer: Self::Writer) -> Self;
}

impl Socket for TcpStream {
    type Reader = tcp::OwnedReadHalf;
    type Writer = tcp::OwnedWriteHalf;

    fn halves(self) -> (Self::Reader, Self::Writer) {
        self.into_split()
    }

    fn whole(reader: Self::Reader, writer: Self::Writer) -> Self {
        reader.reunite(writer).expect("halves of one socket")
    }
}

impl Socket for UnixStream {
    type Reader = unix::OwnedReadHalf;
    type Writer = unix::OwnedWriteHalf;

    fn halves(self) -> (Self::Reader, Self::Writer) {
        self.into_split()
    }

    fn whole(reader: Self::Reader, writer: Self::Writer) -> Self {
        reader.reunite(writer).expect("halves of one socket")
    }
}

/// A connection in memory.
impl Socket for DuplexStream {
    type Reader = ReadHalf<Self>;
    type Writer = WriteHalf<Self>;

    fn halves(self) -> (Self::Reader, Self::Writer) {
        split(self)
    }

    fn whole(reader: Self::Reader, writer: Self::Writer) -> Self {
        reader.unsplit(writer)
    }
}
