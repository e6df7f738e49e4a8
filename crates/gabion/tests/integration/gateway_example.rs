//! The example of a gateway, `crates/wire/examples/gateway.rs`, started on a cluster of real processes.

#[path = "../../../wire/examples/gateway.rs"]
#[expect(dead_code, reason = "the test connects by itself")]
mod gateway;

use crate::support::{TestCluster, pattern};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Bytes of the file: three stripes, the last one in part.
const SIZE: usize = 700_000;

/// The example on a cluster, and a connection to it.
struct Bed {
    cluster: TestCluster,
    expected: Vec<u8>,
    serving: JoinHandle<Result<(), gateway::Failure>>,
    stream: BufReader<TcpStream>,
}

impl Bed {
    async fn new() -> Self {
        let cluster = TestCluster::start(3, 2);
        cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
        let expected = pattern(SIZE, 1);
        cluster.put("disk", &expected);
        let client = cluster.client().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let serving = tokio::spawn(async move { gateway::serve(&client, listener).await });
        let stream = TcpStream::connect(address).await.expect("it listens");
        Self {
            cluster,
            expected,
            serving,
            stream: BufReader::new(stream),
        }
    }

    /// Sends a request and its bytes. Returns the line of the reply.
    async fn ask(&mut self, request: &str, bytes: &[u8]) -> String {
        let line = format!("{request}\n");
        let sent = [line.as_bytes(), bytes].concat();
        self.stream.write_all(&sent).await.expect("it reads");
        let mut line = String::new();
        self.stream.read_line(&mut line).await.expect("it replies");
        line
    }

    async fn check_write(&mut self, offset: usize, seed: u64) {
        let new = pattern(5_000, seed);
        let request = format!("write disk {offset} {}", new.len());
        assert_eq!(self.ask(&request, &new).await, "ok 0\n");
        self.expected[offset..offset + new.len()].copy_from_slice(&new);
    }

    async fn check_read(&mut self) {
        let head = self.ask(&format!("read disk 0 {SIZE}"), &[]).await;
        assert_eq!(head, format!("ok {SIZE}\n"));
        let mut got = vec![0; SIZE];
        self.stream.read_exact(&mut got).await.expect("the bytes");
        assert!(got == self.expected, "the file's bytes");
    }
}

#[tokio::test]
async fn the_example_of_a_gateway_serves_a_file_while_a_node_is_lost() {
    let mut bed = Bed::new().await;
    bed.check_read().await;
    // In one chunk, and over the border of two stripes.
    bed.check_write(70_000, 2).await;
    bed.check_write(260_000, 3).await;
    bed.check_read().await;

    bed.cluster.signal("node-1", Signal::KILL);
    bed.check_read().await;
    bed.check_write(66_000, 4).await;
    bed.check_write(400_000, 5).await;
    bed.check_read().await;
    assert!(bed.cluster.get("disk") == bed.expected, "durable bytes");

    let refused = bed.ask("read none 0 1", &[]).await;
    assert!(
        refused.starts_with("error ") && refused.contains("none"),
        "{refused}"
    );
    assert!(!bed.serving.is_finished(), "it serves other connections");
    bed.serving.abort();
}
