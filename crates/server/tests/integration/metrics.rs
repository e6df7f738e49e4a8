//! Metrics against known work: each figure is compared with what the test has done.

#![allow(
    clippy::float_cmp,
    reason = "the figures are whole numbers far below 2^53"
)]

use crate::cluster::{Cluster, LEASE_MS, pool, until};
use crate::conventions;
use crate::page::{Page, get};
use gabion_layout::UpdateScheme;
use std::collections::{BTreeMap, BTreeSet};
use tokio::runtime::Runtime;

const FILE_BYTES: u64 = 1 << 20;
/// Four data chunks of 64 KiB.
const STRIPE_COUNT: u64 = 4;
const UPDATE_COUNT: u64 = 100;
const UPDATE_BYTES: u64 = 4096;

/// A cluster with a file of whole stripes, which has got all updates.
fn updated_cluster() -> Cluster {
    let cluster = Cluster::start(3, 3);
    let work = async {
        let client = cluster.client().await;
        let pool = client.create_pool(pool("vm", UpdateScheme::Plr)).await;
        pool.expect("a new pool");
        let bytes = vec![7; FILE_BYTES as usize];
        let put = client.put("disk", None, &bytes[..], FILE_BYTES, &());
        put.await.expect("it is stored");
        let file = client.open("disk").await.expect("it is there");
        for number in 0..UPDATE_COUNT {
            let new = vec![number as u8; UPDATE_BYTES as usize];
            let offset = number * UPDATE_BYTES;
            file.write(offset, new.into()).await.expect("it is written");
        }
    };
    Runtime::new().expect("a run-time").block_on(work);
    cluster
}

/// The sums of a metric's rows on some pages.
fn sum(pages: &[Page], metric: &str, is_meant: impl Fn(&str) -> bool) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for page in pages {
        for (labels, value) in page.rows(metric) {
            if is_meant(&labels) {
                *sums.entry(labels).or_default() += value;
            }
        }
    }
    sums
}

#[test]
fn metrics_count_what_was_done() {
    let mut cluster = updated_cluster();
    let pages = || -> Vec<Page> {
        let nodes = cluster.nodes.iter();
        nodes.map(|node| Page::of(node.metrics)).collect()
    };
    let all = |_: &str| true;
    let of = |metric: &str, labels: &str| sum(&pages(), metric, all).get(labels).copied();

    let labels = "pool=\"vm\",scheme=\"plr\"";
    let count = of("gabion_node_update_seconds_count", labels);
    assert_eq!(count, Some(UPDATE_COUNT as f64));
    let bytes = of("gabion_node_updated_bytes_total", labels);
    assert_eq!(bytes, Some((UPDATE_COUNT * UPDATE_BYTES) as f64));
    let parts = of(
        "gabion_node_request_seconds_count",
        "request=\"RunPart\",purpose=\"update\"",
    );
    // Each update changes a data chunk and two parity chunks. On a busy machine some are refused and made again.
    let parts = parts.expect("parts were run");
    assert!(parts >= (3 * UPDATE_COUNT) as f64, "{parts} parts");
    let appended = pages()
        .into_iter()
        .map(|page| page.value("gabion_node_appended_records_total"));
    let appended = appended.sum::<f64>();
    assert!(appended >= (3 * UPDATE_COUNT) as f64, "{appended} records");

    // Nodes have sent for updates as many bytes as `Cost` says of their plans, by racks. Bytes of an update that is
    // made again is in no plan that was carried out.
    let is_update = |labels: &str| {
        labels.contains("purpose=\"update\"") && !labels.contains("from_rack=\"client\"")
    };
    let sent = sum(&pages(), "gabion_node_sent_bytes_total", is_update);
    let planned = sum(&pages(), "gabion_node_planned_bytes_total", is_update);
    let is_exact = parts == (3 * UPDATE_COUNT) as f64;
    assert!(
        !is_exact || sent == planned,
        "{sent:?}, planned {planned:?}"
    );
    // Each parity delta leaves the data node unless a node has both, which no stripe does.
    let deltas = 2 * UPDATE_COUNT * UPDATE_BYTES;
    assert_eq!(planned.values().sum::<f64>(), deltas as f64);
    assert!(sent.values().sum::<f64>() >= deltas as f64);

    for (node, page) in pages().iter().enumerate() {
        conventions::check(&page.text, "gabion_node_");
        let syncs = page.value("gabion_node_disk_sync_seconds_count{of=\"file\"}");
        let asked = page.value("gabion_node_store_syncs_total");
        assert!(
            syncs >= asked,
            "node {node}: {syncs} syncs, {asked} asked for"
        );
        assert!(page.value("gabion_node_lease_left_seconds") <= LEASE_MS as f64 / 1e3);
    }
    let of_nodes = pages();
    check_cluster(&mut cluster);
    let of_coordinator = Page::of(cluster.coordinator.metrics);
    check_monitoring(of_nodes.iter().chain([&of_coordinator]));
}

