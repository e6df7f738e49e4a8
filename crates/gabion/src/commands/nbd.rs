//! `gabion nbd`: the server of images, and the kernel's client.

use super::connect_gateway;
use super::image::no_image;
use super::serve::{listen_on, raise_descriptor_limit, ready};
use crate::arguments::{NbdCommand, NbdMapOptions, NbdServeOptions, Place};
use crate::failure::{Context, Failure};
use gabion_client::TakeOver;
use gabion_nbd::{
    Exports, ImageName, Images, Limits, OpenError, ServeOptions, Server, Tls, TlsClients,
};
use gabion_testbed::EndSignals;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::process::Command;

/// The server's default address.
const LISTEN: &str = "127.0.0.1:10809";
/// Most bytes of the path of a Unix socket, by Linux.
const SOCKET_PATH_BYTES: usize = 107;
/// Time for the requests in flight when the server ends.
const END_LIMIT: Duration = Duration::from_secs(2);

pub(crate) async fn run(command: NbdCommand, place: &Place) -> Result<(), Failure> {
    match command {
        NbdCommand::Serve(options) => serve(options, place).await,
        NbdCommand::Map(options) => map(&options).await,
    }
}

/// Refuses an image that is named twice.
fn check_names(images: &[ImageName]) -> Result<(), Failure> {
    let mut behind = images.iter().enumerate();
    match behind.find(|(at, name)| images[..*at].contains(name)) {
        Some((_, name)) => Err(Failure::usage(format!(
            "{name} is named twice; name each image once"
        ))),
        None => Ok(()),
    }
}

async fn serve(options: NbdServeOptions, place: &Place) -> Result<(), Failure> {
    raise_descriptor_limit();
    check_names(&options.images)?;
    let tls = open_tls(&options)?;
    let client = connect_gateway(place).await?;
    let listen = match (&options.listen, &options.unix) {
        (None, None) => Some(LISTEN.to_owned()),
        (listen, _) => listen.clone(),
    };
    let images = Arc::new(Images::new(
        client,
        ServeOptions {
            images: options.images.clone(),
            is_read_only: options.read_only,
            retry_limit: Duration::from_secs(options.retry_s),
            take_over: if options.take_over {
                TakeOver::Now
            } else {
                TakeOver::IfAbandoned
            },
        },
    ));
    for name in &options.images {
        match images.look(name.as_str()).await {
            Ok(_) => {}
            Err(OpenError::Unknown) => return Err(no_image(name)),
            Err(OpenError::Failed(why)) => return Err(Failure::failed(why)),
        }
    }
    let mut ends = EndSignals::listen()?;
    let mut server = Server::new(Arc::<Images>::clone(&images), Limits::default());
    let scheme = if tls.is_some() { "nbds" } else { "nbd" };
    if let Some(tls) = tls {
        server = server.with_tls(tls);
    }
    let tcp = bind_tcp(listen.as_deref(), "--listen").await?;
    let metrics = bind_tcp(options.metrics.as_deref(), "--metrics").await?;
    let unix = match &options.unix {
        Some(path) => Some(bind_unix(path).await?),
        None => None,
    };
    let own_socket = options.unix.as_deref().and_then(socket_id);
    // All is bound before anything is said to be ready.
    if let Some(listener) = &tcp {
        ready(&format!("{scheme}://{}", address(listener)?));
    }
    if let Some(path) = &options.unix {
        ready(&format!("nbd+unix://?socket={}", path.display()));
    }
    if let Some(listener) = &metrics {
        ready(&format!("http://{}/metrics", address(listener)?));
    }
    let error = tokio::select! {
        error = of(tcp, |listener| server.serve_tcp(listener)) => error,
        error = of(unix, |listener| server.serve_unix(listener)) => error,
        error = of(metrics, |listener| server.serve_metrics(listener)) => error,
        () = ends.recv() => {
            // No client is told that its write has failed: one that connects to another server repeats it there.
            images.release(server.end(END_LIMIT)).await;
            if let Some(path) = options.unix.as_deref().filter(|path| socket_id(path) == own_socket) {
                // No other server has replaced it.
                let _ = std::fs::remove_file(path);
            }
            return Ok(());
        }
    };
    Err(Failure::failed(format!(
        "cannot accept connections: {error}"
    )))
}

/// The certificates that the options name.
fn open_tls(options: &NbdServeOptions) -> Result<Option<Tls>, Failure> {
    let Some(directory) = &options.tls_certificates else {
        return Ok(None);
    };
    let clients = if options.tls_any_client {
        TlsClients::Any
    } else {
        TlsClients::Certified
    };
    let opened = Tls::open(directory, clients);
    opened
        .map(Some)
        .map_err(|error| Failure::failed(error.to_string()))
}

/// Serves a listener if there is one; otherwise waits forever.
async fn of<L, F: Future<Output = io::Error>>(
    listener: Option<L>,
    serve: impl FnOnce(L) -> F,
) -> io::Error {
    match listener {
        Some(listener) => serve(listener).await,
        None => std::future::pending().await,
    }
}

