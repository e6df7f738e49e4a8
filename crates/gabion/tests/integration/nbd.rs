//! Images: the commands, and the server of block devices on clusters of real processes, with Debian's tools.

use crate::support::nbd::{ImageServer, NBD_CLIENT, PYTHON, has_nbd_tools, tool};
use crate::support::{TestCluster, fails, fails_on, path_text, pattern, text};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Each command of libnbd, as the server's own tests run it on memory.
const COMMANDS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../nbd/tests/integration/commands.py"
);

/// A cluster with a pool whose segments have 64 KiB, and an image of this size.
fn cluster(size: &str) -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=16KiB"]);
    cluster.run(&["image", "create", "vm/disk", &format!("--size={size}")]);
    cluster
}

#[test]
fn images_are_created_listed_resized_and_deleted() {
    let cluster = cluster("10GiB");
    cluster.run(&["pool", "create", "cold", "--code=rs(2,2)"]);
    cluster.run(&["image", "create", "cold/disk", "--size=1GiB"]);
    cluster.run(&["create", "plain", "--size=4096", "--pool=vm"]);
    let names = |arguments: &[&str]| -> Vec<String> {
        let listed = cluster.json(arguments);
        let listed = listed.as_array().expect("a list");
        let names = listed.iter().map(|image| image["name"].as_str());
        names.map(|name| name.expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&["image", "ls"]), ["cold/disk", "vm/disk"]);
    assert_eq!(names(&["image", "ls", "vm"]), ["vm/disk"]);
    let info = cluster.json(&["image", "info", "vm/disk"]);
    assert_eq!(info["bytes"], 10_u64 << 30);
    assert_eq!(info["stored_bytes"], 0);
    assert_eq!(info["segment_bytes"], 65536);
    cluster.write("vm/disk", 100_000, b"some bytes");
    let info = cluster.json(&["image", "info", "vm/disk"]);
    assert_eq!(info["stored_bytes"], 65536);
    assert_eq!(info["failures_left"], 2);
    cluster.run(&["image", "snapshot", "vm/disk", "vm/disk@1"]);
    cluster.run(&["image", "clone", "vm/disk@1", "vm/test"]);
    let elsewhere = ["image", "clone", "vm/disk", "cold/test"];
    let error = fails_on(&cluster, &elsewhere, 2);
    assert!(error.contains("vm/NAME"), "{error}");
    cluster.write("vm/test", 100_000, b"OTHER");
    let read = |name| {
        let copy = cluster.path("copy");
        cluster.run(&[
            "get",
            name,
            path_text(&copy),
            "--offset=100000",
            "--length=10",
        ]);
        std::fs::read(copy).expect("read a file")
    };
    assert_eq!(read("vm/disk@1"), b"some bytes");
    assert_eq!(read("vm/test"), b"OTHERbytes");
    let listed = names(&["image", "ls", "vm"]);
    assert_eq!(listed, ["vm/disk", "vm/disk@1", "vm/test"]);
    let kinds = cluster.json(&["image", "ls", "vm"]);
    let is_snapshot = |index: usize| kinds[index]["snapshot"].as_bool();
    assert_eq!(
        [0, 1, 2].map(is_snapshot),
        [Some(false), Some(true), Some(false)]
    );
    cluster.run(&["image", "rm", "vm/disk@1", "vm/test"]);
    cluster.run(&["image", "resize", "vm/disk", "--size=20GiB"]);
    let error = fails_on(&cluster, &["image", "resize", "vm/disk", "--size=1GiB"], 2);
    assert!(error.contains("confirm with --shrink"), "{error}");
    cluster.run(&["image", "resize", "vm/disk", "--size=1GiB", "--shrink"]);
    assert_eq!(
        cluster.json(&["image", "info", "vm/disk"])["bytes"],
        1 << 30
    );
    cluster.run(&["image", "rm", "vm/disk"]);
    assert_eq!(names(&["image", "ls"]), ["cold/disk"]);
}

