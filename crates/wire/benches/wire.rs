//! Measures the wire over loopback: slices against bare TCP in the same run, calls, staged bytes, and the accuracy of
//! the emulated links.
//!
//! `cargo xtask bench wire [--quick]`. Both ends run in this process on two threads, so the figures
//! are those of one machine's processors, not of a network. Each figure is the best of some rounds,
//! and the rounds of wire and of bare TCP alternate: other work on the machine then hurts neither
//! more than the other.

use bytes::Bytes;
use gabion_layout::{ChunkIndex, NodeId, RackId, StripeId};
use gabion_plan::ValueId;
use gabion_protocol::message::{Flow, NodeReply, NodeRequest, Purpose, RunId, ask};
use gabion_wire::frame::Kind;
use gabion_wire::trust::{Authority, Name, Security};
use gabion_wire::{
    Connection, Endpoint, Frame, Handler, Hello, LinkSpec, LinkTable, Options, PeerIdentity,
    Responder, Role, Rpc,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Bytes of new data in one request.
const STAGE_BYTES: usize = 1 << 20;

/// Counts slices, and says when as many have come as should.
#[derive(Default)]
struct Receiver {
    missing_count: AtomicU64,
    all_came: Notify,
}

impl Handler for Receiver {
    fn node_request(&self, _: &Arc<Connection>, _: NodeRequest, responder: Responder<NodeRequest>) {
        responder.reply(&NodeReply::Done);
    }

    fn flow(&self, _: &Arc<Connection>, _: Flow) {
        if self.missing_count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all_came.notify_one();
        }
    }
}