/// The files for Prometheus and Grafana name only metrics that these pages have.
fn check_monitoring<'a>(pages: impl Iterator<Item = &'a Page>) {
    let mut known: BTreeSet<&str> = pages.flat_map(Page::names).collect();
    // A refusal is there from the first one on, limits of repairs where some are set, and time left while their rate is
    // known.
    known.extend([
        "gabion_node_refusals_total",
        "gabion_coordinator_repair_limit_bytes_per_second",
        "gabion_coordinator_repair_left_seconds",
    ]);
    let files = [
        include_str!("../../../../monitoring/alerts.yml"),
        include_str!("../../../../monitoring/dashboard.json"),
    ];
    for file in files {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = file.split(|c: char| !is_part(c));
        let named = words.filter(|word| {
            word.starts_with("gabion_node_") || word.starts_with("gabion_coordinator_")
        });
        let named: Vec<&str> = named.collect();
        assert!(named.len() > 10, "the file names few metrics");
        for name in named {
            assert!(known.contains(name), "no process has {name}");
        }
    }
    conventions::check_rules(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../monitoring/alerts.yml"
    ));
}

/// The cluster's view, before and after a node is killed.
fn check_cluster(cluster: &mut Cluster) {
    let address = cluster.coordinator.metrics;
    let page = Page::of(address);
    conventions::check(&page.text, "gabion_coordinator_");
    let value = |name: &str| page.value(&format!("gabion_coordinator_{name}"));
    assert_eq!(value("nodes{state=\"up\"}"), 9.0);
    assert_eq!(value("stripes{failures_left=\"2\"}"), STRIPE_COUNT as f64);
    let vm = "{pool=\"vm\",pool_id=\"0\"}";
    assert_eq!(value(&format!("pool_files{vm}")), 1.0);
    let logical = value(&format!("pool_logical_bytes{vm}"));
    assert_eq!(logical, FILE_BYTES as f64);
    // Six chunks for four of data, each with a header and checksums.
    let around = STRIPE_COUNT * 6 * 8192;
    let raw = value(&format!("pool_raw_bytes{vm}"));
    assert_eq!(raw, logical * 1.5 + around as f64);
    let commits = value("request_seconds_count{request=\"CommitPut\",purpose=\"\"}");
    assert_eq!(commits, 1.0);
    let leases = value("request_seconds_count{request=\"Acquire\",purpose=\"\"}");
    assert!(leases >= STRIPE_COUNT as f64 / 2.0, "{leases} leases");
    assert!(value("metadata_transaction_seconds_count") >= commits + leases);
    assert_eq!(value("events_total{kind=\"joined\"}"), 9.0);
    assert_eq!(value("lost_chunks"), 0.0);

    cluster.nodes[4].stop();
    let page = until("the node is declared failed", || {
        let page = Page::of(address);
        let failed = page.find("gabion_coordinator_nodes{state=\"failed\"}");
        (failed == Some(1.0)).then_some(page)
    });
    let value = |name: &str| page.value(&format!("gabion_coordinator_{name}"));
    assert_eq!(value("node_up{node=\"4\",rack=\"1\"}"), 0.0);
    assert_eq!(value("node_up{node=\"5\",rack=\"1\"}"), 1.0);
    let lost = value("lost_chunks");
    assert!(lost <= STRIPE_COUNT as f64);
    let at_risk = page.find("gabion_coordinator_stripes_at_risk{failures_left=\"1\"}");
    assert_eq!(at_risk.unwrap_or(0.0), lost, "each has lost one chunk");
    let rest = page.find("gabion_coordinator_stripes{failures_left=\"2\"}");
    assert_eq!(rest.unwrap_or(0.0), STRIPE_COUNT as f64 - lost);
    assert_eq!(value("events_total{kind=\"failed\"}"), 1.0);
}

#[test]
fn a_scraper_gets_the_form_that_it_asks_for_and_nothing_else_is_served() {
    let cluster = Cluster::start(1, 1);
    let address = cluster.nodes[0].metrics;
    let open = get(
        address,
        "/metrics",
        "application/openmetrics-text; version=1.0.0",
    );
    assert!(
        open.contains("content-type: application/openmetrics-text"),
        "{open}"
    );
    assert!(open.contains("# EOF\n"), "{open}");
    let plain = get(address, "/metrics", "*/*");
    assert!(
        plain.contains("content-type: text/plain; version=0.0.4"),
        "{plain}"
    );
    assert!(get(address, "/", "*/*").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_peer_that_is_turned_away_is_counted() {
    let cluster = Cluster::start(1, 1);
    let address: std::net::SocketAddr = cluster.coordinator.address.parse().expect("an address");
    // No frame of Gabion's begins so.
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    std::io::Write::write_all(&mut stream, &[b'x'; 64]).expect("it reads");
    until("the peer is counted", || {
        let page = Page::of(cluster.coordinator.metrics);
        let name = "gabion_coordinator_turned_away_total{reason=\"corrupt\"}";
        (page.find(name) == Some(1.0)).then_some(())
    });
}