#[test]
fn wrong_images_get_one_plain_sentence() {
    for (arguments, expected) in [
        (vec!["image", "create", "disk", "--size=1GiB"], "POOL/NAME"),
        (vec!["image", "create", "vm/", "--size=1GiB"], "POOL/NAME"),
        (
            vec!["image", "create", "V M/d", "--size=1GiB"],
            "a pool's name",
        ),
        (
            vec!["image", "create", "vm/d", "--size=1000"],
            "multiple of 512",
        ),
        (
            vec!["image", "create", "vm/d", "--size=0"],
            "multiple of 512",
        ),
        (
            vec!["image", "create", "vm/d", "--size=big"],
            "is not a size",
        ),
        (vec!["image", "create", "vm/d"], "--size"),
        (vec!["image", "rm"], "NAMES"),
        (vec!["nbd", "serve", "disk"], "POOL/NAME"),
        (vec!["nbd", "serve", "--listen=nowhere"], "HOST:PORT"),
        (vec!["nbd", "serve", "--metrics=here"], "HOST:PORT"),
        (vec!["nbd", "serve"], "--dir"),
        (vec!["nbd", "map"], "IMAGE"),
        (vec!["nbd", "map", "vm/d", "--server=x"], "HOST:PORT"),
        (
            vec!["nbd", "serve", "--tls-any-client"],
            "--tls-certificates",
        ),
    ] {
        let error = fails(&arguments, 2).replace("\n  ", " ");
        assert!(error.contains(expected), "gabion {arguments:?}: {error}");
    }
    let missing = fails(&["nbd", "map", "vm/d", "--device=/dev/no-such-device"], 1);
    assert!(missing.contains("modprobe nbd"), "{missing}");
    let missing = fails(&["nbd", "serve", "--tls-certificates=/nowhere"], 1);
    assert!(missing.contains("cannot read /nowhere/"), "{missing}");
    let cluster = cluster("1GiB");
    for command in [
        &["image", "info", "vm/none"][..],
        &["image", "rm", "vm/disk", "vm/none"],
        &["image", "snapshot", "vm/none", "vm/other"],
        &["image", "resize", "vm/none", "--size=1GiB"],
        &["nbd", "serve", "--listen=127.0.0.1:0", "vm/none"],
    ] {
        let error = fails_on(&cluster, command, 1);
        assert!(error.contains("no image vm/none"), "{command:?}: {error}");
    }
    let error = fails_on(&cluster, &["image", "ls", "none"], 1);
    assert!(error.contains("no pool none"), "{error}");
    for name in ["vm/disk", "none/disk"] {
        fails_on(&cluster, &["image", "create", name, "--size=1GiB"], 1);
    }
    fails_on(&cluster, &["nbd", "serve", "--listen=192.0.2.1:1"], 1);
    let replicated = ["--code=rs(2,2)", "--write=replicate:3", "--encode-after=1h"];
    cluster.run(&[&["pool", "create", "blocks"][..], &replicated].concat());
    let file = cluster.path("file");
    std::fs::write(&file, "no image").expect("write a file");
    cluster.run(&["put", path_text(&file), "blocks/file", "--pool=blocks"]);
    let create = ["image", "create", "blocks/disk", "--size=1GiB"];
    let error = fails_on(&cluster, &create, 2);
    assert!(error.contains("without --write"), "{error}");
    let listed = cluster.json(&["image", "ls"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn each_command_works_on_a_cluster_as_it_does_on_memory() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("64MiB");
    cluster.run(&["image", "create", "vm/old", "--size=64MiB"]);
    let server = ImageServer::start(&cluster, &["vm/disk"]);
    let reader = ImageServer::start(&cluster, &["--read-only"]);
    let said = tool(
        PYTHON,
        &[COMMANDS, &server.uri("vm/disk"), &reader.uri("vm/old")],
    );
    assert!(said.ends_with("all commands done\n"), "{said}");
    // A single image is the default export, and others are not exported.
    assert!(tool("nbdinfo", &["--size", &server.uri("")]).starts_with("67108864"));
    let other = Command::new("nbdinfo").arg(server.uri("vm/old")).output();
    assert!(!other.expect("nbdinfo runs").status.success());
    assert!(tool("nbdinfo", &["--list", &reader.uri("")]).contains("export=\"vm/old\""));
}

/// Makes the certificates in a directory by the commands of docs/nbd.md. `false` if the machine has no openssl.
fn make_certificates(directory: &Path) -> bool {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: needs the package openssl");
        return false;
    }
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nbd.md");
    let document = std::fs::read_to_string(document).expect("the document is there");
    let begin = document
        .find("    openssl req")
        .expect("it has the commands");
    let commands = &document[begin..];
    let commands = &commands[..commands.find("\n\n").expect("text follows")];
    let script = commands.replace("HOST", "localhost");
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &script]).current_dir(directory);
    let made = shell.output().expect("a shell");
    assert!(made.status.success(), "{}", text(&made.stderr));
    true
}