/// Amounts of work.
struct Scale {
    rounds: usize,
    bytes_a_round: usize,
    call_count: usize,
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let scale = if is_quick {
        Scale {
            rounds: 2,
            bytes_a_round: 128 << 20,
            call_count: 2_000,
        }
    } else {
        Scale {
            rounds: 7,
            bytes_a_round: 1 << 30,
            call_count: 20_000,
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the run-time starts");
    runtime.block_on(run(&scale));
}

async fn run(scale: &Scale) {
    let receiver = Arc::new(Receiver::default());
    let (client, options) = (Hello::client(), Options::default());
    let connection = connect(&receiver, client, client, options).await;
    let secure = connect_secured(&receiver).await;
    println!("slices          wire GB/s   tcp GB/s   wire / tcp   TLS GB/s   TLS / wire");
    for slice_bytes in [32 << 10, 256 << 10, 1 << 20] {
        let count = scale.bytes_a_round / slice_bytes;
        let (mut wire, mut tcp, mut tls) = (Duration::MAX, Duration::MAX, Duration::MAX);
        for _ in 0..scale.rounds {
            wire = wire.min(send_slices(&connection, &receiver, slice_bytes, count).await);
            tcp = tcp.min(send_bare(slice_bytes, count).await);
            tls = tls.min(send_slices(&secure, &receiver, slice_bytes, count).await);
        }
        let gb = (count * slice_bytes) as f64 / 1e9;
        let [wire, tcp, tls] = [wire, tcp, tls].map(|time| gb / time.as_secs_f64());
        println!(
            "{:>5} KiB {wire:>15.2} {tcp:>10.2} {:>12.2} {tls:>10.2} {:>12.2}",
            slice_bytes >> 10,
            wire / tcp,
            tls / wire
        );
    }
    println!("\ncalls           median us     p99 us      calls/s");
    for (concurrent, name, connection) in [
        (1, "", &connection),
        (64, "", &connection),
        (1, ", TLS", &secure),
        (64, ", TLS", &secure),
    ] {
        let (mut latencies, elapsed) = call(connection, concurrent, scale.call_count).await;
        latencies.sort_unstable();
        let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_secs_f64();
        let rate = latencies.len() as f64 / elapsed.as_secs_f64();
        let (median, p99) = (at(0.5) * 1e6, at(0.99) * 1e6);
        let name = format!("{concurrent} at once{name}");
        println!("{name:<15} {median:>9.1} {p99:>10.1} {rate:>12.0}");
    }
    println!(
        "\nstaged in 1 MiB requests, 4 at once: {:.2} GB/s",
        stage(&connection, scale).await
    );
    let (encode, decode) = encode_stage(scale);
    println!("of that alone: encoding {encode:.2} GB/s, decoding {decode:.2} GB/s");
    shaped(scale).await;
}

/// Measures the rate of a flow over emulated links against the links' rate.
async fn shaped(scale: &Scale) {
    println!("\nemulated links  slices      MB/s    measured     share");
    for (bytes_per_s, slice_bytes) in [
        (50_000_000, 32 << 10),
        (50_000_000, 1 << 20),
        (1_250_000_000, 32 << 10),
        (1_250_000_000, 1 << 20),
    ] {
        let directory = tempfile::tempdir().expect("the machine has room for a small file");
        let spec = LinkSpec {
            node_bytes_per_s: bytes_per_s,
            rack_bytes_per_s: bytes_per_s,
        };
        let links = LinkTable::create(directory.path(), spec, 2, 2).expect("and can map it");
        let options = Options {
            links: Some(Arc::new(links)),
            ..Options::default()
        };
        let [from, to] = [0, 1].map(|at| Hello {
            identity: PeerIdentity {
                node: Some(NodeId(at)),
                rack: Some(RackId(at)),
            },
            role: Role::Node,
            cluster: None,
        });
        let receiver = Arc::new(Receiver::default());
        let connection = connect(&receiver, from, to, options).await;
        let seconds = if scale.rounds > 2 { 2 } else { 1 };
        let count = bytes_per_s as usize * seconds / slice_bytes;
        let elapsed = send_slices(&connection, &receiver, slice_bytes, count).await;
        let nominal = bytes_per_s as f64 / 1e6;
        let measured = (count * slice_bytes) as f64 / 1e6 / elapsed.as_secs_f64();
        let share = measured / nominal;
        let slice_kib = slice_bytes >> 10;
        println!(
            "{:14} {slice_kib:>5} KiB {nominal:>9.0} {measured:>11.1} {share:>9.3}",
            ""
        );
        connection.close("measured");
    }
}

/// The same from a client to a node that both have certificates.
async fn connect_secured(receiver: &Arc<Receiver>) -> Arc<Connection> {
    let directory = tempfile::tempdir().expect("the machine has room for small files");
    let cluster = gabion_layout::ClusterId(1);
    let authority = Authority::create(&directory.path().join("ca"), cluster).expect("keys");
    let certified = |name: Name| {
        let own = directory.path().join(name.holder());
        let issued = authority.issue_into(&own, name, Authority::LIFETIME);
        issued.expect("the authority signs");
        Options {
            security: Security::open(&own).expect("it was just issued"),
            ..Options::default()
        }
    };
    let node = certified(Name::of_node(cluster, Some(NodeId(0))));
    let client = certified(Name::of(cluster, Role::Client));
    let to = Hello {
        role: Role::Node,
        ..Hello::client()
    };
    connect_with(receiver, (Hello::client(), client), (to, node)).await
}

/// A connection from a process that is `from` to `receiver`, which is `to`.
async fn connect(
    receiver: &Arc<Receiver>,
    from: Hello,
    to: Hello,
    options: Options,
) -> Arc<Connection> {
    connect_with(receiver, (from, options.clone()), (to, options)).await
}

async fn connect_with(
    receiver: &Arc<Receiver>,
    (from, from_options): (Hello, Options),
    (to, to_options): (Hello, Options),
) -> Arc<Connection> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address")
        .to_string();
    let handler: Arc<Receiver> = Arc::clone(receiver);
    let server = Endpoint::new(to, handler, to_options, Arc::default());
    tokio::spawn(server.serve(listener));
    let handler = Arc::<Receiver>::default();
    let client = Endpoint::new(from, handler, from_options, Arc::default());
    Connection::connect(&address, &client)
        .await
        .expect("the server listens")
}

/// Time to send `count` slices until all have arrived.
async fn send_slices(
    connection: &Connection,
    receiver: &Receiver,
    slice_bytes: usize,
    count: usize,
) -> Duration {
    let bytes = Bytes::from(vec![7; slice_bytes]);
    receiver
        .missing_count
        .store(count as u64, Ordering::Relaxed);
    let start = Instant::now();
    for slice in 0..count as u64 {
        let (run, value, purpose) = (RunId(1), ValueId(1), Purpose::Repair);
        let flow = Flow::Slice {
            run,
            value,
            slice,
            purpose,
            bytes: bytes.clone(),
        };
        connection
            .send_flow(flow)
            .await
            .expect("the connection lives");
    }
    receiver.all_came.notified().await;
    start.elapsed()
}

/// Time to move the same bytes over a socket without frames and checksums.
async fn send_bare(slice_bytes: usize, count: usize) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    let reader = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the sender connects");
        let mut bytes = vec![0; slice_bytes];
        for _ in 0..count {
            stream
                .read_exact(&mut bytes)
                .await
                .expect("the sender sends all");
        }
        Instant::now()
    });
    let mut stream = TcpStream::connect(address)
        .await
        .expect("the reader listens");
    let sender = tokio::spawn(async move {
        let bytes = vec![7; slice_bytes];
        let start = Instant::now();
        for _ in 0..count {
            stream
                .write_all(&bytes)
                .await
                .expect("the reader reads all");
        }
        (start, stream)
    });
    let (start, _stream) = sender.await.expect("the sender does not panic");
    reader.await.expect("the reader does not panic") - start
}

