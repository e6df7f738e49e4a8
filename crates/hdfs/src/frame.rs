//! Frames of the connections between agents, and between an agent and its `DataNode`'s plugin.
//!
//! A connection begins with eight bytes that name the protocol and its version; the side that connects sends them.
//! Then both sides send frames: four bytes with the length of the body, four with the CRC32C of kind and body, one byte
//! for the kind, and the body. Numbers are big-endian, because the plugin is Java.
//!
//! `wire` has connections of its own, but a process introduces itself there as a member of one Gabion cluster, with
//! one node id, and its requests are those of Gabion's nodes. An agent belongs to no cluster, and each repair numbers
//! its nodes anew.

use crate::error::HdfsError;
use bytes::{Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// The first bytes of a connection; the last one is the version.
const HELLO: [u8; 8] = *b"gabhdfs\x02";
/// Most bytes of a frame's body.
pub(crate) const BODY_BYTES_MAX: usize = (4 << 20) + (1 << 10);
/// Time limit of connecting.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit of writing one frame.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Frames that wait for a connection's writer; a sender of more waits.
const QUEUE_FRAME_COUNT: usize = 2;
/// Smaller than a slice, so that slices are not copied once more.
const BUFFER_BYTES: usize = 16 << 10;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Plugin to agent: rebuild blocks of a group.
    Rebuild = 1,
    /// Agent to plugin: how the group's blocks are checksummed.
    Checksum = 2,
    /// Agent to plugin: bytes of all the blocks, from one position.
    Row = 3,
    /// Agent to plugin: all rows were sent.
    Rebuilt = 4,
    /// Agent to plugin: the rebuild has failed.
    Failed = 5,
    /// Agent to plugin: may a block be read, and where is it?
    Open = 6,
    /// Plugin to agent: it may, there.
    Opened = 7,
    /// Plugin to agent, and agent to a recovery: it may not be done.
    Refused = 8,
    /// Recovery to agent: who rebuilds which lost block, by which helpers?
    Schedule = 9,
    /// Agent to recovery: the requestor and the path of each lost block.
    Scheduled = 10,
    /// Recovery to agent, and agent to plugin: rebuild a block here.
    Order = 11,
    /// Plugin to agent, and agent to recovery: the order has ended.
    Done = 12,
    /// Agent to agent: take part in a run.
    Help = 16,
    /// Agent to agent: the block is open.
    Ready = 17,
    /// Agent to agent: all helpers are ready.
    Go = 18,
    /// Agent to agent: the part has ended, well or not.
    End = 19,
    /// Agent to agent: this connection is for a run.
    Join = 20,
    /// Agent to agent: a slice.
    Slice = 21,
    /// Agent to agent: credit for slices.
    Credit = 22,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        const ALL: [Kind; 19] = [
            Kind::Rebuild,
            Kind::Checksum,
            Kind::Row,
            Kind::Rebuilt,
            Kind::Failed,
            Kind::Open,
            Kind::Opened,
            Kind::Refused,
            Kind::Schedule,
            Kind::Scheduled,
            Kind::Order,
            Kind::Done,
            Kind::Help,
            Kind::Ready,
            Kind::Go,
            Kind::End,
            Kind::Join,
            Kind::Slice,
            Kind::Credit,
        ];
        ALL.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// A received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) body: Bytes,
}

/// The direction of a connection that is read.
pub(crate) struct Reading {
    peer: Arc<str>,
    stream: BufReader<OwnedReadHalf>,
}

/// The direction of a connection that is written. Its clones share it. A task writes its frames one after another, so a
/// sender that is dropped cuts no frame. The direction ends when no clone is left and all its frames are written.
#[derive(Clone)]
pub(crate) struct Writing {
    peer: Arc<str>,
    frames: Sender<Outgoing>,
}

/// A frame that waits for its connection's writer.
struct Outgoing {
    kind: Kind,
    parts: Vec<Bytes>,
}

/// Connects, and says hello.
///
/// # Errors
/// [`HdfsError::Peer`] when there is no connection within some seconds.
pub(crate) async fn connect(address: &str) -> Result<(Reading, Writing), HdfsError> {
    let peer_error = |error: io::Error| HdfsError::Peer {
        peer: address.to_owned(),
        reason: error.to_string(),
    };
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = connected.map_err(late).and_then(|connected| connected);
    halves(stream.map_err(peer_error)?, address, &HELLO)
}