#[test]
fn an_image_is_encrypted_by_the_certificates_of_the_document() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    if !has_nbd_tools() || !make_certificates(directory.path()) {
        return;
    }
    let cluster = cluster("8MiB");
    let certificates = path_text(directory.path());
    let option = format!("--tls-certificates={certificates}");
    let server = ImageServer::start(&cluster, &[&option]);
    let uri = server.uri("vm/disk").replace("127.0.0.1", "localhost");
    assert!(uri.starts_with("nbds://localhost:"), "{uri}");
    let encrypted = format!("{uri}?tls-certificates={certificates}");
    let (source, copy) = (cluster.path("source"), cluster.path("copy"));
    let bytes = pattern(8 * MIB, 7);
    std::fs::write(&source, &bytes).expect("written");
    tool("nbdcopy", &[path_text(&source), &encrypted]);
    tool("nbdcopy", &[&encrypted, path_text(&copy)]);
    assert!(
        std::fs::read(&copy).expect("there") == bytes,
        "bytes differ"
    );
    let bare = tempfile::tempdir().expect("a temporary directory");
    let authority = directory.path().join("ca-cert.pem");
    std::fs::copy(authority, bare.path().join("ca-cert.pem")).expect("copied");
    let uncertified = format!("{uri}?tls-certificates={}", path_text(bare.path()));
    for stranger in [uri.replace("nbds:", "nbd:"), uncertified] {
        let output = Command::new("nbdinfo").arg(&stranger).output();
        let output = output.expect("nbdinfo runs");
        assert!(
            !output.status.success(),
            "{stranger}: {}",
            text(&output.stdout)
        );
    }
}

#[test]
fn an_image_is_written_and_read_while_a_node_dies() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("16MiB");
    let server = ImageServer::start(&cluster, &[]);
    let (uri, source, copy) = (
        server.uri("vm/disk"),
        cluster.path("in"),
        cluster.path("out"),
    );
    let (source, copy) = (path_text(&source), path_text(&copy));
    std::fs::write(source, pattern(16 * MIB, 1)).expect("write a temporary file");
    tool("nbdcopy", &[source, &uri]);
    std::fs::write(source, pattern(16 * MIB, 2)).expect("write a temporary file");
    let mut copying = Command::new("nbdcopy")
        .args([source, &uri])
        .spawn()
        .expect("nbdcopy runs");
    cluster.run(&["chaos", "kill-node", "1"]);
    assert!(copying.wait().expect("the child is ours").success());
    cluster.wait_until_failed(&[1]);
    tool("nbdcopy", &[&uri, copy]);
    assert!(std::fs::read(copy).expect("the copy") == pattern(16 * MIB, 2));
    let map = tool("nbdinfo", &["--map=gabion:failures-left", &uri]);
    let words: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(
        words,
        ["0", "16777216", "1"],
        "each stripe survives one more"
    );
    cluster.run(&["chaos", "start-node", "1"]);
    cluster.wait_until_failed(&[]);
    // qemu's view is the same, and a plain get reads the same bytes.
    tool(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", source, &uri],
    );
    assert!(cluster.get("vm/disk") == pattern(16 * MIB, 2));
    cluster.assert_no_damage();
}

/// A page by HTTP.
fn page(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("a server");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("text");
    page
}

#[test]
fn metrics_count_requests_and_errors() {
    let cluster = cluster("4MiB");
    let mut server = ImageServer::start(&cluster, &["--metrics=127.0.0.1:0"]);
    let address = server.ready();
    let address = address.strip_prefix("http://").expect("an address");
    let (address, path) = address.split_at(address.find('/').expect("a path"));
    let metrics = page(address, path);
    assert!(metrics.starts_with("HTTP/1.1 200 OK"), "{metrics}");
    assert!(metrics.contains("gabion_nbd_connections 0"), "{metrics}");
    assert!(page(address, "/").starts_with("HTTP/1.1 404"));
    if !has_nbd_tools() {
        return;
    }
    let script = "import sys, nbd; h = nbd.NBD(); h.set_strict_mode(0); h.connect_uri(sys.argv[1])\n\
                  h.pwrite(b'x', 0); h.pread(1, 0); h.flush()\n\
                  try: h.pread(1, 4 << 20)\n\
                  except nbd.Error: pass";
    tool(PYTHON, &["-c", script, &server.uri("vm/disk")]);
    let metrics = page(address, path);
    for expected in [
        "gabion_nbd_request_seconds_count{operation=\"write\"} 1",
        "gabion_nbd_request_seconds_count{operation=\"flush\"} 1",
        "gabion_nbd_errors_total{operation=\"invalid\",error=\"EINVAL\"} 1",
    ] {
        assert!(metrics.contains(expected), "{expected}: {metrics}");
    }
}

