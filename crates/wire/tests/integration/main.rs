//! Connections over loopback: calls, flows, back-pressure, and every way to end.

mod coordinators;
mod limits;
mod messages;
mod ports;
mod processes;
mod security;
mod silent_link;
mod versions;

use bytes::Bytes;
use gabion_layout::{ChunkIndex, NodeId, RackId, StripeId};
use gabion_meta::ClusterId;
use gabion_plan::ValueId;
use gabion_protocol::message::{
    Flow, Liveness, NodeReply, NodeRequest, NodeStatus, Purpose, RunId, ask,
};
use gabion_wire::frame::{HEADER_BYTES, Header, Kind};
use gabion_wire::{
    Connection, Frame, Hello, LinkSpec, LinkTable, Options, PeerIdentity, Peers, Role, WireError,
};
use processes::{Process, answer, ask, far, keep, raw_connection, soon, within};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn slice(run: u64, slice: u64, bytes: Bytes) -> Flow {
    let (run, value, purpose) = (RunId(run), ValueId(7), Purpose::Repair);
    Flow::Slice {
        run,
        value,
        slice,
        purpose,
        bytes,
    }
}

fn node_hello(node: u32, rack: u32) -> Hello {
    let identity = PeerIdentity {
        node: Some(NodeId(node)),
        rack: Some(RackId(rack)),
    };
    Hello {
        cluster: Some(ClusterId(5)),
        role: Role::Node,
        identity,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_get_their_own_replies() {
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    let connection = client.connect(&server).await;
    assert_eq!(*connection.peer(), node_hello(1, 0).identity);
    let calls: Vec<_> = (0..500)
        .map(|stripe| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.call_node(&ask(stripe), far()).await })
        })
        .collect();
    for (stripe, call) in (0..).zip(calls) {
        assert_eq!(call.await.unwrap().unwrap(), answer(stripe));
    }
}

#[tokio::test]
async fn both_sides_call_and_every_kind_of_request_is_answered() {
    let coordinator = Process::listen(Hello {
        role: Role::Coordinator,
        ..Hello::client()
    })
    .await;
    let node = Process::new(node_hello(3, 1));
    let connection = node.connect(&coordinator).await;
    let reply = connection
        .call_coordinator(&ask::Reserves(Vec::new()).into(), far())
        .await
        .unwrap();
    let status = NodeStatus {
        node: NodeId(9),
        rack: RackId(2),
        address: "somewhere:1".to_owned(),
        liveness: Liveness::Suspect,
        departure: gabion_meta::Departure::None,
    };
    assert_eq!(
        reply,
        gabion_protocol::message::CoordinatorReply::Nodes(vec![status])
    );
    let back = coordinator.accepted().await;
    assert_eq!(back.peer().node, Some(NodeId(3)));
    assert_eq!(back.call_node(&ask(8), far()).await.unwrap(), answer(8));
}

