//! Limits of connections and calls: what is refused or waits, and that others are served.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use crate::node_hello;
use crate::processes::{Process, answer, ask, far, patient, soon, within};
use gabion_protocol::message::{NodeReply, NodeRequest};
use gabion_wire::{Connection, ConnectionLimits, Hello, Options, WireError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

#[tokio::test]
async fn calls_beyond_those_that_may_wait_at_a_time_wait_to_be_sent() {
    let options = Options {
        max_call_count: 2,
        ..patient()
    };
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::with(Hello::client(), options);
    let connection = client.connect(&server).await;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.call_node(&NodeRequest::Meter, far()).await })
        })
        .collect();
    server.wait_for_unanswered(2).await;
    let late = connection.call_node(&ask(1), soon()).await.unwrap_err();
    assert!(matches!(late, WireError::DeadlinePassed { .. }), "{late}");
    let held = Arc::clone(&connection);
    let third = tokio::spawn(async move { held.call_node(&ask(7), far()).await });
    server.answer_the_unanswered();
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap(), NodeReply::Done);
    }
    assert_eq!(third.await.unwrap().unwrap(), answer(7));
}

#[tokio::test]
async fn clients_cannot_take_the_places_of_nodes() {
    let connections = ConnectionLimits {
        count_max: 4,
        client_count_max: 2,
        ..ConnectionLimits::default()
    };
    let options = Options {
        connections,
        ..patient()
    };
    let server = Process::listen_with(node_hello(1, 0), options).await;
    let clients = [Hello::client(); 3].map(Process::new);
    let first = clients[0].connect(&server).await;
    let _other = clients[1].connect(&server).await;
    let refused = Connection::connect(&server.address(), &clients[2].endpoint).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    let sentence = "it has its maximum number of clients; try again later";
    assert!(refused.ends_with(sentence), "{refused}");
    assert_eq!(server.next_not_accepted().await, sentence);
    // Those who are there are served.
    let reply = first.call_node(&ask(3), far()).await.unwrap();
    assert_eq!(reply, answer(3));
    // The next peer takes the place that a client leaves, whether it is a client or a node.
    first.close("it has all that it wanted");
    server.next_closed().await;
    let node = Process::new(node_hello(2, 0));
    let member = connect_in_the_end(&node, &server).await;
    let client = connect_in_the_end(&clients[2], &server).await;
    for connection in [member, client] {
        let reply = connection.call_node(&ask(5), far()).await.unwrap();
        assert_eq!(reply, answer(5));
    }
}

/// Connects as soon as there is a place.
async fn connect_in_the_end(process: &Process, server: &Process) -> Arc<Connection> {
    within(async {
        loop {
            match Connection::connect(&server.address(), &process.endpoint).await {
                Ok(connection) => return connection,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// Takes the last places of a server by peers that say nothing, and gives the refusal of one more. Such a peer keeps
/// others out for a moment only; a machine that does not get so far within it begins again.
async fn refused_beside_silent(
    silent_count: usize,
    client: &Process,
    server: &Process,
) -> (Vec<TcpStream>, String) {
    within(async {
        loop {
            let mut silent = Vec::new();
            for _ in 0..silent_count {
                silent.push(TcpStream::connect(server.address()).await.unwrap());
            }
            match Connection::connect(&server.address(), &client.endpoint).await {
                Err(refused) => return (silent, refused.to_string()),
                Ok(late) => late.close("it begins again"),
            }
            server.next_closed().await;
        }
    })
    .await
}

#[tokio::test]
async fn those_who_never_introduce_themselves_leave_room_for_others() {
    let connections = ConnectionLimits {
        nameless_count_max: 2,
        ..ConnectionLimits::default()
    };
    let options = Options {
        connections,
        connect_timeout: Duration::from_mins(10),
        ..Options::default()
    };
    let server = Process::listen_with(node_hello(1, 0), options).await;
    let client = Process::new(Hello::client());
    let connection = client.connect(&server).await;
    let (_silent, refused) = refused_beside_silent(2, &client, &server).await;
    assert!(refused.contains("peers without a hello"), "{refused}");
    // Those who have are served, and one that introduces itself takes a silent one's place after a moment.
    let reply = connection.call_node(&ask(3), far()).await.unwrap();
    assert_eq!(reply, answer(3));
    connect_in_the_end(&client, &server).await;
    let displaced = |why: &String| why.contains("needed the place");
    within(async { while !displaced(&server.next_not_accepted().await) {} }).await;
}

#[tokio::test]
async fn one_address_cannot_take_all_places() {
    let connections = ConnectionLimits {
        address_count_max: 1,
        ..ConnectionLimits::default()
    };
    let options = Options {
        connections,
        ..patient()
    };
    let server = Process::listen_with(node_hello(1, 0), options).await;
    let client = Process::new(Hello::client());
    // One that never says what it is counts too.
    let (_silent, refused) = refused_beside_silent(1, &client, &server).await;
    assert!(
        refused.contains("maximum number of clients from that address"),
        "{refused}"
    );
}

/// Set in the process of a test that runs alone.
const ALONE: &str = "GABION_TEST_ALONE";

#[test]
fn a_server_without_descriptors_accepts_again_when_it_has_some() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        return runtime.block_on(lack_descriptors());
    }
    // The limit is that of a whole process.
    let name = "limits::a_server_without_descriptors_accepts_again_when_it_has_some";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "")
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    let is_well = said[0].contains("1 passed");
    assert!(is_well, "the process alone: {}", said.concat());
}

async fn lack_descriptors() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Process::new(node_hello(1, 0));
    let mut serving = tokio::spawn(Arc::clone(&server.endpoint).serve(listener));
    let client = Process::new(Hello::client());
    let socket = TcpSocket::new_v4().unwrap();
    let limit = Rlimit {
        current: Some(64),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut others = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        others.push(file);
    }
    let _waits = socket.connect(address).await.unwrap();
    let ended = tokio::time::timeout_at(soon(), &mut serving).await;
    assert!(ended.is_err(), "{}", ended.unwrap().unwrap());
    others.clear();
    let connection = within(Connection::connect(&address.to_string(), &client.endpoint)).await;
    let reply = connection.unwrap().call_node(&ask(3), far()).await;
    assert_eq!(reply.unwrap(), answer(3));
}
