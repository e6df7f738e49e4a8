//! Links under a virtual clock: rates over a second, sharing, overlap, and damaged tables.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The writer sends a frame when less than this is left of its transmission.
const SLACK_NS: u64 = MS;

fn node(node: u32, rack: u32) -> PeerIdentity {
    PeerIdentity {
        node: Some(NodeId(node)),
        rack: Some(RackId(rack)),
    }
}

const CLIENT: PeerIdentity = PeerIdentity {
    node: None,
    rack: None,
};

fn table(node_bytes_per_s: u64, rack_bytes_per_s: u64) -> (tempfile::TempDir, LinkTable) {
    let directory = tempfile::tempdir().unwrap();
    let spec = LinkSpec {
        node_bytes_per_s,
        rack_bytes_per_s,
    };
    let table = LinkTable::create(directory.path(), spec, 8, 4).unwrap();
    (directory, table)
}

/// A connection that always has a next frame to send.
struct Sender {
    from: PeerIdentity,
    to: PeerIdentity,
    frame_bytes: u64,
    /// When the frame that it holds may leave.
    leaves_ns: u64,
    sent_bytes: u64,
}

/// Runs senders as writer tasks do: reserve, wait until the frame may leave, wake up late, send.
/// Returns the bytes that each sent in `[start, start + duration)`, the first second left out.
fn run(
    table: &LinkTable,
    flows: &[(PeerIdentity, PeerIdentity, u64)],
    mut late_ns: impl FnMut() -> u64,
) -> Vec<u64> {
    let start = 1_000 * SECOND;
    let (measure_from, end) = (start + SECOND, start + 2 * SECOND);
    let new = |&(from, to, frame_bytes): &(PeerIdentity, PeerIdentity, u64)| {
        let wait = table.reserve_at(start, &from, &to, frame_bytes).as_nanos() as u64;
        Sender {
            from,
            to,
            frame_bytes,
            leaves_ns: start + wait,
            sent_bytes: 0,
        }
    };
    let mut senders: Vec<Sender> = flows.iter().map(new).collect();
    loop {
        let next = senders
            .iter_mut()
            .min_by_key(|sender| sender.leaves_ns)
            .unwrap();
        let now = next.leaves_ns;
        if now >= end {
            return senders.iter().map(|sender| sender.sent_bytes).collect();
        }
        if now >= measure_from {
            next.sent_bytes += next.frame_bytes;
        }
        let wait = table
            .reserve_at(now, &next.from, &next.to, next.frame_bytes)
            .as_nanos() as u64;
        next.leaves_ns = if wait <= SLACK_NS {
            now
        } else {
            now + wait - SLACK_NS + late_ns()
        };
    }
}

fn check_rate(sent_bytes: u64, nominal_bytes_per_s: u64, frame_bytes: u64) {
    let low = nominal_bytes_per_s * 97 / 100;
    let high = nominal_bytes_per_s * 103 / 100;
    // A frame that begins before the second and ends in it counts whole.
    let (low, high) = (low.saturating_sub(frame_bytes), high + frame_bytes);
    assert!(
        (low..=high).contains(&sent_bytes),
        "{sent_bytes} not in {low}..={high}"
    );
}

proptest! {
    #[test]
    fn one_flow_gets_its_slowest_link(
        node_rate in prop::sample::select(vec![50_000_000_u64, 125_000_000, 1_250_000_000]),
        rack_rate in prop::sample::select(vec![25_000_000_u64, 50_000_000, 500_000_000]),
        frame_bytes in prop::sample::select(vec![4_096_u64, 32 << 10, 256 << 10, 1 << 20]),
        late in prop::collection::vec(0..2_500_000_u64, 1..50),
    ) {
        let (_directory, table) = table(node_rate, rack_rate);
        let mut late = late.into_iter().cycle();
        let sent = run(&table, &[(node(0, 0), node(1, 1), frame_bytes)], || late.next().unwrap());
        check_rate(sent[0], node_rate.min(rack_rate), frame_bytes);
    }

    #[test]
    fn flows_into_one_node_share_its_ingress(
        frame_bytes in prop::sample::select(vec![32_u64 << 10, 256 << 10, 1 << 20]),
        late in prop::collection::vec(0..2_000_000_u64, 1..50),
    ) {
        let (_directory, table) = table(50_000_000, 0);
        let flows: Vec<_> = (1..5).map(|from| (node(from, 0), node(0, 0), frame_bytes)).collect();
        let mut late = late.into_iter().cycle();
        let sent = run(&table, &flows, || late.next().unwrap());
        check_rate(sent.iter().sum(), 50_000_000, 4 * frame_bytes);
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        // A sender that wakes up late sometimes loses a turn, but no sender starves.
        prop_assert!(2 * least + 2 * frame_bytes >= *most, "unfair: {:?}", sent);
    }
}

#[test]
fn no_flow_exceeds_its_rate_over_a_second_of_large_frames() {
    let (_directory, table) = table(1_250_000_000, 0);
    let sent = run(&table, &[(node(0, 0), node(1, 0), 32 << 10)], || 0);
    check_rate(sent[0], 1_250_000_000, 0);
}