/// A client that runs beside the test.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(PYTHON)
            .arg(NBD_CLIENT)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        Self {
            stdin: child.stdin.take().expect("stdin is piped"),
            stdout: BufReader::new(child.stdout.take().expect("stdout is piped")),
            child,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line
    }

    fn expect(&mut self, line: &str) {
        assert_eq!(self.line().trim(), line);
    }

    fn go_on(&mut self) {
        self.stdin.write_all(b"\n").expect("it reads its stdin");
    }

    /// Drops what it still says, and waits for its end.
    fn end(mut self) {
        while !self.line().is_empty() {}
        let status = self.child.wait().expect("the child is ours");
        assert!(status.success(), "{status}");
    }
}

#[test]
fn acknowledged_writes_survive_the_server_and_nodes_killed_under_them() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("4MiB");
    let state = cluster.path("state");
    let state = path_text(&state);
    for round in 0..4 {
        let mut server = ImageServer::start(&cluster, &["vm/disk"]);
        let mut writer = Client::start(&["write", &server.uri("vm/disk"), state]);
        // The number of acknowledgements before the kill, from holes only to several rounds of updates.
        for _ in 0..(20 + 350 * round) {
            assert!(!writer.line().is_empty(), "the server has gone");
        }
        if round % 2 == 1 {
            cluster.run(&["chaos", "kill-node", "2"]);
        }
        server.kill();
        writer.end();
        // Another server takes over, once after it has waited until the image is free.
        let options = if round == 0 {
            &["vm/disk"][..]
        } else {
            &["vm/disk", "--take-over"]
        };
        let server = ImageServer::start(&cluster, options);
        let said = tool(
            PYTHON,
            &[NBD_CLIENT, "verify", &server.uri("vm/disk"), state],
        );
        assert!(said.contains("blocks verified"), "{said}");
        server.stop();
        cluster.up();
        cluster.wait_until_failed(&[]);
        // The next round's blocks are zero at first, like the writer's.
        cluster.run(&["punch", "vm/disk", "--offset=0", "--length=4MiB"]);
    }
}

#[test]
fn a_silent_cluster_stalls_a_request_and_no_more() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("4MiB");
    let server = ImageServer::start(&cluster, &["vm/disk"]);
    let mut client = Client::start(&["wait", &server.uri("vm/disk")]);
    client.expect("attached");
    // One more than the pool survives, and the coordinator, which the first write to a hole needs.
    for node in ["0", "2", "4"] {
        cluster.run(&["chaos", "kill-node", node]);
    }
    cluster.run(&["chaos", "kill-coordinator"]);
    client.go_on();
    client.expect("sent");
    cluster.up();
    client.expect("done");
    client.end();
}

#[test]
fn an_image_grows_while_a_client_is_attached() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("4MiB");
    let server = ImageServer::start(&cluster, &[]);
    let mut client = Client::start(&["grow", &server.uri("vm/disk")]);
    client.expect("attached");
    cluster.run(&["image", "resize", "vm/disk", "--size=8MiB"]);
    client.go_on();
    client.expect("done");
    client.end();
}

