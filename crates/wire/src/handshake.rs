//! The steps of both sides before a connection is established: the socket's options, and the checks of the peer.

use crate::body::Frame;
use crate::error::WireError;
use crate::hello::Hello;
use crate::reader::FrameReader;
use crate::trust::Certified;
use crate::versions::Versions;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Checks that a hello claims nothing that the certificate does not say. A node that restarts claims no id at first.
pub(crate) fn check_certificate(hello: &Hello, certified: &Certified) -> Result<(), WireError> {
    let name = &certified.name;
    if let Some(claimed) = hello.cluster.filter(|claimed| *claimed != name.cluster) {
        return Err(WireError::WrongCluster {
            ours: name.cluster,
            theirs: claimed,
        });
    }
    let node = hello.identity.node;
    if hello.role != name.role || (node.is_some() && node != name.node) {
        let claimed = format!(
            "its hello names the role {:?}{}, but its certificate is that of {}",
            hello.role,
            node.map_or(String::new(), |node| format!(" ({node})")),
            name.holder()
        );
        return Err(WireError::Untrusted(claimed));
    }
    Ok(())
}

/// Tells a refused peer the reason, if the socket takes a few bytes at once.
pub(crate) async fn send_close_reason<W: AsyncWrite + Unpin>(
    writer: &mut W,
    reason: &WireError,
    versions: Versions,
) {
    if let Some(frame) = Frame::goodbye(reason, versions.newest()) {
        let bytes = [&frame.header.encode()[..], &frame.body].concat();
        // The peer detects the end in any case; the text is a courtesy.
        let _ = timeout(Duration::from_secs(1), writer.write_all(&bytes)).await;
    }
}

/// Sends this process's hello, receives the peer's, and checks that they match. Returns the peer's hello, and the
/// version in which both sides talk from now on.
pub(crate) async fn exchange_hellos<R, W>(
    reader: &mut FrameReader<R>,
    writer: &mut W,
    certified: Option<&Certified>,
    versions: Versions,
    (introduction, meet): (&Hello, impl FnOnce(&Hello) -> Result<(), WireError>),
) -> Result<(Hello, u16), WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let ours = introduction.frame(versions)?;
    let bytes = [&ours.header.encode()[..], &ours.body].concat();
    let failed = |source| WireError::io("send the hello", source);
    writer.write_all(&bytes).await.map_err(failed)?;
    writer.flush().await.map_err(failed)?;
    let Some(frame) = reader.next().await? else {
        return Err(WireError::ClosedByPeer("it sent no hello".to_owned()));
    };
    let (mut theirs, agreed) = Hello::of_frame(&frame, versions)?;
    if let Some(certified) = certified {
        check_certificate(&theirs, certified)?;
        theirs.cluster = Some(certified.name.cluster);
    }
    meet(&theirs)?;
    reader.agree_on(agreed);
    Ok((theirs, agreed))
}

/// Sends small frames without delay, and ends connections whose other machine has vanished.
pub(crate) fn set_socket_options(
    stream: &TcpStream,
    stall_timeout: Duration,
) -> std::io::Result<()> {
    use rustix::net::sockopt;
    const PROBE_COUNT: u32 = 3;
    let probe_interval = (stall_timeout / (PROBE_COUNT + 1)).max(Duration::from_secs(1));
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, probe_interval)?;
    sockopt::set_tcp_keepintvl(stream, probe_interval)?;
    sockopt::set_tcp_keepcnt(stream, PROBE_COUNT)?;
    let stall_ms = u32::try_from(stall_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, stall_ms)?;
    Ok(())
}
