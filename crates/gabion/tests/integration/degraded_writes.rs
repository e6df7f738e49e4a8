//! Writes while nodes are down, on clusters of real processes: bytes of lost chunks are found through
//! the code, and nothing is lost or mixed up when the nodes come back or are replaced.

use crate::support::{TestCluster, fails_on, path_text, pattern, wait_for};

const KIB: usize = 1024;
/// Bytes of a stripe of these tests' pools.
const STRIPE: usize = 256 * KIB;

/// A cluster with a file in each of two pools, one of them with sub-chunks.
struct Bed {
    cluster: TestCluster,
    files: [(&'static str, Vec<u8>); 2],
    write_count: u64,
}

impl Bed {
    fn new() -> Self {
        let cluster = TestCluster::start(3, 3);
        let mut files = [("rs", Vec::new()), ("rdp", Vec::new())];
        for ((name, bytes), code) in files.iter_mut().zip(["rs(4,2)", "rdp(4)"]) {
            let code = format!("--code={code}");
            cluster.run(&["pool", "create", name, &code, "--chunk=64KiB"]);
            *bytes = pattern(3 * STRIPE - 777, 1);
            let source = cluster.path("put");
            std::fs::write(&source, &*bytes).expect("write a temporary file");
            let pool = format!("--pool={name}");
            cluster.run(&["put", path_text(&source), name, &pool]);
        }
        Self {
            cluster,
            files,
            write_count: 0,
        }
    }

    /// Overwrites some bytes of every chunk of every stripe of both files, some across chunks.
    fn write_everywhere(&mut self) {
        for (name, bytes) in &mut self.files {
            for at in (3000..bytes.len() - 70 * KIB).step_by(60 * KIB) {
                self.write_count += 1;
                let length = if self.write_count.is_multiple_of(3) {
                    9 * KIB
                } else {
                    700
                };
                // A write that spans stripes is a replacement, which is another test's.
                let length = length.min(STRIPE - at % STRIPE);
                let new = pattern(length, 100 + self.write_count);
                self.cluster.write(name, at, &new);
                bytes[at..at + length].copy_from_slice(&new);
            }
        }
    }

    #[track_caller]
    fn check(&self, when: &str) {
        for (name, bytes) in &self.files {
            assert!(self.cluster.get(name) == *bytes, "{name} {when}");
        }
    }

    fn wait_until_whole(&self) {
        wait_for("the cluster is whole", || {
            self.cluster.json(&["cluster", "status"])["lost_chunks"] == 0
        });
        // It fails where a node is away; what it says of the others counts here.
        let scrub = self.cluster.output(&["--format=json", "scrub"]).stdout;
        let scrub: serde_json::Value = serde_json::from_slice(&scrub).expect("JSON");
        assert_eq!(scrub["damage"].as_array().map(Vec::len), Some(0), "{scrub}");
    }
}

#[test]
fn writes_go_on_without_a_node_and_outlive_its_return() {
    let mut bed = Bed::new();
    bed.cluster.run(&["chaos", "kill-node", "4"]);
    bed.cluster.wait_until_failed(&[4]);
    bed.write_everywhere();
    bed.check("without the node");
    // The bytes of the lost chunk are in no chunk; a second write of them builds on the first.
    bed.write_everywhere();
    bed.check("written twice without the node");
    bed.cluster.run(&["chaos", "start-node", "4"]);
    bed.cluster.wait_until_failed(&[]);
    bed.check("after the return");
    bed.wait_until_whole();
    bed.write_everywhere();
    // Parity is right only if the stripe can be read without other chunks.
    bed.cluster.run(&["chaos", "kill-node", "1"]);
    bed.cluster.run(&["chaos", "kill-node", "7"]);
    bed.cluster.wait_until_failed(&[1, 7]);
    bed.check("without two other nodes");
}

#[test]
fn writes_wait_where_another_loss_would_cost_data_until_their_stripe_is_repaired() {
    let mut bed = Bed::new();
    let stat = bed.cluster.json(&["stat", "rs"]);
    let nodes = stat["stripes"][0]["nodes"].as_array().expect("nodes");
    let mut lost: Vec<u64> = nodes[1..3]
        .iter()
        .filter_map(serde_json::Value::as_u64)
        .collect();
    lost.sort_unstable();
    for node in &lost {
        bed.cluster.run(&["chaos", "kill-node", &node.to_string()]);
    }
    bed.cluster.wait_until_failed(&lost);
    bed.check("without two nodes");
    bed.cluster.run(&["repair", "pause"]);
    let source = bed.cluster.path("write");
    std::fs::write(&source, b"too late").expect("write a temporary file");
    let arguments = ["write", "rs", "--offset=0", path_text(&source)];
    let refusal = fails_on(&bed.cluster, &arguments, 1);
    assert!(
        refusal.contains("only 4 of the stripe's 6 chunks are left"),
        "{refusal}"
    );
    bed.check("after the refusal");
    // The grace is an hour. Stripes that are written are repaired at once.
    bed.cluster.run(&["repair", "resume"]);
    bed.write_everywhere();
    bed.check("without two nodes, repaired where it was written");
    bed.cluster
        .run(&["chaos", "start-node", &lost[0].to_string()]);
    bed.cluster.wait_until_failed(&lost[1..]);
    bed.write_everywhere();
    bed.check("without one node");
    let repaired = bed.cluster.json(&["repair", "--watch"]);
    assert_eq!(repaired["lost_chunks"], 0);
    bed.check("repaired");
    bed.write_everywhere();
    bed.cluster
        .run(&["chaos", "start-node", &lost[1].to_string()]);
    bed.cluster.wait_until_failed(&[]);
    bed.check("after the return");
    bed.wait_until_whole();
}