#[test]
fn a_second_server_fences_out_the_first_whatever_that_one_has_begun() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("4MiB");
    let first = ImageServer::start(&cluster, &["vm/disk"]);
    let uri = first.uri("vm/disk");
    let mut fenced = Client::start(&["fenced", &uri]);
    fenced.expect("attached");
    // Other writers are refused while the server has the image.
    let punch = ["punch", "vm/disk", "--offset=0", "--length=64KiB"];
    let error = fails_on(&cluster, &punch, 1);
    assert!(error.contains("open exclusively"), "{error}");
    let error = fails_on(&cluster, &["image", "rm", "vm/disk"], 1);
    assert!(error.contains("end that client first"), "{error}");
    // The server is stopped with writes in flight, and a second one takes the image over.
    fenced.go_on();
    fenced.expect("sent");
    first.signal(Signal::STOP);
    fenced.go_on();
    fenced.expect("sent");
    let second = ImageServer::start(&cluster, &["vm/disk", "--take-over"]);
    let mut owner = Client::start(&["own", &second.uri("vm/disk")]);
    owner.expect("written");
    first.signal(Signal::CONT);
    fenced.expect("refused");
    fenced.end();
    owner.go_on();
    owner.expect("unchanged");
    owner.end();
    // A server that ends by SIGTERM releases its images: all clients may write at once.
    let mut owner = Client::start(&["own", &second.uri("vm/disk")]);
    owner.expect("written");
    second.stop();
    cluster.run(&punch);
    let mut again = Client::start(&["own", &uri]);
    again.expect("written");
    again.go_on();
    again.expect("unchanged");
    again.end();
    first.stop();
}

#[test]
fn a_server_finds_an_image_by_its_present_name() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("4MiB");
    cluster.run(&["image", "create", "vm/other", "--size=8MiB"]);
    let server = ImageServer::start(&cluster, &[]);
    let mut owner = Client::start(&["own", &server.uri("vm/disk")]);
    owner.expect("written");
    cluster.run(&["mv", "vm/disk", "vm/old"]);
    cluster.run(&["mv", "vm/other", "vm/disk"]);
    let size = |image| tool("nbdinfo", &["--size", &server.uri(image)]);
    assert_eq!(size("vm/disk").trim(), (8 << 20).to_string());
    let mut other = Client::start(&["own", &server.uri("vm/disk")]);
    other.expect("written");
    owner.go_on();
    owner.expect("unchanged");
    owner.end();
    assert_eq!(size("vm/old").trim(), (4 << 20).to_string());
}

#[test]
fn clients_of_one_server_share_an_image_that_they_name_differently() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("4MiB");
    cluster.run(&["ln", "vm/disk", "vm/second"]);
    let server = ImageServer::start(&cluster, &["--take-over"]);
    let mut both = Client::start(&["share", &server.uri("vm/disk"), &server.uri("vm/second")]);
    both.expect("shared");
    both.end();
}

#[test]
fn no_enlargement_shrinks_what_another_one_has_enlarged() {
    const COUNT: u64 = 6;
    let cluster = cluster("1MiB");
    for round in 1..4 {
        let largest_mib = round * 100 + COUNT;
        let resizes: Vec<Child> = (1..=COUNT)
            .map(|number| {
                let size = format!("--size={}MiB", largest_mib - COUNT + number);
                let mut command = cluster.command(&["image", "resize", "vm/disk", &size]);
                let command = command.stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().expect("the binary runs")
            })
            .collect();
        for mut resize in resizes {
            let status = resize.wait().expect("it ends");
            assert!(matches!(status.code(), Some(0 | 2)), "{status}");
        }
        let info = cluster.json(&["image", "info", "vm/disk"]);
        assert_eq!(info["bytes"], largest_mib << 20);
    }
}

#[test]
fn a_file_in_the_place_of_a_socket_stays() {
    let cluster = cluster("4MiB");
    let file = cluster.path("disk.raw");
    std::fs::write(&file, "precious").expect("write a file");
    let serve = ["nbd", "serve", "vm/disk", "--unix", path_text(&file)];
    let error = fails_on(&cluster, &serve, 1);
    assert!(error.contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"precious");
}

#[test]
fn an_image_of_a_killed_server_is_free_for_all_clients_later() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster("4MiB");
    let mut server = ImageServer::start(&cluster, &["vm/disk"]);
    let mut owner = Client::start(&["own", &server.uri("vm/disk")]);
    owner.expect("written");
    server.kill();
    let punch = ["punch", "vm/disk", "--offset=0", "--length=4KiB"];
    let begun = Instant::now();
    let error = fails_on(&cluster, &punch, 1);
    assert!(error.contains("the file becomes free in"), "{error}");
    loop {
        let output = cluster.command(&punch).output();
        if output.expect("the binary runs").status.success() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_mins(4), "it is never free");
    }
    cluster.run(&["image", "rm", "vm/disk"]);
}
