//! Reads and writes go on while a node is killed, hangs, or the coordinator is away, and an open file's
//! reader hardly notices.

use crate::support::{TestCluster, pattern, wait_for};
use gabion_client::{Client, ClientOptions, File};
use gabion_layout::ByteRange;
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KIB: u64 = 1024;
const FILE_BYTES: u64 = 1024 * KIB;
const PIECE_BYTES: u64 = 16 * KIB;
/// The client's deadline, for which a read would wait that no other source is asked for.
const DEADLINE: Duration = Duration::from_mins(4);
/// Far above what a read takes on a busy machine, and far below the deadline.
const READ_LIMIT: Duration = Duration::from_mins(2);

async fn connect(cluster: &TestCluster) -> Client {
    let options = ClientOptions {
        deadline: DEADLINE,
        ..ClientOptions::default()
    };
    let client = gabion_wire::connect(&cluster.coordinator(), cluster.security(), options).await;
    client.expect("the coordinator answers")
}

/// Six nodes with a file of four stripes, and what is in it.
fn start(behaviour: &[&str]) -> (TestCluster, Vec<u8>) {
    let cluster = TestCluster::start_with(3, 2, behaviour);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let bytes = pattern(FILE_BYTES as usize, 1);
    cluster.put("disk", &bytes);
    (cluster, bytes)
}

/// Reads pieces of a file, one after another, and checks them.
struct Reader {
    over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Duration>,
}

impl Reader {
    fn start(file: File, expected: Vec<u8>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            let mut offset = 0;
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let read = file.read(ByteRange::new(offset, PIECE_BYTES)).await;
                let read = read.unwrap_or_else(|error| panic!("at {offset}: {error}"));
                let piece = offset as usize..(offset + PIECE_BYTES) as usize;
                assert!(read == expected[piece], "wrong bytes at {offset}");
                longest = longest.max(began.elapsed());
                offset = (offset + PIECE_BYTES) % FILE_BYTES;
            }
            longest
        });
        Self { over, task }
    }

    /// Ends it, and says how long its longest read took.
    async fn longest(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.task.await.expect("every read was right")
    }
}

/// The longest read while `trouble` happens and for some seconds after it.
async fn longest_read(trouble: impl FnOnce(&TestCluster)) -> Duration {
    let (cluster, bytes) = start(&["--grace-s=3600"]);
    let file = connect(&cluster).await.open("disk").await;
    let file = file.expect("the file is there");
    let reader = Reader::start(file, bytes);
    tokio::time::sleep(Duration::from_secs(1)).await;
    trouble(&cluster);
    tokio::time::sleep(Duration::from_secs(6)).await;
    reader.longest().await
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_hardly_notice_a_killed_node() {
    let longest = longest_read(|cluster| cluster.signal("node-3", Signal::KILL)).await;
    println!("longest read after SIGKILL of a node: {longest:?}");
    assert!(longest < READ_LIMIT, "{longest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_hardly_notice_a_node_that_hangs() {
    let longest = longest_read(|cluster| cluster.signal("node-3", Signal::STOP)).await;
    println!("longest read after SIGSTOP of a node: {longest:?}");
    assert!(longest < READ_LIMIT, "{longest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_is_suspect_long_before_its_lease_is_over() {
    let (cluster, _) = start(&["--lease-ms=900000", "--grace-s=3600"]);
    cluster.signal("node-3", Signal::KILL);
    // Silence alone makes it suspect after eleven minutes.
    wait_for("node 3 is suspect", || {
        let status = cluster.json(&["cluster", "status"]);
        status["nodes"][3]["state"] == "suspect"
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_is_read_without_the_coordinator_and_written_when_it_is_back() {
    let (cluster, bytes) = start(&["--lease-ms=1000", "--grace-s=3600"]);
    let client = connect(&cluster).await;
    let file = client.open("disk").await.unwrap();
    let range = |offset| ByteRange::new(offset, PIECE_BYTES);
    file.write(0, bytes[..PIECE_BYTES as usize].to_vec().into())
        .await
        .unwrap();
    cluster.signal("coordinator", Signal::KILL);
    let reader = Reader::start(file.clone(), bytes.clone());
    tokio::time::sleep(Duration::from_secs(3)).await;
    // All leases have run out by now.
    let longest = reader.longest().await;
    println!("longest read without the coordinator: {longest:?}");
    assert!(longest < READ_LIMIT, "{longest:?}");
    let new = pattern(PIECE_BYTES as usize, 2);
    let written = tokio::spawn({
        let (file, new) = (file.clone(), new.clone());
        async move { file.write(PIECE_BYTES, new.into()).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!written.is_finished(), "no write without leases");
    let read = file.read(range(PIECE_BYTES)).await.unwrap();
    let old = &bytes[PIECE_BYTES as usize..2 * PIECE_BYTES as usize];
    assert!(read == old || read == new);
    cluster.up();
    written.await.unwrap().unwrap();
    assert!(file.read(range(PIECE_BYTES)).await.unwrap() == new);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_hangs_holds_up_no_reads() {
    let (cluster, bytes) = start(&["--lease-ms=1000", "--grace-s=3600"]);
    let file = connect(&cluster).await.open("disk").await.unwrap();
    cluster.signal("coordinator", Signal::STOP);
    let reader = Reader::start(file, bytes);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let longest = reader.longest().await;
    println!("longest read while the coordinator hangs: {longest:?}");
    assert!(longest < READ_LIMIT, "{longest:?}");
    cluster.signal("coordinator", Signal::CONT);
}