/// Each call's latency, and the time of all.
async fn call(
    connection: &Arc<Connection>,
    concurrent: usize,
    call_count: usize,
) -> (Vec<Duration>, Duration) {
    let start = Instant::now();
    let callers: Vec<_> = (0..concurrent)
        .map(|_| {
            let connection = Arc::clone(connection);
            tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(call_count / concurrent);
                for number in 0..(call_count / concurrent) as u64 {
                    let stripe = StripeId(number);
                    let request = NodeRequest::Attest(ask::Attest { stripe });
                    let start = Instant::now();
                    call_once(&connection, &request).await;
                    latencies.push(start.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::with_capacity(call_count);
    for caller in callers {
        latencies.extend(caller.await.expect("a caller does not panic"));
    }
    (latencies, start.elapsed())
}

async fn call_once(connection: &Connection, request: &NodeRequest) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let reply = connection.call_node(request, deadline).await;
    assert_eq!(reply.expect("the connection lives"), NodeReply::Done);
}

/// A request with [`STAGE_BYTES`] of new bytes.
fn staging() -> NodeRequest {
    let bytes = Bytes::from(vec![7; STAGE_BYTES]);
    NodeRequest::Stage(ask::Stage {
        run: RunId(1),
        stripe: StripeId(1),
        chunk: ChunkIndex(0),
        offset: 0,
        bytes,
        ticket: None,
    })
}

/// GB/s of a staging request into a frame, checksum included, and out of it.
fn encode_stage(scale: &Scale) -> (f64, f64) {
    let request = staging();
    let count = scale.bytes_a_round / STAGE_BYTES;
    let (mut encode, mut decode) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..count {
        let start = Instant::now();
        let frame = Frame::message(Kind::NodeRequest, 1, &request, request.size_hint_bytes())
            .expect("1 MiB fits in a frame");
        encode += start.elapsed();
        let start = Instant::now();
        let decoded: NodeRequest = frame.decode_message().expect("it was just encoded");
        decode += start.elapsed();
        assert_eq!(decoded, request);
    }
    let gb = (count * STAGE_BYTES) as f64 / 1e9;
    (gb / encode.as_secs_f64(), gb / decode.as_secs_f64())
}

/// GB/s of bytes staged in requests.
async fn stage(connection: &Arc<Connection>, scale: &Scale) -> f64 {
    const CALLER_COUNT: usize = 4;
    let count = scale.bytes_a_round / STAGE_BYTES / CALLER_COUNT;
    let start = Instant::now();
    let callers: Vec<_> = (0..CALLER_COUNT)
        .map(|_| {
            let connection = Arc::clone(connection);
            tokio::spawn(async move {
                let request = staging();
                for _ in 0..count {
                    call_once(&connection, &request).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("a caller does not panic");
    }
    (count * CALLER_COUNT * STAGE_BYTES) as f64 / 1e9 / start.elapsed().as_secs_f64()
}
