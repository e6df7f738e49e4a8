//! Certificates on the command line: an authority, tokens, new nodes, renewal and revocation, with real processes.

use crate::support::{
    TestCluster, complaint, fails, gabion, path_text, pattern, run, text, wait_for,
};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Coordinator and nodes that were started as on real machines.
struct ByHand {
    directory: tempfile::TempDir,
    address: String,
    processes: Vec<Child>,
}

impl ByHand {
    /// Makes an authority and starts a coordinator.
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut by_hand = Self {
            directory,
            address: String::new(),
            processes: Vec::new(),
        };
        let data = by_hand.path("c");
        let made = run(&["init", "--data", path_text(&data)]);
        assert!(made.contains("--init --data"), "{made}");
        let again = fails(&["init", "--data", path_text(&data)], 2);
        assert!(
            again.contains("already has a certificate authority"),
            "{again}"
        );
        let listen = "--listen=127.0.0.1:0";
        by_hand.address =
            by_hand.spawn(&["coordinator", "--init", "--data", path_text(&data), listen]);
        by_hand
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a server; gives what it reports when it is ready.
    fn spawn(&mut self, arguments: &[&str]) -> String {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let mut child = gabion(arguments)
            .stdout(Stdio::piped())
            .stderr(log.expect("a log"))
            .spawn()
            .expect("the binary runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        self.processes.push(child);
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let ready = lines.find_map(|line| line.strip_prefix("ready ").map(str::to_owned));
        ready.unwrap_or_else(|| {
            let log = fs::read_to_string(self.path("log"));
            panic!("{}", log.unwrap_or_default())
        })
    }

    fn authority(&self) -> String {
        format!("--authority={}", self.path("c/ca").display())
    }

    fn token(&self, further: &[&str]) -> PathBuf {
        let authority = self.authority();
        let arguments = [&["cert", "token", &authority], further].concat();
        let path = self.path("token");
        fs::write(&path, run(&arguments)).expect("write the token");
        path
    }

    fn node_arguments(&self, number: u32) -> Vec<String> {
        vec![
            "node".to_owned(),
            "--init".to_owned(),
            format!("--rack={number}"),
            format!("--join={}", self.address),
            format!("--data={}", self.path(&format!("n{number}")).display()),
        ]
    }

    /// The command as a client with the certificate in a directory.
    fn on(&self, tls: &Path, arguments: &[&str]) -> std::process::Command {
        let mut command = gabion(arguments);
        command.arg(format!("--coordinator={}", self.address));
        command.arg(format!("--tls={}", tls.display()));
        command
    }

    fn entries(&self) -> Vec<Value> {
        let listed = run(&["--format=json", "cert", "ls", &self.authority()]);
        serde_json::from_str(&listed).expect("JSON")
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn a_node_joins_by_a_token_that_is_good_for_once() {
    let mut by_hand = ByHand::start();
    let arguments = by_hand.node_arguments(0);
    // Without a certificate it does not even start.
    let output = gabion(&words(&arguments))
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        complaint(&output).contains("holds no certificate"),
        "{}",
        complaint(&output)
    );
    let token = by_hand.token(&[]);
    let with_token = format!("--token={}", token.display());
    let first = [words(&arguments), vec![&with_token]].concat();
    assert_eq!(by_hand.spawn(&first), "node 0");
    // Its certificate has its id now.
    let names = by_hand.entries();
    let last = names.last().expect("certificates were issued");
    assert!(
        last["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("/node/0")),
        "{last}"
    );
    let other = by_hand.node_arguments(1);
    let second = [words(&other), vec![&with_token]].concat();
    let output = gabion(&second).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint(&output).contains("was already used"),
        "{}",
        complaint(&output)
    );
    // It starts again without one, with the one that it has used, and with a new one, which it leaves to another node.
    let (used, new_token) = (by_hand.path("used"), by_hand.path("new-token"));
    fs::rename(&token, &used).expect("rename the token");
    fs::rename(by_hand.token(&[]), &new_token).expect("rename the new one");
    fs::rename(&used, &token).expect("rename the token back");
    let with_new = format!("--token={}", new_token.display());
    let renewed = [words(&arguments), vec![&with_new]].concat();
    for arguments in [words(&arguments), first, renewed, words(&arguments)] {
        let mut node = by_hand.processes.pop().expect("the node");
        node.kill().expect("kill the node");
        node.wait().expect("wait for it");
        assert_eq!(by_hand.spawn(&arguments), "node 0");
    }
    let second = [words(&other), vec![&with_new]].concat();
    assert_eq!(by_hand.spawn(&second), "node 1");
}

#[test]
fn a_certificate_without_an_id_admits_one_node_whose_line_is_revoked_as_a_whole() {
    let mut by_hand = ByHand::start();
    let (tls, copy) = (by_hand.path("n0/tls"), by_hand.path("n1/tls"));
    let out = format!("--out={}", tls.display());
    run(&["cert", "issue", "node", &out, &by_hand.authority()]);
    fs::create_dir_all(&copy).expect("make a directory");
    for file in ["key.pem", "cert.pem", "ca.pem", "revoked.pem"] {
        fs::copy(tls.join(file), copy.join(file)).expect("copy a file");
    }
    let first = by_hand.node_arguments(0);
    assert_eq!(by_hand.spawn(&words(&first)), "node 0");
    let exits_with = |arguments: &[String], why: &str| {
        let output = gabion(&words(arguments)).output().expect("the binary runs");
        let said = complaint(&output);
        assert!(
            output.status.code() == Some(1) && said.contains(why),
            "{said}"
        );
    };
    exits_with(&by_hand.node_arguments(1), "admits one node");
    // A file that cannot be read is named, and the rest goes on.
    let ledger = by_hand.path("c/ca/ledger");
    let before = fs::read_to_string(&ledger).expect("the ledger");
    fs::write(&ledger, format!("{before}izzued\n")).expect("write the ledger");
    let entries = by_hand.entries();
    let is_of_node = |entry: &&Value| {
        let name = entry["name"].as_str().expect("a text");
        name.ends_with("/node") || name.ends_with("/node/0")
    };
    let of_node: Vec<&Value> = entries.iter().filter(is_of_node).collect();
    assert_eq!(of_node.len(), 2, "{entries:?}");
    assert_eq!(of_node[0]["admitted_node"], 0);
    assert_eq!(of_node[0]["line"], of_node[1]["line"]);
    // The one that was issued is revoked, with the one that the node has got for it.
    let serial = of_node[0]["serial"].as_str().expect("a text");
    let output = gabion(&["cert", "revoke", serial, &by_hand.authority()]).output();
    let output = output.expect("the binary runs");
    assert!(
        text(&output.stdout).contains("all 2 certificates"),
        "{output:?}"
    );
    assert!(
        complaint(&output).contains("damaged in the authority's ledger"),
        "{output:?}"
    );
    let mut node = by_hand.processes.pop().expect("the node");
    node.kill().expect("kill the node");
    node.wait().expect("wait for it");
    // The coordinator takes the list in within a second.
    wait_for("the coordinator refuses the node", || {
        let log = fs::read_to_string(by_hand.path("c/tls/revoked.pem"));
        log.is_ok_and(|list| list == fs::read_to_string(by_hand.path("c/ca/revoked.pem")).unwrap())
    });
    exits_with(&first, "certificate is revoked");
}

#[test]
fn a_revoked_client_is_refused_and_others_go_on() {
    let by_hand = ByHand::start();
    let (operator, client) = (by_hand.path("c/operator"), by_hand.path("client"));
    let out = format!("--out={}", client.display());
    run(&["cert", "issue", "client", &out, &by_hand.authority()]);
    for tls in [&operator, &client] {
        let output = by_hand.on(tls, &["ls"]).output().expect("the binary runs");
        assert!(output.status.success(), "{}", complaint(&output));
    }
    // A coordinator is no client.
    let server = by_hand.path("c/tls");
    let output = by_hand.on(&server, &["df"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let error = complaint(&output);
    assert!(error.contains("of an operator or a client"), "{error}");
    // A client is no operator.
    let pool = ["pool", "create", "vm", "--code=rs(2,1)"];
    let output = by_hand
        .on(&client, &pool)
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint(&output).contains("a client may not send"),
        "{}",
        complaint(&output)
    );
    let entries = by_hand.entries();
    let entry = entries.iter().find(|entry| {
        entry["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("/client"))
    });
    let serial = entry.expect("it was issued")["serial"]
        .as_str()
        .expect("a text");
    run(&["cert", "revoke", serial, &by_hand.authority()]);
    wait_for("the coordinator refuses it", || {
        let output = by_hand
            .on(&client, &["ls"])
            .output()
            .expect("the binary runs");
        complaint(&output).contains("certificate is revoked")
    });
    let output = by_hand
        .on(&operator, &["ls"])
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{}", complaint(&output));
    fails(&["cert", "revoke", "77", &by_hand.authority()], 2);
    fails(&["cert", "revoke", "x", &by_hand.authority()], 2);
}

#[test]
fn without_certificates_servers_and_clients_keep_to_loopback() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = format!("--data={}", directory.path().join("c").display());
    let coordinator = [
        "coordinator",
        "--insecure",
        "--init",
        &data,
        "--listen=0.0.0.0:0",
    ];
    let error = fails(&coordinator, 2);
    assert!(error.contains("--insecure is for loopback only"), "{error}");
    let error = fails(&["ls", "--insecure", "--coordinator=10.0.0.1:7070"], 2);
    assert!(error.contains("--insecure is for loopback only"), "{error}");
    let error = fails(&["ls", "--coordinator=127.0.0.1:7070"], 2);
    assert!(error.contains("no certificate given"), "{error}");
}

#[test]
fn an_insecure_cluster_says_so_at_each_start_and_stays_so() {
    let behaviour = ["--insecure", "--lease-ms=1000", "--grace-s=3600"];
    let cluster = TestCluster::start_with(2, 1, &behaviour);
    cluster.run(&["ls"]);
    cluster.run(&["ls", "--insecure"]);
    let said = || {
        let log = fs::read_to_string(cluster.path("cluster/logs/coordinator.log"));
        log.expect("the log")
            .matches("--insecure: any process")
            .count()
    };
    assert_eq!(said(), 1);
    cluster.kill_all();
    cluster.up();
    assert_eq!(said(), 2);
}

#[test]
fn certificates_are_made_anew_while_the_cluster_runs() {
    let cluster = TestCluster::start(2, 1);
    cluster.run(&["pool", "create", "vm", "--code=rs(1,1)", "--chunk=256KiB"]);
    let bytes = pattern(300_000, 1);
    cluster.put("f", &bytes);
    let node = |serial: &str| {
        let entries = cluster.json(&["cert", "ls"]);
        let entries = entries.as_array().expect("a list").clone();
        let valid = entries.into_iter().filter(|entry| {
            entry["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("/node/1"))
                && entry["serial"] != serial
        });
        valid
            .map(|entry| entry["serial"].clone())
            .collect::<Vec<_>>()
    };
    let before = node("");
    let out = format!("--out={}", cluster.path("cluster/nodes/1/tls").display());
    cluster.run(&["cert", "issue", "node", "--node=1", &out]);
    let first = before[0].as_str().expect("a text");
    assert_eq!(node(first).len(), 1);
    // The old one is worth nothing; the node has to take in the new one before it is reached again.
    cluster.run(&["cert", "revoke", first]);
    wait_for("the node is reached with its new certificate", || {
        cluster.json(&["cluster", "status"])["light"] == "green"
            && cluster.output(&["scrub"]).status.success()
    });
    assert!(cluster.get("f") == bytes);
}