/// Takes a connection that was accepted, and reads the peer's hello within the time limit.
///
/// # Errors
/// [`HdfsError::Peer`] when the peer speaks another protocol or version, or nothing in time.
pub(crate) async fn accept(
    stream: TcpStream,
    address: SocketAddr,
    limit: Duration,
) -> Result<(Reading, Writing), HdfsError> {
    let (mut reading, writing) = halves(stream, &address.to_string(), &[])?;
    let mut hello = [0; HELLO.len()];
    match timeout(limit, reading.stream.read_exact(&mut hello)).await {
        Ok(Ok(_)) if hello == HELLO => Ok((reading, writing)),
        Ok(Ok(_)) => Err(reading.error("it speaks another version; install one version of Gabion")),
        Ok(Err(error)) => Err(reading.error(error)),
        Err(_) => Err(reading.error("it sent no frame in time")),
    }
}

/// Both directions of a connection, of which the written one begins with `first`.
fn halves(
    stream: TcpStream,
    peer: &str,
    first: &'static [u8],
) -> Result<(Reading, Writing), HdfsError> {
    let peer: Arc<str> = Arc::from(peer);
    stream.set_nodelay(true).map_err(|error| HdfsError::Peer {
        peer: peer.to_string(),
        reason: error.to_string(),
    })?;
    let (read, written) = stream.into_split();
    let reading = Reading {
        peer: Arc::clone(&peer),
        stream: BufReader::with_capacity(BUFFER_BYTES, read),
    };
    let (frames, queue) = channel(QUEUE_FRAME_COUNT);
    tokio::spawn(write_frames(written, first, queue, SEND_TIMEOUT));
    Ok((reading, Writing { peer, frames }))
}

/// Writes a connection's frames until no sender is left, the connection breaks, or the peer takes too long for one.
async fn write_frames(
    stream: OwnedWriteHalf,
    first: &[u8],
    mut queue: Receiver<Outgoing>,
    limit: Duration,
) {
    let mut stream = BufWriter::with_capacity(BUFFER_BYTES, stream);
    let mut written = timeout(limit, stream.write_all(first)).await;
    while let Ok(Ok(())) = written {
        let Some(frame) = queue.recv().await else {
            break;
        };
        let is_last = queue.is_empty();
        written = timeout(limit, write_frame(&mut stream, &frame, is_last)).await;
    }
}

async fn write_frame(
    stream: &mut BufWriter<OwnedWriteHalf>,
    frame: &Outgoing,
    is_last: bool,
) -> io::Result<()> {
    let length: usize = frame.parts.iter().map(Bytes::len).sum();
    let kind = frame.kind as u8;
    stream.write_u32(length as u32).await?;
    stream.write_u32(checksum(kind, &frame.parts)).await?;
    stream.write_u8(kind).await?;
    for part in &frame.parts {
        stream.write_all(part).await?;
    }
    if is_last {
        stream.flush().await?;
    }
    Ok(())
}

impl Reading {
    /// The peer's error.
    pub(crate) fn error(&self, reason: impl std::fmt::Display) -> HdfsError {
        HdfsError::Peer {
            peer: self.peer.to_string(),
            reason: reason.to_string(),
        }
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`HdfsError::Peer`] at the end of the connection, or when the frame is invalid.
    pub(crate) async fn frame(&mut self) -> Result<Frame, HdfsError> {
        let mut header = [0; 9];
        let read = self.stream.read_exact(&mut header).await;
        read.map_err(|error| self.error(error))?;
        let [l0, l1, l2, l3, c0, c1, c2, c3, kind_byte] = header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > BODY_BYTES_MAX {
            return Err(self.error(format!("its frame of {length} bytes is too long")));
        }
        let body = read_body(&mut self.stream, length).await;
        let body = body.map_err(|error| self.error(error))?;
        if checksum(kind_byte, &[&body]).to_be_bytes() != [c0, c1, c2, c3] {
            return Err(self.error("its frame was damaged in transit"));
        }
        let kind = Kind::of(kind_byte);
        let kind = kind.ok_or_else(|| self.error(format!("its frame has kind {kind_byte}")))?;
        Ok(Frame { kind, body })
    }

    /// The next frame, which must come within the time limit.
    ///
    /// # Errors
    /// As [`Reading::frame`], or when it is late.
    pub(crate) async fn frame_within(&mut self, limit: Duration) -> Result<Frame, HdfsError> {
        let late = self.error("it does not answer in time");
        timeout(limit, self.frame()).await.unwrap_or(Err(late))
    }
}

