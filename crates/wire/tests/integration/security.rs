//! Connections with certificates on real sockets: what is refused, in which words, and that renewal breaks nothing.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use crate::node_hello;
use crate::processes::{Process, answer, ask, far, patient, within};
use gabion_layout::{
    COUNT_MAX, ChunkId, ChunkIndex, ClusterId, Epoch, Generation, NodeId, StripeId,
};
use gabion_protocol::message::{
    Cause, CoordinatorReply, CoordinatorRequest, Flow, NodeRequest, RunId, ask,
};
use gabion_wire::trust::{Authority, Name, Security, TrustError};
use gabion_wire::{Connection, Hello, Options, PeerIdentity, Role, WireError};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CLUSTER: ClusterId = ClusterId(5);

/// An authority with directories for certificates.
struct Office {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Office {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(&directory.path().join("ca"), CLUSTER).unwrap();
        Self {
            directory,
            authority,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn security(&self, directory: &str, name: Name) -> Security {
        let directory = self.path(directory);
        let issued = self
            .authority
            .issue_into(&directory, name, Authority::LIFETIME);
        issued.unwrap();
        Security::open(&directory).unwrap()
    }

    fn of(&self, role: Role) -> Options {
        let name = Name::of(CLUSTER, role);
        options(self.security(&format!("{role:?}"), name))
    }

    fn of_node(&self, node: u32) -> Options {
        let name = Name::of_node(CLUSTER, Some(NodeId(node)));
        options(self.security(&format!("node-{node}"), name))
    }
}

fn options(security: Security) -> Options {
    Options {
        security,
        ..patient()
    }
}

fn hello(role: Role) -> Hello {
    Hello {
        cluster: None,
        role,
        identity: PeerIdentity::default(),
    }
}

async fn refused(client: &Process, server: &Process) -> WireError {
    let connected = Connection::connect(&server.address(), &client.endpoint).await;
    match connected {
        Err(error) => error,
        // In TLS 1.3 a client hears that its certificate is refused after its own side is done.
        Ok(connection) => within(connection.closed()).await,
    }
}

/// That `client` is refused, with these words at both ends.
async fn check_refused(client: &Process, server: &Process, near: &str, far: &str) {
    let error = refused(client, server).await.to_string();
    assert!(error.contains(near), "'{error}' does not say '{near}'");
    let why = server.next_not_accepted().await;
    assert!(why.contains(far), "'{why}' does not say '{far}'");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_certificates_of_one_authority_talk() {
    let office = Office::new();
    let server = Process::listen_with(node_hello(1, 0), office.of_node(1)).await;
    let client = Process::with(Hello::client(), office.of(Role::Client));
    let connection = client.connect(&server).await;
    let peer = connection.certified().expect("it has shown a certificate");
    assert_eq!(peer.name, Name::of_node(CLUSTER, Some(NodeId(1))));
    assert_eq!(client.endpoint.cluster(), Some(CLUSTER));
    let reply = connection.call_node(&ask(9), far()).await.unwrap();
    assert_eq!(reply, answer(9));
    // More than the buffers of TLS and of the socket, with other calls in between.
    let bytes = bytes::Bytes::from(vec![7; 1 << 20]);
    for slice in 0..64 {
        let (run, value) = (RunId(1), gabion_plan::ValueId(1));
        let purpose = gabion_protocol::message::Purpose::Client;
        let flow = Flow::Slice {
            run,
            value,
            slice,
            purpose,
            bytes: bytes.clone(),
        };
        connection.send_flow(flow.clone()).await.unwrap();
        assert_eq!(server.next_flow().await, flow);
    }
    connection.close("that was all");
    let why = server.next_closed().await;
    assert!(why.contains("that was all"), "{why}");
}

#[tokio::test]
async fn peers_without_a_certificate_of_the_authority_are_refused() {
    let (office, foreign) = (Office::new(), Office::new());
    let server = Process::listen_with(node_hello(1, 0), office.of_node(1)).await;
    let outsider = Process::with(Hello::client(), foreign.of(Role::Client));
    check_refused(&outsider, &server, "another authority issued", "").await;
    // One that does not look at the server's certificate is refused by the server all the same.
    let careless = foreign.of(Role::Client);
    let trusting = foreign.path("Client/ca.pem");
    std::fs::write(&trusting, office.authority.certificate()).unwrap();
    std::fs::remove_file(foreign.path("Client/revoked.pem")).unwrap();
    assert!(careless.security.reload().unwrap());
    let careless = Process::with(Hello::client(), careless);
    let words = ["does not trust the authority", "another authority issued"];
    check_refused(&careless, &server, words[0], words[1]).await;
    let plain = Process::new(Hello::client());
    check_refused(&plain, &server, "wants TLS", "TLS").await;
    let secured = Process::with(Hello::client(), office.of(Role::Client));
    let open = Process::listen(node_hello(2, 0)).await;
    let error = refused(&secured, &open).await;
    assert!(matches!(error, WireError::NoTls), "{error}");
    // Those who belong to it are served all along.
    let connection = secured.connect(&server).await;
    let reply = connection.call_node(&ask(3), far()).await.unwrap();
    assert_eq!(reply, answer(3));
}

#[tokio::test]
async fn a_hello_must_say_what_the_certificate_says() {
    let office = Office::new();
    let server = Process::listen_with(node_hello(1, 0), office.of_node(1)).await;
    let liars = [
        (hello(Role::Coordinator), office.of(Role::Client)),
        (hello(Role::Operator), office.of(Role::Client)),
        (node_hello(2, 0), office.of(Role::Client)),
        (node_hello(2, 0), office.of_node(3)),
    ];
    for (hello, options) in liars {
        let liar = Process::with(hello, options);
        let near = "its certificate is that of";
        check_refused(&liar, &server, near, near).await;
    }
    let elsewhere = Hello {
        cluster: Some(ClusterId(6)),
        ..Hello::client()
    };
    let liar = Process::with(elsewhere, office.of(Role::Client));
    check_refused(&liar, &server, "cluster", "belongs to cluster").await;
    // A node that restarts does not claim its id, and is known by its certificate.
    let restarting = Process::with(hello(Role::Node), office.of_node(4));
    restarting.connect(&server).await;
}

#[tokio::test]
async fn a_client_s_certificate_is_none_of_a_server() {
    let office = Office::new();
    let imposter = Process::listen_with(Hello::client(), office.of(Role::Client)).await;
    let client = Process::with(Hello::client(), office.of(Role::Operator));
    let error = refused(&client, &imposter).await;
    assert!(!matches!(error, WireError::NoTls), "{error}");
    let why = imposter.next_not_accepted().await;
    assert!(why.contains("not one of a server"), "{why}");
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_and_its_connections_end() {
    let office = Office::new();
    let server = Process::listen_with(node_hello(1, 0), office.of_node(1)).await;
    let client = Process::with(Hello::client(), office.of(Role::Client));
    let other = Process::with(hello(Role::Operator), office.of(Role::Operator));
    let connection = client.connect(&server).await;
    let stays = other.connect(&server).await;
    let register = office.authority.register().unwrap();
    let revoked = register
        .entries
        .iter()
        .find(|entry| entry.name.role == Role::Client)
        .expect("it was issued");
    office.authority.revoke(revoked.serial).unwrap();
    let list = office.authority.revoked().unwrap();
    std::fs::write(office.path("node-1/revoked.pem"), list).unwrap();
    let security = server.endpoint.security();
    assert!(security.reload().unwrap());
    server.endpoint.close_revoked();
    let why = within(connection.closed()).await.to_string();
    assert!(why.contains("certificate is revoked"), "{why}");
    check_refused(&client, &server, "certificate is revoked", "revoked").await;
    let reply = stays.call_node(&ask(3), far()).await.unwrap();
    assert_eq!(reply, answer(3));
}

/// A client with the certificate of a directory, and its connection, on which a call was answered.
async fn connect_by(
    directory: &Path,
    server: &Process,
) -> Result<(Process, Arc<Connection>), Box<dyn Error>> {
    let client = Process::with(Hello::client(), options(Security::open(directory)?));
    let connection = Connection::connect(&server.address(), &client.endpoint).await?;
    connection.call_node(&ask(3), far()).await?;
    Ok((client, connection))
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let office = Office::new();
    let directory = office.path("short");
    let server = Process::listen_with(node_hello(1, 0), office.of_node(1)).await;
    let second = Duration::from_secs(1);
    let mut lifetime = second;
    let (client, connection) = loop {
        let name = Name::of(CLUSTER, Role::Client);
        let issued = office.authority.issue_into(&directory, name, lifetime);
        issued.unwrap();
        if let Ok(both) = connect_by(&directory, &server).await {
            break both;
        }
        // The machine needs longer for a handshake than the certificate was good for.
        lifetime *= 2;
        assert!(lifetime < 32 * second, "no certificate is good at first");
    };
    within(async {
        while !matches!(Security::open(&directory), Err(TrustError::Expired { .. })) {
            tokio::time::sleep(second / 10).await;
        }
    })
    .await;
    // Certificates end with a whole second.
    tokio::time::sleep(second).await;
    check_refused(&client, &server, "certificate has expired", "expired").await;
    // A connection goes on: its end is for revocation.
    let reply = connection.call_node(&ask(3), far()).await.unwrap();
    assert_eq!(reply, answer(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_under_load_without_a_failed_call() {
    let office = Office::new();
    let server = Process::listen_with(node_hello(1, 0), office.of_node(1)).await;
    let client = Arc::new(Process::with(Hello::client(), office.of(Role::Client)));
    let address = server.address();
    let (is_over, calling) = (Arc::new(AtomicBool::new(false)), Arc::clone(&client));
    let over = Arc::clone(&is_over);
    let calls = tokio::spawn(async move {
        let lasting = Connection::connect(&address, &calling.endpoint)
            .await
            .unwrap();
        let mut count = 0;
        while !over.load(Ordering::Acquire) {
            let fresh = Connection::connect(&address, &calling.endpoint)
                .await
                .unwrap();
            for connection in [&lasting, &fresh] {
                let reply = connection.call_node(&ask(count), far()).await.unwrap();
                assert_eq!(reply, answer(count));
            }
            fresh.close("done");
            count += 1;
        }
        count
    });
    let mut serials = Vec::new();
    for _ in 0..20 {
        office.of_node(1);
        office.of(Role::Client);
        for process in [&server, &*client] {
            assert!(process.endpoint.security().reload().unwrap());
        }
        let connection = client.connect(&server).await;
        serials.push(connection.certified().unwrap().serial.unwrap());
        connection.close("done");
    }
    is_over.store(true, Ordering::Release);
    assert!(calls.await.unwrap() > 0);
    serials.sort();
    serials.dedup();
    assert_eq!(
        serials.len(),
        20,
        "each connection has the newest certificate"
    );
}

/// The requests by which an unauthenticated process once deleted all chunks of a node and fenced out every later
/// primary, and those by which it might do so now.
fn attacks() -> Vec<NodeRequest> {
    let (stripe, index) = (StripeId(1), ChunkIndex(0));
    let chunk = ChunkId { stripe, index };
    let (epoch, generation) = (Epoch::LAST, Generation(COUNT_MAX));
    vec![
        ask::Remove {
            chunks: vec![chunk],
        }
        .into(),
        ask::Discard { chunk, epoch }.into(),
        ask::Collect {
            stripe,
            epoch,
            generation,
        }
        .into(),
        ask::Fence {
            stripe,
            epoch,
            generation,
        }
        .into(),
        ask::Resolve {
            stripe,
            epoch,
            mark: gabion_layout::Sequence(COUNT_MAX),
            dropped: Vec::new(),
        }
        .into(),
        ask::Commit { stripe }.into(),
    ]
}

/// A client is refused; a node or a coordinator, by its own word or its certificate, is not.
async fn check_attacks(server: Options, client: Options, coordinator: Options) {
    let server = Process::listen_with(node_hello(1, 0), server).await;
    for attacker in [Hello::client(), hello(Role::Operator)] {
        let is_mine = client
            .security
            .name()
            .is_none_or(|name| name.role == attacker.role);
        if !is_mine {
            continue;
        }
        let attacker = Process::with(attacker, client.clone());
        let connection = attacker.connect(&server).await;
        for request in attacks() {
            let error = connection.call_node(&request, far()).await.unwrap_err();
            let error = error.to_string();
            assert!(error.contains("may not send this request"), "{error}");
        }
        let beat = CoordinatorRequest::Accept(NodeId(1));
        let reply = connection.call_coordinator(&beat, far()).await;
        let is_denied = matches!(&reply, Ok(CoordinatorReply::Refused(denial)) if denial.cause == Cause::NotPermitted);
        assert_eq!(
            is_denied,
            attacker.endpoint.role() == Role::Client,
            "{reply:?}"
        );
    }
    let coordinator = Process::with(hello(Role::Coordinator), coordinator);
    let connection = coordinator.connect(&server).await;
    for request in attacks() {
        let error = connection.call_node(&request, far()).await.unwrap_err();
        // The process of the test does not know these requests, but has got them.
        assert!(error.to_string().contains("abandoned"), "{error}");
    }
}

#[tokio::test]
async fn a_client_cannot_delete_or_fence_with_tls() {
    let office = Office::new();
    let [client, coordinator] = [Role::Client, Role::Coordinator].map(|role| office.of(role));
    check_attacks(office.of_node(1), client, coordinator).await;
}

#[tokio::test]
async fn a_client_cannot_delete_or_fence_without_tls() {
    check_attacks(patient(), patient(), patient()).await;
}

#[tokio::test]
async fn slices_of_a_process_that_takes_part_in_no_run_are_dropped() {
    let office = Office::new();
    let server = Process::listen_with(node_hello(1, 0), office.of_node(1)).await;
    let name = Name::of_node(CLUSTER, None);
    let stranger = options(office.security("new", name));
    let stranger = Process::with(hello(Role::Node), stranger);
    let connection = stranger.connect(&server).await;
    let run = RunId(1);
    connection.send_flow(Flow::Abort { run }).await.unwrap();
    let reply = connection.call_node(&ask(1), far()).await.unwrap_err();
    assert!(reply.to_string().contains("has not joined"), "{reply}");
    assert_eq!(server.try_next_flow(), None);
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_ends() {
    let office = Office::new();
    let options = Options {
        connect_timeout: Duration::from_millis(200),
        ..office.of_node(1)
    };
    let server = Process::listen_with(node_hello(1, 0), options).await;
    let mut silent = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    // The beginning of a client's first message. On a slow machine, the limit may have passed by now.
    let _ = silent.write_all(&[22, 3, 1, 2, 0, 1, 0]).await;
    let why = server.next_not_accepted().await;
    assert!(why.contains("agreeing on TLS"), "{why}");
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = within(silent.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn a_long_first_frame_is_refused_before_it_is_read() {
    let server = Process::listen(node_hello(1, 0)).await;
    let frame = gabion_wire::Frame::new(
        gabion_wire::frame::Kind::Hello,
        bytes::Bytes::from(vec![0; 1025]),
    );
    let mut stream = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    // The header alone tells.
    stream
        .write_all(&frame.unwrap().header.encode())
        .await
        .unwrap();
    let why = server.next_not_accepted().await;
    assert!(why.contains("too long for a hello"), "{why}");
}

#[tokio::test]
async fn a_server_without_a_place_says_so_through_the_handshake() {
    let office = Office::new();
    let options = Options {
        connections: gabion_wire::ConnectionLimits {
            count_max: 0,
            ..gabion_wire::ConnectionLimits::default()
        },
        ..office.of_node(1)
    };
    let server = Process::listen_with(node_hello(1, 0), options).await;
    let client = Process::with(Hello::client(), office.of(Role::Client));
    let words = "has its maximum number of connections";
    check_refused(&client, &server, words, words).await;
}
