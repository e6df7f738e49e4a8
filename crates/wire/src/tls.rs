//! TLS between a socket and a connection: the handshake, and the peer's identity from it.

use crate::error::WireError;
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::stream::Half;
use crate::trust::{Certified, Credentials, server_name};
use rustls::{AlertDescription, InvalidMessage};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// The side that opened the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Opens,
    Accepts,
}

/// The peer's first bytes that are kept for the case that they are no TLS: a frame of at most this size, which tells
/// why the peer has turned this process away.
const KEPT_BYTES: usize = HEADER_BYTES + 1024;

/// Secures a socket; returns it with what the peer's certificate says.
///
/// # Errors
/// [`WireError::Untrusted`] when either side refuses the other's certificate; [`WireError::NoTls`] or
/// [`WireError::ClosedByPeer`] when the peer does not speak TLS.
pub(crate) async fn secure(
    socket: Half,
    side: Side,
    credentials: &Credentials,
) -> Result<(TlsStream<Socket>, Certified), WireError> {
    let mut socket = Socket {
        half: socket,
        first: Some(Vec::new()),
    };
    let stream = match side {
        Side::Opens => {
            let connector = TlsConnector::from(credentials.client_config());
            let connecting = connector.connect(server_name(), socket).into_fallible();
            let connected = connecting.await;
            connected
                .map(TlsStream::from)
                .map_err(|(error, socket)| failed(error, &socket))?
        }
        Side::Accepts => {
            let Some(config) = credentials.server_config() else {
                let reason = "this process's certificate is not one of a server";
                return Err(WireError::Untrusted(reason.to_owned()));
            };
            socket.first = None;
            let accepting = TlsAcceptor::from(config).accept(socket).into_fallible();
            let accepted = accepting.await;
            accepted
                .map(TlsStream::from)
                .map_err(|(error, socket)| failed(error, &socket))?
        }
    };
    let mut stream = stream;
    let (socket, session) = stream.get_mut();
    socket.first = None;
    let certified = Certified::of_chain(session.peer_certificates());
    Ok((stream, certified.map_err(WireError::Untrusted)?))
}

/// A socket that keeps its first bytes until the handshake is over.
pub(crate) struct Socket {
    half: Half,
    first: Option<Vec<u8>>,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.half).poll_read(cx, buffer);
        if let Some(first) = &mut self.first {
            let room = KEPT_BYTES.saturating_sub(first.len());
            let new = &buffer.filled()[before..];
            first.extend_from_slice(&new[..new.len().min(room)]);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.half).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.half).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_shutdown(cx)
    }
}

/// Causes of a failed handshake.
fn failed(error: io::Error, socket: &Socket) -> WireError {
    match tls_error(&error) {
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            let first = socket.first.as_deref().unwrap_or_default();
            plain_frame(first).unwrap_or(WireError::NoTls)
        }
        Some(tls) => WireError::Untrusted(in_words(tls)),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            WireError::ClosedByPeer("it ended within the handshake".to_owned())
        }
        None => WireError::io("agree on TLS", error),
    }
}

/// Returns the message in a frame of a peer that does not speak TLS.
fn plain_frame(first: &[u8]) -> Option<WireError> {
    let header = Header::decode(first.first_chunk()?).ok()?;
    let body = first.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes as usize)?;
    header.check_body(body).ok()?;
    (header.kind == Kind::Goodbye)
        .then(|| WireError::ClosedByPeer(String::from_utf8_lossy(body).into_owned()))
}

/// The error of TLS in an error of a stream over it.
pub(crate) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// An error of TLS as a sentence without its first words.
pub(crate) fn in_words(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use rustls::{CertificateError as Wrong, Error};
    match error {
        Error::AlertReceived(alert) => match alert {
            Alert::CertificateRevoked => "this process's certificate is revoked".to_owned(),
            Alert::CertificateExpired => "this process's certificate has expired".to_owned(),
            Alert::CertificateRequired => "the peer wants a certificate".to_owned(),
            Alert::UnknownCA | Alert::DecryptError | Alert::BadCertificate => {
                "the peer does not trust the authority of this process's certificate; check whether the peer belongs \
                to another cluster"
                    .to_owned()
            }
            other => format!("the peer refuses this process ({other:?})"),
        },
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Revoked => "the peer's certificate is revoked".to_owned(),
            Wrong::Expired | Wrong::ExpiredContext { .. } => {
                "the peer's certificate has expired".to_owned()
            }
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "the peer's certificate is not valid yet; check the clocks of both machines".to_owned()
            }
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                "another authority issued the peer's certificate; check whether the peer belongs to another cluster"
                    .to_owned()
            }
            Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
                "the peer's certificate is not for this side of a connection".to_owned()
            }
            other => format!("the peer's certificate is not usable ({other})"),
        },
        Error::NoCertificatesPresented => "the peer has shown no certificate".to_owned(),
        other => other.to_string(),
    }
}
