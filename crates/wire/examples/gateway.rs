//! A gateway in its smallest form: it serves ranges of a cluster's files over TCP, by a protocol of one line a request.
//!
//! | request | reply |
//! |---|---|
//! | `read NAME OFFSET LENGTH` | `ok LENGTH`, then the bytes |
//! | `write NAME OFFSET LENGTH`, then the bytes | `ok 0` when they are durable |
//!
//! Errors are one line, `error SENTENCE`. A gateway translates requests into calls of [`Client`] and limits what a peer
//! can make it hold: here one request a connection at a time, its line, its bytes, and the time that it may take.
//! A test of `gabion` includes this file and starts it on a cluster (`gateway_example.rs`).
//!
//! Run it with the coordinator's address, its own, and the directory of its certificate, which `gabion cert issue
//! client` makes: `cargo run -p gabion-wire --example gateway -- 127.0.0.1:7070 127.0.0.1:7080 client`.

use bytes::Bytes;
use gabion_client::{Client, ClientOptions};
use gabion_layout::ByteRange;
use gabion_wire::connect;
use gabion_wire::trust::Security;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Most bytes of a request's line.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// Most bytes that a request reads or writes.
const BODY_BYTES_MAX: u64 = 4 << 20;
/// Most connections at a time.
const CONNECTION_COUNT_MAX: usize = 64;
/// Longest time from one request to the end of the next.
const REQUEST_DEADLINE: Duration = Duration::from_mins(1);

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A request's line.
struct Request {
    is_write: bool,
    name: String,
    range: ByteRange,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [coordinator, listen, certificate] = arguments.as_slice() else {
        eprintln!(
            "usage: gateway COORDINATOR LISTEN CERTIFICATE, two as host:port and a directory"
        );
        std::process::exit(2);
    };
    let client = connect(
        coordinator,
        Security::open(Path::new(certificate))?,
        ClientOptions::default(),
    )
    .await?;
    serve(&client, TcpListener::bind(listen).await?).await
}

/// Serves connections until the listener fails.
pub(crate) async fn serve(client: &Client, listener: TcpListener) -> Result<(), Failure> {
    let places = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let (stream, _) = listener.accept().await?;
        let client = client.clone();
        tokio::spawn(async move {
            // The peer has gone, has sent no request in time, or has been told what was wrong.
            let _ = answer_all(&client, stream).await;
            drop(place);
        });
    }
}

/// Answers the requests of a connection, one after another.
async fn answer_all(client: &Client, stream: TcpStream) -> Result<(), Failure> {
    let mut stream = BufReader::new(stream);
    loop {
        let answered = timeout(REQUEST_DEADLINE, answer(client, &mut stream)).await?;
        match answered {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                // Later bytes of the connection may be the rest of a bad request, so it ends here.
                let line = format!("error {}\n", error.to_string().replace('\n', " "));
                stream.write_all(line.as_bytes()).await?;
                return Ok(());
            }
        }
    }
}

/// Answers one request. False when the peer has ended the connection.
async fn answer(client: &Client, stream: &mut BufReader<TcpStream>) -> Result<bool, Failure> {
    let mut line = String::new();
    let mut limited = (&mut *stream).take(LINE_BYTES_MAX);
    if limited.read_line(&mut line).await? == 0 {
        return Ok(false);
    }
    let request = parse(&line)?;
    let (name, range) = (request.name.as_str(), request.range);
    let bytes = if request.is_write {
        let mut bytes = vec![0; range.length as usize];
        stream.read_exact(&mut bytes).await?;
        client.write(name, range.offset, Bytes::from(bytes)).await?;
        Vec::new()
    } else {
        client.read(name, range).await?
    };
    let head = format!("ok {}\n", bytes.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&bytes).await?;
    Ok(true)
}

fn parse(line: &str) -> Result<Request, Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [verb @ ("read" | "write"), name, offset, length] = words[..] else {
        return Err("a request is 'read' or 'write', a name, an offset and a length".into());
    };
    let number = |word: &str| {
        word.parse::<u64>()
            .map_err(|_| format!("'{word}' is not a number of bytes"))
    };
    let (offset, length) = (number(offset)?, number(length)?);
    if length > BODY_BYTES_MAX || offset.checked_add(length).is_none() {
        return Err(format!("a request has at most {BODY_BYTES_MAX} bytes").into());
    }
    Ok(Request {
        is_write: verb == "write",
        name: name.to_owned(),
        range: ByteRange::new(offset, length),
    })
}