impl Writing {
    /// Sends a frame whose body is in parts: puts it in the queue of the connection's writer. A send that is dropped
    /// sends the whole frame or nothing.
    ///
    /// # Errors
    /// [`HdfsError::Peer`] when the connection has ended, or the peer took too long for an earlier frame.
    ///
    /// # Panics
    /// When the body is longer than a frame's.
    pub(crate) async fn send(&self, kind: Kind, parts: Vec<Bytes>) -> Result<(), HdfsError> {
        let length: usize = parts.iter().map(Bytes::len).sum();
        assert!(length <= BODY_BYTES_MAX, "a frame of {length} bytes");
        let sent = self.frames.send(Outgoing { kind, parts }).await;
        sent.map_err(|_| HdfsError::Peer {
            peer: self.peer.to_string(),
            reason: "the connection has ended".to_owned(),
        })
    }
}

/// Reads a frame's body, into memory that is not zeroed first.
async fn read_body(stream: &mut BufReader<OwnedReadHalf>, length: usize) -> io::Result<Bytes> {
    let mut body = BytesMut::with_capacity(length);
    let mut rest = stream.take(length as u64);
    while body.len() < length {
        if rest.read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(body.freeze())
}

fn checksum(kind: u8, parts: &[impl AsRef<[u8]>]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&[kind]);
    for part in parts {
        digest.update(part.as_ref());
    }
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncBufReadExt as _;
    use tokio::net::TcpSocket;

    /// A connection with little room in the kernel.
    async fn narrow_stream() -> (TcpStream, TcpStream) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = socket.listen(1).unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4096).unwrap();
        let (connected, accepted) = tokio::join!(socket.connect(address), listener.accept());
        (connected.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn senders_that_are_dropped_cut_no_frame() {
        let (written, read) = narrow_stream().await;
        let (_, writing) = halves(written, "the reader", &[]).unwrap();
        let (mut reading, _) = halves(read, "the writer", &[]).unwrap();
        // As a failed run drops them: one slice is being written, some wait, one has no place yet.
        let sending = async {
            for number in 0..=QUEUE_FRAME_COUNT as u8 + 1 {
                let slice = Bytes::from(vec![number; 3 << 20]);
                writing.send(Kind::Slice, vec![slice]).await.unwrap();
            }
        };
        tokio::select! {
            () = sending => panic!("the connection takes more than it should"),
            begun = reading.stream.fill_buf() => assert!(!begun.unwrap().is_empty()),
        }
        let report = Bytes::from_static(b"corrupt");
        let ending = async {
            writing.send(Kind::End, vec![report.clone()]).await.unwrap();
            drop(writing);
        };
        let reading = async {
            let mut slice_count = 0;
            loop {
                let frame = reading.frame_within(SEND_TIMEOUT).await.unwrap();
                match frame.kind {
                    Kind::Slice => assert!(frame.body == vec![slice_count; 3 << 20]),
                    kind => {
                        assert_eq!((kind, frame.body), (Kind::End, report.clone()));
                        break;
                    }
                }
                slice_count += 1;
            }
            assert!(slice_count > 0);
            // The direction ends with its last sender.
            reading.frame_within(SEND_TIMEOUT).await.unwrap_err();
        };
        tokio::join!(ending, reading);
    }

    #[tokio::test]
    async fn a_frame_that_is_cut_off_is_an_error() {
        let (mut written, read) = narrow_stream().await;
        let (mut reading, _writing) = halves(read, "the writer", &[]).unwrap();
        let header = [0, 0, 0, 100, 0, 0, 0, 0, Kind::Slice as u8];
        written.write_all(&header).await.unwrap();
        written.write_all(&[7; 50]).await.unwrap();
        drop(written);
        let error = reading.frame_within(SEND_TIMEOUT).await.unwrap_err();
        assert!(error.to_string().contains("end of file"), "{error}");
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_is_left() {
        let (stream, _unread) = narrow_stream().await;
        let (_, written) = stream.into_split();
        let (frames, queue) = channel(QUEUE_FRAME_COUNT);
        let limit = Duration::from_millis(50);
        let writing = tokio::spawn(write_frames(written, &[], queue, limit));
        let frame = || Outgoing {
            kind: Kind::Slice,
            parts: vec![Bytes::from(vec![0; 3 << 20])],
        };
        let sending = async { while frames.send(frame()).await.is_ok() {} };
        timeout(SEND_TIMEOUT, sending).await.unwrap();
        writing.await.unwrap();
    }
}