#[tokio::test]
async fn large_staged_bytes_arrive_whole() {
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    let connection = client.connect(&server).await;
    for count in [0, 1, 16 << 10, 5 << 20] {
        let bytes: Bytes = (0..count).map(|at| (at % 251) as u8).collect();
        let (run, chunk, offset) = (RunId(1), ChunkIndex(2), 3);
        let request = NodeRequest::Stage(ask::Stage {
            run,
            stripe: StripeId(9),
            chunk,
            offset,
            bytes,
            ticket: None,
        });
        assert_eq!(
            connection.call_node(&request, far()).await.unwrap(),
            NodeReply::Done
        );
        assert_eq!(server.last_stage(), Some(request));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_interleave_with_calls_and_keep_their_order() {
    let server = Process::listen(node_hello(1, 0)).await;
    let sender = Process::new(node_hello(2, 1));
    let connection = sender.connect(&server).await;
    let payload = |run: u64, at: u64| Bytes::from(vec![(run + at) as u8; 10_000 + at as usize]);
    let flows: Vec<_> = (0..4)
        .map(|run| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                for at in 0..100 {
                    connection
                        .send_flow(slice(run, at, payload(run, at)))
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for stripe in 0..50 {
        connection.call_node(&ask(stripe), far()).await.unwrap();
    }
    for flow in flows {
        flow.await.unwrap();
    }
    let mut next = [0; 4];
    for _ in 0..400 {
        let flow = server.next_flow().await;
        let run = flow.run().0;
        let at = &mut next[run as usize];
        assert_eq!(flow, slice(run, *at, payload(run, *at)));
        *at += 1;
    }
    let credit = Flow::Credit {
        run: RunId(1),
        value: ValueId(u32::MAX),
        slices: u64::MAX,
    };
    for flow in [
        credit,
        Flow::Abort {
            run: RunId(u64::MAX),
        },
    ] {
        connection.send_flow(flow.clone()).await.unwrap();
        assert_eq!(server.next_flow().await, flow);
    }
    let sent = sender.endpoint.meter().snapshot();
    let expected: u64 = (0..100).map(|at| 4 * (10_000 + at)).sum();
    assert_eq!(sent.cross_rack(Purpose::Repair), expected);
    assert_eq!(sent.bytes.len(), 1);
}

#[tokio::test]
async fn callers_fail_at_once_when_the_peer_dies() {
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    let connection = client.connect(&server).await;
    let call = {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { connection.call_node(&keep(), far()).await })
    };
    server.wait_for_unanswered(1).await;
    server.endpoint.close("killed");
    let error = within(call).await.unwrap().unwrap_err();
    assert!(
        matches!(&error, WireError::ClosedByPeer(why) if why == "killed"),
        "{error}"
    );
    assert!(connection.is_closed());
    let later = connection.call_node(&ask(1), far()).await.unwrap_err();
    assert_eq!(later.to_string(), error.to_string());
    let flow = connection
        .send_flow(Flow::Abort { run: RunId(1) })
        .await
        .unwrap_err();
    assert_eq!(flow.to_string(), error.to_string());
    let seen = within(client.next_closed()).await;
    assert_eq!(seen, error.to_string());
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_the_connection_goes_on() {
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    let connection = client.connect(&server).await;
    let error = connection.call_node(&keep(), soon()).await.unwrap_err();
    assert!(matches!(error, WireError::DeadlinePassed { .. }), "{error}");
    server.wait_for_unanswered(1).await;
    server.answer_the_unanswered();
    // The reply that comes too late is passed over.
    connection.call_node(&ask(1), far()).await.unwrap();
}

#[tokio::test]
async fn requests_that_get_no_reply_fail_in_words() {
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    let connection = client.connect(&server).await;
    let abandoned = connection.call_node(&NodeRequest::StoreCounts, far()).await;
    assert!(matches!(abandoned, Err(WireError::NoReply(why)) if why.contains("abandoned")));

    let options = Options {
        max_served_count: 2,
        ..Options::default()
    };
    let busy = Process::listen_with(node_hello(2, 0), options).await;
    let connection = client.connect(&busy).await;
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.call_node(&keep(), far()).await })
        })
        .collect();
    busy.wait_for_unanswered(2).await;
    let refused = connection.call_node(&ask(1), far()).await;
    assert!(matches!(refused, Err(WireError::NoReply(why)) if why.contains("as many")));
    busy.answer_the_unanswered();
    for call in calls {
        within(call).await.unwrap().unwrap();
    }
    connection.call_node(&ask(1), far()).await.unwrap();
}

