//! Frames out of a byte stream.
//!
//! Small frames are read many at a time into one buffer. A body that reaches beyond the buffer is
//! read straight into memory of its own, together with the header that follows it: a stream of
//! slices costs one system call a slice and no copy.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::body::Frame;
use crate::error::WireError;
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::intake::{SHORT_BYTES, transfer_limit};
use crate::tls::{in_words, tls_error};

const BUFFER_BYTES: usize = 16 << 10;
/// The most bytes of a body before the peer has introduced itself.
const HELLO_MAX_BYTES: usize = 1024;

/// Reads frames from a stream.
pub(crate) struct FrameReader<R> {
    stream: R,
    /// Bytes that are read and not yet part of a returned frame.
    buffer: BytesMut,
    /// The version of all frames but a goodbye, once the hellos are exchanged.
    agreed: Option<u16>,
    /// A long body must arrive within this time and that of a slow transfer.
    stall_timeout: Duration,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader at the start of a stream.
    pub(crate) fn new(stream: R, stall_timeout: Duration) -> Self {
        Self {
            stream,
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            agreed: None,
            stall_timeout,
        }
    }

    /// The peer has introduced itself: from now on its frames have this version, and any size.
    pub(crate) fn agree_on(&mut self, version: u16) {
        self.agreed = Some(version);
    }

    /// The next frame, its checksums verified; `None` when the stream ends between two frames. Before a long body is
    /// read, `room` waits for room for it; what it gives is returned with the frame.
    ///
    /// Not cancel safe: a frame half read is lost when the future is dropped.
    ///
    /// # Errors
    /// [`WireError::Corrupt`] for what is no frame of the agreed version, [`WireError::Io`] when reading fails,
    /// [`WireError::ClosedByPeer`] when the stream ends in a frame.
    pub(crate) async fn next_in<P>(
        &mut self,
        room: impl AsyncFnOnce(usize) -> Result<P, WireError>,
    ) -> Result<Option<(Frame, P)>, WireError> {
        let Some(header) = self.header().await? else {
            return Ok(None);
        };
        let body_bytes = header.body_bytes as usize;
        let permit = room(body_bytes).await?;
        let body = self.body(body_bytes).await?;
        header.check_body(&body)?;
        Ok(Some((Frame { header, body }, permit)))
    }

    /// [`FrameReader::next_in`] without a limit on room.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, WireError> {
        let next = self.next_in(async |_| Ok(())).await?;
        Ok(next.map(|(frame, ())| frame))
    }

    /// The next header; `None` when the stream ends before it.
    async fn header(&mut self) -> Result<Option<Header>, WireError> {
        while self.buffer.len() < HEADER_BYTES {
            self.buffer.reserve(BUFFER_BYTES - self.buffer.len());
            let is_between_frames = self.buffer.is_empty();
            let read = self.stream.read_buf(&mut self.buffer).await;
            if read.map_err(read_failed)? == 0 {
                return if is_between_frames {
                    Ok(None)
                } else if is_tls(&self.buffer) {
                    Err(WireError::WantsTls)
                } else {
                    Err(cut_short())
                };
            }
        }
        let header: &[u8; HEADER_BYTES] = self
            .buffer
            .first_chunk()
            .expect("the loop read at least a header");
        let header = Header::decode(header)?;
        match self.agreed {
            None if header.body_bytes as usize > HELLO_MAX_BYTES => {
                let reason = "the first frame is too long for a hello";
                return Err(WireError::Corrupt(reason));
            }
            // A goodbye has the same form in every version, and its sender may not have agreed on one yet.
            Some(agreed) if header.version != agreed && header.kind != Kind::Goodbye => {
                let reason = "it has another version than the two sides agreed on";
                return Err(WireError::Corrupt(reason));
            }
            _ => {}
        }
        self.buffer.advance(HEADER_BYTES);
        Ok(Some(header))
    }

    async fn body(&mut self, body_bytes: usize) -> Result<Bytes, WireError> {
        if body_bytes <= self.buffer.len() {
            return Ok(self.buffer.split_to(body_bytes).freeze());
        }
        if body_bytes <= SHORT_BYTES {
            return self.rest_of_body(body_bytes).await;
        }
        let limit = self.stall_timeout + transfer_limit(body_bytes);
        let body = timeout(limit, self.rest_of_body(body_bytes)).await;
        body.unwrap_or(Err(WireError::DeadlinePassed {
            operation: "the rest of a frame of the peer",
        }))
    }

    /// Reads what the buffer lacks of a body.
    async fn rest_of_body(&mut self, body_bytes: usize) -> Result<Bytes, WireError> {
        let mut body = BytesMut::with_capacity(body_bytes + HEADER_BYTES);
        body.extend_from_slice(&self.buffer);
        self.buffer.clear();
        while body.len() < body_bytes {
            let room = body_bytes + HEADER_BYTES - body.len();
            let mut limited = (&mut body).limit(room);
            if self
                .stream
                .read_buf(&mut limited)
                .await
                .map_err(read_failed)?
                == 0
            {
                return Err(cut_short());
            }
        }
        self.buffer.extend_from_slice(&body[body_bytes..]);
        body.truncate(body_bytes);
        Ok(body.freeze())
    }
}

