//! The event log as an operator reads it. That it outlives its coordinator is tested beside its code.

use crate::cluster::{Cluster, pool, until};
use gabion_client::Client;
use gabion_layout::{NodeId, UpdateScheme};
use gabion_protocol::message::{LoggedEvent, RepairOrder, ask};
use tokio::runtime::Runtime;

async fn events(client: &Client) -> Vec<LoggedEvent> {
    let asked = ask::Events {
        after: 0,
        since_ms: None,
        limit: 1000,
    };
    client.events(asked).await.expect("the log is read").events
}

#[test]
fn events_tell_what_happened_and_are_written() {
    let runtime = Runtime::new().expect("a run-time");
    let mut cluster = Cluster::start(3, 1);
    let read =
        |cluster: &Cluster| runtime.block_on(async { events(&cluster.client().await).await });
    runtime.block_on(async {
        let client = cluster.client().await;
        let mut request = pool("vm", UpdateScheme::Plr);
        request.code = Some("rs(2,1)".to_owned());
        request.survive = gabion_layout::Survive::Nodes(1);
        client.create_pool(request).await.expect("a new pool");
        let paused = client.order_repair(RepairOrder::Pause).await;
        paused.expect("repairs are paused");
        client.drain(NodeId(2)).await.expect("it may leave");
    });
    cluster.nodes[1].stop();
    let told = until("the failure is logged", || {
        let told = read(&cluster);
        told.iter()
            .any(|event| event.kind == "failed")
            .then_some(told)
    });
    let joined = told.iter().filter(|event| event.kind == "joined");
    assert_eq!(joined.count(), 3);
    assert_eq!(told[0].kind, "started");
    assert!(told.is_sorted_by(|a, b| a.number < b.number));
    let sentences: Vec<&str> = told.iter().map(|event| &event.sentence[..]).collect();
    for expected in [
        "pool vm is made",
        "repairs are paused",
        "node 2 is to leave",
    ] {
        assert!(sentences.contains(&expected), "{expected}: {sentences:?}");
    }
    let failed = told
        .iter()
        .find(|event| event.kind == "failed")
        .expect("it is there");
    assert_eq!((failed.node, failed.is_warning), (Some(NodeId(1)), true));

    // The thread that writes them is a moment behind.
    let written = cluster.directory().join("coordinator/events/notable.jsonl");
    until("the failure is written", || {
        let lines = std::fs::read_to_string(&written).ok()?;
        lines.contains(&failed.sentence).then_some(())
    });
}
