//! Reads in append phases while nodes are down, on clusters of real processes: appended bytes of lost chunks come from
//! logs, without a commit, a repair or the nodes' return.

use crate::support::{TestCluster, complaint, path_text, pattern, wait_for};
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, NodeId, StripeId, Topology};
use gabion_planner::Stripe;
use gabion_planner::update::cau;

const KIB: usize = 1024;

/// A cluster with a file in a pool of a scheme with append phases. The updates of the file wait for their commit.
struct Bed {
    cluster: TestCluster,
    bytes: Vec<u8>,
}

impl Bed {
    /// Three racks of three nodes; every chunk of the file's stripes has appended bytes, some of them twice.
    fn new(scheme: &str, code: &str, stripe_count: usize) -> Self {
        let cluster = TestCluster::start(3, 3);
        let (update, code) = (format!("--update={scheme}"), format!("--code={code}"));
        let arguments = ["--survive", "1-rack", "--chunk=64KiB", &update, &code];
        cluster.run(&[&["pool", "create", "p"], &arguments[..]].concat());
        let mut bytes = pattern(stripe_count * 256 * KIB, 1);
        cluster.put("file", &bytes);
        let offsets = (1000..bytes.len() - 9 * KIB).step_by(31 * KIB);
        let within_stripe = offsets.filter(|at| at % (256 * KIB) < 240 * KIB);
        for (number, at) in within_stripe.flat_map(|at| [at, at + 500]).enumerate() {
            let new = pattern(5000, 100 + number as u64);
            cluster.write("file", at, &new);
            bytes[at..at + new.len()].copy_from_slice(&new);
        }
        Self { cluster, bytes }
    }

    /// The nodes of the file's first stripe.
    fn nodes(&self) -> Vec<u64> {
        let stat = self.cluster.json(&["stat", "file"]);
        let nodes = stat["stripes"][0]["nodes"].as_array().expect("nodes");
        nodes.iter().filter_map(serde_json::Value::as_u64).collect()
    }

    fn kill(&self, node: u64) {
        self.cluster.run(&["chaos", "kill-node", &node.to_string()]);
    }

    #[track_caller]
    fn check(&self, when: &str) {
        assert!(self.cluster.get("file") == self.bytes, "{when}");
    }

    #[track_caller]
    fn check_that_updates_wait(&self, when: &str) {
        let stat = self.cluster.json(&["stat", "file"]);
        let stripes = stat["stripes"].as_array().expect("stripes");
        assert!(stripes.iter().all(|s| s["appending"] == true), "{when}");
    }

    /// Kills the nodes of a rack, and reads after the last, or after each.
    #[track_caller]
    fn lose_rack(&self, rack: u64, reads_after_each: bool) {
        for node in 3 * rack..3 * rack + 3 {
            self.kill(node);
            if reads_after_each {
                self.check(&format!("without nodes {} to {node}", 3 * rack));
            }
        }
        self.check(&format!("without rack {rack}"));
        self.check_that_updates_wait(&format!("without rack {rack}"));
    }

    fn start(&self, nodes: impl Iterator<Item = u64>) {
        for node in nodes {
            self.cluster
                .run(&["chaos", "start-node", &node.to_string()]);
        }
        self.cluster.wait_until_failed(&[]);
        wait_for("the cluster is whole", || {
            self.cluster.json(&["cluster", "status"])["lost_chunks"] == 0
        });
    }
}

#[track_caller]
fn check_every_rack(scheme: &str) {
    let bed = Bed::new(scheme, "rs(4,2)", 2);
    bed.check_that_updates_wait("with all nodes");
    for rack in 0..3 {
        bed.lose_rack(rack, rack == 2);
        bed.start(3 * rack..3 * rack + 3);
        bed.check(&format!("after the return of rack {rack}"));
    }
}

#[test]
fn appended_bytes_of_parix_are_read_without_any_rack_and_without_a_commit() {
    check_every_rack("parix");
}

#[test]
fn appended_bytes_of_cau_are_read_without_any_rack_and_without_a_commit() {
    check_every_rack("cau");
}

/// Each parity node has all that was appended, so one more loss costs nothing that the code survives.
#[test]
fn appended_bytes_of_parix_are_read_while_any_k_chunks_are_left() {
    let bed = Bed::new("parix", "rs(4,4)", 1);
    // One node has no chunk of the stripe.
    let nodes = bed.nodes();
    let in_rack = |rack: u64| nodes.iter().filter(move |node| **node / 3 == rack).count();
    let rack = (0..3).find(|rack| in_rack(*rack) == 3);
    let rack = rack.expect("eight of nine nodes have chunks");
    bed.lose_rack(rack, true);
    let left: Vec<u64> = nodes.into_iter().filter(|node| node / 3 != rack).collect();
    assert_eq!(left.len(), 5);
    // The node that is asked first is the primary.
    bed.kill(left[0]);
    bed.check("without a rack and the primary");
    bed.check_that_updates_wait("without a rack and the primary");
}

/// The node with the interim replica of a stripe's data chunk 0.
fn keeper(nodes: &[u64]) -> u64 {
    let code: Code = "rs(4,4)".parse().expect("a code");
    let placement: Vec<NodeId> = nodes.iter().map(|&node| NodeId(node as u32)).collect();
    let stripe = Stripe {
        id: StripeId(0),
        geometry: Geometry::new(4, 4, 1, 64 << 10).expect("a geometry"),
        code: &code,
        placement: &placement,
        lost: &[],
    };
    let keepers = cau::keepers(&stripe, &Topology::uniform(3, 3), ChunkIndex(0), 1);
    u64::from(keepers.expect("there are four parity nodes")[0].0)
}

/// With one interim replica, CAU promises one failure: when a data node and the node with its replica are gone, no
/// other node has the acknowledged bytes. The read must not give the bytes of the last commit in their place.
#[test]
fn a_read_of_cau_waits_for_the_nodes_that_alone_have_acknowledged_bytes() {
    let bed = Bed::new("cau", "rs(4,4)", 1);
    let nodes = bed.nodes();
    let mut gone = [nodes[0], keeper(&nodes)];
    gone.sort_unstable();
    for node in gone {
        bed.kill(node);
    }
    let file = bed.cluster.path("got");
    let got = bed.cluster.output(&["get", "file", path_text(&file)]);
    assert!(!got.status.success(), "no node has the bytes");
    let complaint = complaint(&got);
    assert!(complaint.contains("the last updates of"), "{complaint}");
    bed.start(gone.into_iter());
    bed.check("after the return of the nodes");
}