/// Whether a stream begins with an alert of TLS, with which a peer refuses what is no TLS.
fn is_tls(buffer: &[u8]) -> bool {
    buffer.starts_with(&[21, 3])
}

fn read_failed(source: std::io::Error) -> WireError {
    if let Some(error) = tls_error(&source) {
        return WireError::Untrusted(in_words(error));
    }
    if source.kind() == std::io::ErrorKind::UnexpectedEof {
        // TLS notices that the peer has not taken leave; frames tell that by themselves.
        return WireError::ClosedByPeer("its stream ended without a goodbye".to_owned());
    }
    WireError::io("read from the connection", source)
}

fn cut_short() -> WireError {
    WireError::ClosedByPeer("its stream ended within a frame".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::VERSION;
    use proptest::prelude::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::ReadBuf;

    /// A stream that returns its bytes in pieces of given sizes, repeatedly.
    struct Pieces<'a> {
        bytes: &'a [u8],
        sizes: Vec<usize>,
        turn: usize,
    }

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            target: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            let size = self.sizes[self.turn % self.sizes.len()];
            self.turn += 1;
            let count = size.min(target.remaining()).min(self.bytes.len());
            let (piece, rest) = self.bytes.split_at(count);
            target.put_slice(piece);
            self.bytes = rest;
            Poll::Ready(Ok(()))
        }
    }

    fn read_all(bytes: &[u8], sizes: Vec<usize>) -> (Vec<Frame>, Option<WireError>) {
        let pieces = Pieces {
            bytes,
            sizes,
            turn: 0,
        };
        let mut reader = FrameReader::new(pieces, Duration::from_secs(15));
        reader.agree_on(VERSION);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut frames = Vec::new();
            loop {
                match reader.next().await {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => return (frames, None),
                    Err(error) => return (frames, Some(error)),
                }
            }
        })
    }

    fn stream_of(frames: &[Frame]) -> Vec<u8> {
        frames
            .iter()
            .flat_map(|f| [&f.header.encode()[..], &f.body].concat())
            .collect()
    }

    fn any_frames() -> impl Strategy<Value = Vec<Frame>> {
        let body_bytes = prop_oneof![0..100_usize, 16_000..17_000_usize, 40_000..70_000_usize];
        let frame = (body_bytes, any::<u8>())
            .prop_map(|(count, byte)| Frame::new(Kind::Slice, vec![byte; count].into()).unwrap());
        prop::collection::vec(frame, 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_arrive_however_the_stream_is_cut(
            frames in any_frames(),
            sizes in prop::collection::vec(1_usize..50_000, 1..6),
        ) {
            let (read, error) = read_all(&stream_of(&frames), sizes);
            prop_assert!(error.is_none());
            prop_assert!(read == frames);
        }

        #[test]
        fn a_stream_that_ends_early_is_noticed(
            frames in any_frames(),
            end in any::<prop::sample::Index>(),
        ) {
            let bytes = stream_of(&frames);
            let end = end.index(bytes.len());
            let (read, error) = read_all(&bytes[..end], vec![9_000]);
            prop_assert!(frames.starts_with(&read));
            let is_between_frames = stream_of(&read).len() == end;
            prop_assert_eq!(error.is_none(), is_between_frames);
        }

        #[test]
        fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let (read, error) = read_all(&bytes, vec![64]);
            prop_assert!(read.is_empty());
            prop_assert!(error.is_some());
        }

        #[test]
        fn damage_never_passes(
            frames in any_frames(),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..=255,
        ) {
            let mut bytes = stream_of(&frames);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let (read, error) = read_all(&bytes, vec![20_000]);
            prop_assert!(frames.starts_with(&read));
            prop_assert!(stream_of(&read).len() <= at);
            prop_assert!(matches!(error, Some(WireError::Corrupt(_))));
        }
    }
}