async fn bind_tcp(address: Option<&str>, option: &str) -> Result<Option<TcpListener>, Failure> {
    match address {
        Some(address) => listen_on(address, option).await.map(Some),
        None => Ok(None),
    }
}

fn address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().context("get the server's address")
}

/// Listens on a Unix socket. The socket of a killed server is replaced; no other file is.
async fn bind_unix(path: &Path) -> Result<UnixListener, Failure> {
    let doing = || format!("listen on {}", path.display());
    if path.as_os_str().len() > SOCKET_PATH_BYTES {
        return Err(Failure::usage(format!(
            "the path of a Unix socket has at most {SOCKET_PATH_BYTES} bytes, and {} has {}; choose a shorter one",
            path.display(),
            path.as_os_str().len()
        )));
    }
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {}
        bound => return bound.context(doing()),
    }
    if socket_id(path).is_none() {
        return Err(Failure::failed(format!(
            "{} exists and is not a socket; choose another path",
            path.display()
        )));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).context(doing())?;
            UnixListener::bind(path).context(doing())
        }
        _ => Err(Failure::failed(format!(
            "{} is in use; stop its server or choose another path",
            path.display()
        ))),
    }
}

/// The identity of the socket at a path; `None` if there is no socket.
fn socket_id(path: &Path) -> Option<(u64, u64)> {
    let there = std::fs::symlink_metadata(path).ok()?;
    let is_socket = there.file_type().is_socket();
    is_socket.then(|| (there.dev(), there.ino()))
}

async fn map(options: &NbdMapOptions) -> Result<(), Failure> {
    let device = &options.device;
    if !device.exists() {
        return Err(Failure::failed(format!(
            "this machine has no {}; load the kernel's module with 'modprobe nbd', or attach the image with qemu",
            device.display()
        )));
    }
    let (host, port) = options
        .server
        .rsplit_once(':')
        .expect("the address was checked");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut attach = Command::new("nbd-client");
    attach.args(["-N", options.image.as_str()]);
    if let Some(directory) = &options.tls_certificates {
        attach.args(tls_arguments(directory, host)?);
    }
    attach.args([host, port]).arg(device);
    let attached = attach.status().await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::failed(
            "nbd-client is not installed; install the package nbd-client, or attach the image with qemu",
        ),
        _ => Failure::failed(format!("cannot run nbd-client: {error}")),
    })?;
    if !attached.success() {
        let tls = match options.tls_certificates {
            Some(_) => {
                ", and do the certificates name its host and suit it? Its log has the reason"
            }
            None => "?",
        };
        return Err(Failure::failed(format!(
            "nbd-client could not attach {}; is 'gabion nbd serve' running at {}{tls}",
            options.image, options.server
        )));
    }
    println!("{} is {}", options.image, device.display());
    Ok(())
}

/// The arguments of nbd-client for TLS with the certificates in a directory.
fn tls_arguments(directory: &Path, host: &str) -> Result<Vec<OsString>, Failure> {
    let authorities = directory.join("ca-cert.pem");
    std::fs::File::open(&authorities).context(format!("read {}", authorities.display()))?;
    let mut arguments = vec!["-enable-tls".into(), "-tlshostname".into(), host.into()];
    arguments.extend(["-cacertfile".into(), authorities.into_os_string()]);
    let own = ["client-cert.pem", "client-key.pem"].map(|name| directory.join(name));
    match own.each_ref().map(|path| path.exists()) {
        [true, true] => {
            let [certificate, key] = own.map(std::path::PathBuf::into_os_string);
            arguments.extend(["-certfile".into(), certificate, "-keyfile".into(), key]);
        }
        [false, false] => {}
        _ => {
            return Err(Failure::failed(format!(
                "{} has only one of client-cert.pem and client-key.pem; a client needs both or neither",
                directory.display()
            )));
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_client_gets_the_certificates_that_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let arguments = || tls_arguments(directory.path(), "host");
        assert!(arguments().is_err(), "no authority");
        std::fs::write(at("ca-cert.pem"), "").unwrap();
        let authority = at("ca-cert.pem").into_os_string();
        let checked: Vec<OsString> = vec![
            "-enable-tls".into(),
            "-tlshostname".into(),
            "host".into(),
            "-cacertfile".into(),
            authority,
        ];
        assert_eq!(arguments().unwrap(), checked);
        std::fs::write(at("client-cert.pem"), "").unwrap();
        assert!(arguments().is_err(), "a certificate without its key");
        std::fs::write(at("client-key.pem"), "").unwrap();
        let certificate = at("client-cert.pem").into_os_string();
        let key = at("client-key.pem").into_os_string();
        let own = vec!["-certfile".into(), certificate, "-keyfile".into(), key];
        assert_eq!(arguments().unwrap(), [checked, own].concat());
    }
}