#[test]
fn a_chain_of_hops_runs_at_full_rate_on_each() {
    let (_directory, table) = table(50_000_000, 0);
    let flows: Vec<_> = (0..6)
        .map(|at| (node(at, 0), node(at + 1, 0), 1 << 20))
        .collect();
    for sent in run(&table, &flows, || 900_000) {
        check_rate(sent, 50_000_000, 1 << 20);
    }
}

#[test]
fn only_traffic_between_racks_pays_for_racks() {
    let (_directory, table) = table(0, 1_000_000);
    let now = 5_000 * SECOND;
    let reserve = |from, to| table.reserve_at(now, &from, &to, 1_000_000);
    assert_eq!(reserve(node(0, 0), node(1, 0)), Duration::ZERO);
    assert_eq!(reserve(CLIENT, node(1, 0)), Duration::ZERO);
    assert_eq!(reserve(node(1, 0), CLIENT), Duration::ZERO);
    // One second for a megabyte, less the burst.
    assert_eq!(reserve(node(0, 0), node(4, 1)), Duration::from_millis(998));
    // Rack 0's way up is busy, rack 1's is not; the way back from rack 1 is another link.
    assert_eq!(
        reserve(node(1, 0), node(5, 2)),
        Duration::from_millis(1_998)
    );
    assert_eq!(reserve(node(4, 1), node(0, 0)), Duration::from_millis(998));
}

#[test]
fn clients_pay_the_node_s_own_link() {
    let (_directory, table) = table(1_000_000, 1);
    let now = 5_000 * SECOND;
    let full = Duration::from_millis(998);
    assert_eq!(table.reserve_at(now, &CLIENT, &node(2, 0), 1_000_000), full);
    assert_eq!(table.reserve_at(now, &node(2, 0), &CLIENT, 1_000_000), full);
    assert_eq!(
        table.reserve_at(now, &node(3, 0), &node(3, 0), 1_000_000),
        Duration::ZERO
    );
}

#[test]
fn a_time_from_another_boot_does_not_block_a_link() {
    assert_eq!(
        done_at(SECOND, u64::MAX, 1_000, 1_000_000),
        SECOND - BURST_NS + MS
    );
    assert_eq!(
        done_at(SECOND, 2 * SECOND, 1_000, 1_000_000),
        2 * SECOND + MS
    );
    assert_eq!(done_at(0, 0, u64::MAX, 1), u64::MAX);
}

#[test]
fn processes_share_a_table_by_its_directory() {
    let (directory, first) = table(1_000_000, 0);
    let second = LinkTable::open(directory.path()).unwrap();
    let now = 9 * SECOND;
    first.reserve_at(now, &node(0, 0), &node(1, 0), 1_000_000);
    let wait = second.reserve_at(now, &node(2, 0), &node(1, 0), 1_000_000);
    assert_eq!(wait, Duration::from_millis(1_998));
    second.set_rates(LinkSpec::default());
    assert_eq!(
        first.reserve_at(now, &node(2, 0), &node(3, 0), 1_000_000),
        Duration::ZERO
    );
}

#[test]
fn threads_lose_no_reservation() {
    let (_directory, table) = table(1_000_000, 0);
    let now = 9 * SECOND;
    std::thread::scope(|scope| {
        for from in 1..5 {
            let table = &table;
            scope.spawn(move || {
                for _ in 0..1_000 {
                    table.reserve_at(now, &node(from, 0), &node(0, 0), 1_000);
                }
            });
        }
    });
    let wait = table.reserve_at(now, &CLIENT, &node(0, 0), 0);
    assert_eq!(wait, Duration::from_millis(4_000 - 2));
}

#[test]
fn damaged_and_foreign_tables_are_refused() {
    let (directory, _table) = table(1, 1);
    let path = directory.path().join(FILE_NAME);
    let good = fs::read(&path).unwrap();
    let mut wrong_format = good.clone();
    wrong_format[7] ^= 1;
    let mut huge = good.clone();
    huge[8..16].fill(0xff);
    for bad in [
        &good[..16],
        &good[..good.len() - 8],
        &wrong_format,
        &huge,
        &[],
    ] {
        // A new file each time: the table above still maps the old one.
        fs::remove_file(&path).unwrap();
        fs::write(&path, bad).unwrap();
        let error = LinkTable::open(directory.path()).unwrap_err();
        assert!(matches!(error, WireError::Io { .. }), "{error}");
    }
    assert!(LinkTable::open(&directory.path().join("none")).is_err());
}

#[test]
fn peers_without_a_link_pass_those_of_others() {
    let (_directory, table) = table(1_000, 1_000_000);
    let took = |from, to| table.reserve_at(1_000_000_000, from, to, 1_000);
    let (stranger, far) = (node(8, 0), node(9, 4));
    assert!(
        took(&stranger, &far) <= Duration::from_millis(1),
        "racks alone"
    );
    let from_known = took(&node(0, 0), &stranger);
    assert!(from_known > Duration::from_millis(900), "{from_known:?}");
}