#[tokio::test]
async fn a_receiver_that_does_not_read_blocks_the_sender() {
    let options = Options {
        queue_bytes: 1 << 20,
        ..Options::default()
    };
    let client = Process::with(Hello::client(), options);
    let (mut raw, connection) = raw_connection(&client).await;
    let bytes = Bytes::from(vec![1; 256 << 10]);
    let mut sent = 0;
    loop {
        let sending = connection.send_flow(slice(1, sent, bytes.clone()));
        match tokio::time::timeout(Duration::from_millis(300), sending).await {
            Ok(result) => result.unwrap(),
            Err(_) => break,
        }
        sent += 1;
        assert!(
            sent < 1_000,
            "256 MB are queued for a peer that reads nothing"
        );
    }
    // The peer reads again, and the sender goes on where it stood.
    let reader = tokio::spawn(async move {
        let mut frame = vec![0; HEADER_BYTES + (256 << 10)];
        for at in 0..=sent {
            raw.read_exact(&mut frame).await.unwrap();
            let header = Header::decode(frame.first_chunk().unwrap()).unwrap();
            assert_eq!((header.kind, header.slice), (Kind::Slice, at));
            header.check_body(&frame[HEADER_BYTES..]).unwrap();
        }
    });
    within(connection.send_flow(slice(1, sent, bytes)))
        .await
        .unwrap();
    within(reader).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_never_reads_is_abandoned() {
    let options = Options {
        stall_timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let client = Process::with(Hello::client(), options);
    let (_raw, connection) = raw_connection(&client).await;
    let bytes = Bytes::from(vec![1; 1 << 20]);
    let error = within(async {
        loop {
            if let Err(error) = connection.send_flow(slice(1, 0, bytes.clone())).await {
                return error;
            }
        }
    })
    .await;
    // Whichever notices first: our timer or the kernel's.
    let is_stall = matches!(
        error,
        WireError::DeadlinePassed { .. } | WireError::Io { .. }
    );
    assert!(is_stall, "{error}");
}

#[tokio::test]
async fn control_frames_overtake_slices_on_a_slow_link() {
    let directory = tempfile::tempdir().unwrap();
    // 1 MiB takes a quarter of an hour.
    let spec = LinkSpec {
        node_bytes_per_s: 1_000,
        rack_bytes_per_s: 0,
    };
    let links = Arc::new(LinkTable::create(directory.path(), spec, 4, 2).unwrap());
    let options = Options {
        links: Some(links),
        ..Options::default()
    };
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::with(node_hello(2, 0), options.clone());
    let connection = client.connect(&server).await;
    connection
        .send_flow(slice(1, 0, Bytes::from(vec![0; 1 << 20])))
        .await
        .unwrap();
    within(connection.call_node(&ask(4), far())).await.unwrap();
    assert!(
        server.try_next_flow().is_none(),
        "the slice passed a link without paying for it"
    );

    // Staged bytes are data, however few: they queue behind the slice.
    let (run, chunk, bytes) = (RunId(1), ChunkIndex(0), Bytes::from_static(&[1; 100]));
    let few = NodeRequest::Stage(ask::Stage {
        run,
        stripe: StripeId(9),
        chunk,
        offset: 0,
        bytes,
        ticket: None,
    });
    let error = connection.call_node(&few, soon()).await.unwrap_err();
    assert!(matches!(error, WireError::DeadlinePassed { .. }), "{error}");

    // A node for which the table has no link is reached all the same.
    let far_server = Process::listen(node_hello(77, 9)).await;
    let near = Process::with(node_hello(2, 0), options.clone());
    near.connect(&far_server).await;
}

#[tokio::test]
async fn a_corrupt_frame_closes_the_connection_and_both_sides_know_why() {
    let client = Process::new(Hello::client());
    let (mut raw, connection) = raw_connection(&client).await;
    let frame = Frame::new(Kind::Abort, Bytes::new()).unwrap();
    let mut bytes = frame.header.encode();
    bytes[20] ^= 4;
    raw.write_all(&bytes).await.unwrap();
    let error = within(connection.closed()).await;
    assert!(matches!(error, WireError::Corrupt(_)), "{error}");
    let mut rest = Vec::new();
    within(raw.read_to_end(&mut rest)).await.unwrap();
    let header = Header::decode(rest.first_chunk().unwrap()).unwrap();
    assert_eq!(header.kind, Kind::Goodbye);
    let words = String::from_utf8(rest[HEADER_BYTES..].to_vec()).unwrap();
    assert!(words.contains("checksum"), "{words}");
}

#[tokio::test]
async fn messages_that_cannot_be_decoded_close_the_connection() {
    for (kind, body) in [
        (Kind::NodeRequest, &b"\xff\xff\xff"[..]),
        (Kind::NodeRequest, &b"\x03\x05extra"[..]),
        (Kind::CoordinatorRequest, &[][..]),
        (Kind::Hello, &[][..]),
    ] {
        let client = Process::new(Hello::client());
        let (mut raw, connection) = raw_connection(&client).await;
        let frame = Frame::new(kind, Bytes::from_static(body)).unwrap();
        raw.write_all(&[&frame.header.encode()[..], body].concat())
            .await
            .unwrap();
        let error = within(connection.closed()).await;
        assert!(matches!(error, WireError::Corrupt(_)), "{kind:?}: {error}");
    }
}

#[tokio::test]
async fn a_client_keeps_to_the_cluster_of_the_first_coordinator_that_it_meets() {
    let coordinator = |cluster| Hello {
        cluster: Some(ClusterId(cluster)),
        role: Role::Coordinator,
        identity: PeerIdentity::default(),
    };
    let own = Process::listen(coordinator(5)).await;
    let node = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    client.connect(&own).await;
    assert_eq!(client.endpoint.cluster(), Some(ClusterId(5)));
    let connection = client.connect(&node).await;
    assert_eq!(
        connection.call_node(&ask(1), far()).await.unwrap(),
        answer(1)
    );

    let foreign_node = Hello {
        cluster: Some(ClusterId(6)),
        ..node_hello(1, 0)
    };
    for foreign in [coordinator(6), foreign_node] {
        let foreign = Process::listen(foreign).await;
        let refused = Connection::connect(&foreign.address(), &client.endpoint).await;
        let error = refused.err().expect("it is of another cluster");
        assert!(matches!(error, WireError::WrongCluster { .. }), "{error}");
        let why = within(foreign.next_not_accepted()).await;
        assert!(why.contains("belongs to cluster"), "{why}");
    }
}

#[tokio::test]
async fn other_clusters_and_protocols_are_refused_in_words() {
    let server = Process::listen(node_hello(1, 0)).await;
    let foreign = Process::new(Hello {
        cluster: Some(ClusterId(6)),
        ..node_hello(2, 0)
    });
    let error = Connection::connect(&server.address(), &foreign.endpoint)
        .await
        .err()
        .unwrap();
    assert!(matches!(error, WireError::WrongCluster { .. }), "{error}");
    let why = within(server.next_not_accepted()).await;
    assert!(why.contains("belongs to cluster"), "{why}");

    for (bytes, expected) in [
        (
            b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: */*\r\n\r\n".to_vec(),
            "does not begin",
        ),
        (
            Frame::new(Kind::Abort, Bytes::new())
                .unwrap()
                .header
                .encode()
                .to_vec(),
            "not a hello",
        ),
    ] {
        let mut raw = tokio::net::TcpStream::connect(server.address())
            .await
            .unwrap();
        raw.write_all(&bytes).await.unwrap();
        let why = within(server.next_not_accepted()).await;
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn peers_connect_once_and_again_after_a_loss() {
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    let peers = Arc::new(Peers::new(Arc::clone(&client.endpoint)));
    let address = server.address();
    let gets: Vec<_> = (0..20)
        .map(|_| {
            let (peers, address) = (Arc::clone(&peers), address.clone());
            tokio::spawn(async move { peers.get(&address).await })
        })
        .collect();
    let first = peers.get(&address).await.unwrap();
    for get in gets {
        assert!(Arc::ptr_eq(&first, &get.await.unwrap().unwrap()));
    }
    first.close("test");
    let second = peers.get(&address).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    second.call_node(&ask(1), far()).await.unwrap();
}

#[tokio::test]
async fn another_process_at_a_node_s_address_is_not_taken_for_it() {
    let successor = Process::listen(node_hello(5, 0)).await;
    let client = Process::new(Hello::client());
    let peers = Peers::new(Arc::clone(&client.endpoint));
    let address = successor.address();
    let error = peers.reach(NodeId(4), &address).await.err().unwrap();
    assert_eq!(error.to_string(), "node 5 is where node 4 was");
    let reached = peers.reach(NodeId(5), &address).await.unwrap();
    reached.call_node(&ask(1), far()).await.unwrap();
}

#[tokio::test]
async fn peers_fail_fast_for_a_while_after_a_refusal() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let client = Process::new(Hello::client());
    let peers = Peers::new(Arc::clone(&client.endpoint));
    let error = peers.get(&address).await.err().unwrap();
    // From here to the next attempt the clock stands still, however long the machine takes.
    tokio::time::pause();
    assert!(matches!(error, WireError::Unreachable { .. }), "{error}");
    // A server listens now, but the retry interval has not passed.
    let _server = Process::listen_at(node_hello(1, 0), &address).await;
    assert!(matches!(
        peers.get(&address).await,
        Err(WireError::Unreachable { .. })
    ));
    tokio::time::resume();
    let tried_again = async {
        while peers.get(&address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(tried_again).await;
}

#[tokio::test]
async fn a_closed_endpoint_makes_no_connections() {
    let server = Process::listen(node_hello(1, 0)).await;
    let client = Process::new(Hello::client());
    let connection = client.connect(&server).await;
    client.endpoint.close("done");
    assert!(connection.is_closed());
    let late = Connection::connect(&server.address(), &client.endpoint)
        .await
        .unwrap();
    assert!(late.is_closed());
}
