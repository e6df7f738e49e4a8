//! `gabion hdfs-agent`: its arguments, its start and its end. `hdfs/` tests what it does, on a whole HDFS.

use crate::support::{fails, gabion, run};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

#[test]
fn an_agent_says_where_it_listens_and_ends_when_told() {
    let mut agent = gabion(&["hdfs-agent", "--listen=127.0.0.1:0", "--plugin=127.0.0.1:1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(agent.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("hdfs-agent://127.0.0.1:"), "{line}");
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert!(agent.wait().unwrap().success());
}

#[test]
fn ports_that_do_not_exist_are_refused() {
    let complaint = fails(&["hdfs-agent", "--transfer-port=65000"], 2);
    assert!(complaint.contains("--listen and --plugin"), "{complaint}");
    fails(&["hdfs-agent", "--plugin=10867"], 2);
    fails(&["hdfs-agent", "--listen=192.0.2.1:10866"], 1);
}

#[test]
fn a_lost_chunk_of_hdfs_raid_is_restored_and_wrong_use_is_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    // The plain sum of two blocks, with a checksum behind each 512 bytes: CRC-32 of as many zeros.
    let block = [vec![0; 512], vec![0xb2, 0xaa, 0x75, 0x78]].concat();
    let names = [1, 2, 3].map(|id| path(&format!("blk_{id}_9_2_1_512")));
    for name in &names {
        fs::write(name, &block).expect("write a block");
    }
    let [first, second, parity] = &names;
    fs::remove_file(second).expect("lose a block");
    let out = format!("--out={second}");
    let raid = [
        "hdfs-agent",
        "--restore=hdfs-raid",
        "--codec=xor",
        "--data=2",
    ];
    let said = run(&[&raid[..], &[&out, first, "-", parity]].concat());
    assert!(said.contains("restored chunk 1 with 512 bytes"), "{said}");
    assert_eq!(fs::read(second).expect("the restored block"), block);
    for (arguments, why) in [
        (vec![&*out, first, "-", parity], "is not replaced"),
        (vec![&*out, first, second, parity], "--lost"),
        (vec![&*out, "-", "-", parity], "--lost"),
        (
            vec![&*out, first, "-"],
            "more chunks than its 2 data chunks",
        ),
        (vec![&*out, first, "-", parity, parity], "1 parity chunk"),
        (vec![first, "-", parity], "--out"),
    ] {
        let complaint = fails(&[&raid[..], &arguments].concat(), 2);
        assert!(complaint.contains(why), "{arguments:?}: {complaint}");
    }
    fs::write(parity, [9; 516]).expect("damage a block");
    fs::remove_file(second).expect("lose a block");
    let complaint = fails(&[&raid[..], &[&out, first, "-", parity]].concat(), 1);
    assert!(complaint.contains("is corrupt"), "{complaint}");
    fails(&["hdfs-agent", "--data=2"], 2);
}
