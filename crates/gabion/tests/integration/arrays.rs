//! Nodes on arrays of SSDs, with files for devices: one is lost and replaced while clients write, then
//! another is lost, and every process is killed.

use crate::support::{TestCluster, fails, pattern, wait_for};
use std::fs::{self, File};

/// More than the buffers of the nodes hold, so that devices have stripes of it.
const FILE_BYTES: usize = 64 << 20;

/// A file in the cluster, and what is in it.
struct Written<'a> {
    cluster: &'a TestCluster,
    bytes: Vec<u8>,
    write_count: usize,
}

impl Written<'_> {
    fn write_some(&mut self) {
        let length = 1 + self.write_count * 7919 % 30_000;
        let offset = self.write_count * 1_000_003 % (FILE_BYTES - length);
        let new = pattern(length, self.write_count as u64);
        self.cluster.write("disk", offset, &new);
        self.bytes[offset..offset + length].copy_from_slice(&new);
        self.write_count += 1;
    }

    /// Writes on until a node's log has said something so many times.
    fn write_until(&mut self, node: u32, said: &str, count: usize) {
        let log = self.cluster.path(&format!("cluster/logs/node-{node}.log"));
        wait_for(said, || {
            self.write_some();
            let text = fs::read_to_string(&log).expect("the node has a log");
            text.matches(said).count() >= count
        });
    }

    fn check(&self) {
        assert!(self.cluster.get("disk") == self.bytes, "other bytes");
    }
}

/// Waits until the cluster's status says this of itself and of the third device of node 0, and of no other.
fn check_told(cluster: &TestCluster, light: &str, state: &str) {
    wait_for(state, || {
        let told = cluster.json(&["cluster", "status"]);
        let devices_of = |node: usize| {
            let devices = told["nodes"][node]["array"]["devices"].as_array();
            let devices = devices.expect("each node has an array").iter();
            let named = devices.map(|device| device["state"].as_str().expect("it has a state"));
            named.collect::<Vec<_>>()
        };
        let array = &told["nodes"][0]["array"];
        let is_degraded = array["degraded_stripes"] != 0;
        assert_eq!(devices_of(1), ["ok"; 4]);
        // The cluster's files all lie on one disk here, its devices and its memory.
        assert_eq!(array["memory"], "file_on_devices");
        told["light"] == light
            && devices_of(0) == ["ok", "ok", state, "ok"]
            && is_degraded == (state != "ok")
    });
}

#[test]
fn a_device_is_lost_and_replaced_while_clients_write() {
    let behaviour = ["--lease-ms=1000", "--grace-s=3600", "--engine=tween"];
    let cluster = TestCluster::start_with(3, 2, &behaviour);
    let pool = ["pool", "create", "vm", "--survive=1-rack", "--chunk=1MiB"];
    cluster.run(&pool);
    let bytes = pattern(FILE_BYTES, 1);
    cluster.put("disk", &bytes);
    let mut written = Written {
        cluster: &cluster,
        bytes,
        write_count: 0,
    };
    let device = |index| cluster.path(&format!("cluster/nodes/0/devices/{index}"));
    assert_eq!(cluster.json(&["cluster", "status"])["light"], "green");
    fs::remove_file(device(2)).unwrap();
    written.write_until(0, "is gone or has failed", 1);
    written.check();
    check_told(&cluster, "yellow", "absent");
    File::create(device(2)).unwrap();
    written.write_until(0, "the array is whole again", 1);
    check_told(&cluster, "green", "ok");
    // The bytes of this one are on the others only if the new device holds what it should.
    fs::remove_file(device(0)).unwrap();
    written.write_until(0, "is gone or has failed", 2);
    written.check();
    cluster.kill_all();
    cluster.up();
    written.check();
    written.write_some();
    written.check();
    assert!(cluster.run(&["scrub"]).contains("no damage"));
    let refused = cluster.output(&["chaos", "flip-bit", "0"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_store_is_not_started_with_the_other_engine() {
    let directory = tempfile::tempdir().unwrap();
    let data = format!("--data={}", directory.path().display());
    let node = [
        "node",
        "--insecure",
        "--rack=0",
        "--join=127.0.0.1:1",
        &data,
    ];
    let device = |name: &str| directory.path().join(name).display().to_string();
    let devices = format!("--devices={},{}", device("a"), device("b"));
    fs::create_dir(directory.path().join("store")).unwrap();
    let array = [&node[..], &["--engine=tween", &devices]].concat();
    let said = fails(&array, 1);
    assert!(said.contains("created with --engine files"), "{said}");
    assert!(!said.contains("--init"), "{said}");
    fs::remove_dir(directory.path().join("store")).unwrap();
    File::create(directory.path().join("nvram")).unwrap();
    let said = fails(&node, 1);
    assert!(said.contains("created with --engine tween"), "{said}");
}

#[test]
fn an_array_needs_devices_and_a_directory_none() {
    let node = ["node", "--rack=0", "--join=127.0.0.1:1"];
    let with = |further: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let data = format!("--data={}", directory.path().display());
        let arguments = [&node[..], &[&data], further].concat();
        fails(&arguments, 2)
    };
    let few = with(&["--engine=tween", "--devices=/dev/null"]);
    assert!(few.contains("at least 2 devices, not 1"), "{few}");
    let stray = with(&["--devices=/dev/null,/dev/zero"]);
    assert!(stray.contains("--engine tween"), "{stray}");
}
