//! A connection's result for a peer's bytes, without a socket: for tests and fuzzers of this crate.
//!
//! It runs the code of connections: the exchange of hellos, the reader of frames, the decoders, and the table of roles.
//! Nothing is served and no reply is sent.

use gabion_protocol::message::{CoordinatorRequest, NodeRequest};
use std::time::Duration;
use tokio::io::{AsyncRead, sink};

use crate::body::Frame;
use crate::certificate_call::CertificateRequest;
use crate::error::WireError;
use crate::frame::Kind;
use crate::handshake::exchange_hellos;
use crate::hello::Hello;
use crate::permission::{Guarded, Sender};
use crate::reader::FrameReader;
use crate::versions::Versions;

/// A peer's bytes, read to their end or to the first error.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The peer's hello; none if the bytes do not begin with one.
    pub hello: Option<Hello>,
    /// The version on which both sides have agreed; none without a hello.
    pub version: Option<u16>,
    /// The frames after it.
    pub frames: Vec<Frame>,
    /// The reason why the connection ends before the stream does.
    pub error: Option<WireError>,
}

impl Transcript {
    /// Reads a stream as a process with this hello does. `stall_timeout` limits the time of long bodies.
    pub async fn read(
        stream: impl AsyncRead + Unpin,
        ours: &Hello,
        stall_timeout: Duration,
    ) -> Self {
        let mut reader = FrameReader::new(stream, stall_timeout);
        let mut transcript = Self {
            hello: None,
            version: None,
            frames: Vec::new(),
            error: None,
        };
        let meet = |theirs: &Hello| ours.check(theirs);
        let own = (ours, meet);
        match exchange_hellos(&mut reader, &mut sink(), None, Versions::CURRENT, own).await {
            Ok((hello, version)) => {
                transcript.hello = Some(hello);
                transcript.version = Some(version);
            }
            Err(error) => transcript.error = Some(error),
        }
        while transcript.error.is_none() {
            match reader.next().await {
                Ok(Some(frame)) => transcript.frames.push(frame),
                Ok(None) => break,
                Err(error) => transcript.error = Some(error),
            }
        }
        transcript
    }
}

impl Sender {
    /// Decodes a request or a flow frame, and returns the reason if this sender may not send it.
    ///
    /// # Errors
    /// [`WireError::Corrupt`] if the frame is none of these.
    pub fn judge(&self, frame: Frame) -> Result<Result<(), String>, WireError> {
        Ok(match frame.header.kind {
            Kind::NodeRequest => frame.decode_message::<NodeRequest>()?.may_come_from(self),
            Kind::CoordinatorRequest => {
                let request: CoordinatorRequest = frame.decode_message()?;
                request.may_come_from(self)
            }
            Kind::CertificateRequest => {
                let request: CertificateRequest = frame.decode_message()?;
                request.may_come_from(self)
            }
            _ => frame.decode_flow()?.may_come_from(self),
        })
    }
}
