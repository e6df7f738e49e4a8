//! `gabion hdfs-agent`: its arguments, its start and its end. `hdfs/` tests what it does, on a whole HDFS.

use crate::support::{fails, gabion};
use rustix::process::{Pid, Signal, kill_process};
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
