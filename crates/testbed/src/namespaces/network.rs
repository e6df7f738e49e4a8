//! Makes a testbed's network in the namespaces of the process that calls it: a bridge a rack, a
//! bridge for the core, a namespace a node, and limits on the links between them.
//!
//! All names exist only in this process's own mount namespace, so nothing here removes anything:
//! the kernel does, when the last process is gone.

use super::fair::{self, Side};
use super::limits::{Limits, Uplink};
use super::seats::{CLIENT, COORDINATOR, CORE, Seats, core_address, node_address, node_seat};
use crate::error::{Context, TestbedError};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

/// Commands for `ip` or `tc`, a line each.
pub(super) type Batch = String;

/// Congestion control of senders, independent of this machine's default: Linux's usual one, which
/// fills queues and reacts to losses.
const CONGESTION_CONTROL: &str = "cubic";

/// Makes the network. The caller must be in network and mount namespaces of its own.
pub(super) fn make(shape: Seats, limits: &Limits) -> Result<(), TestbedError> {
    // Names of namespaces are files; they must not be visible outside.
    std::fs::create_dir_all("/run/netns").context("create /run/netns")?;
    run("mount", &["-t", "tmpfs", "testbed", "/run/netns"], "")?;
    let own_id = std::process::id().to_string();
    run("ip", &["netns", "attach", CORE, &own_id], "")?;
    let outside = [COORDINATOR, CLIENT];
    let nodes = shape.nodes().map(|(rack, index)| node_seat(rack, index));
    let mut batch = String::new();
    for seat in outside.map(str::to_owned).into_iter().chain(nodes) {
        line(&mut batch, format_args!("netns add {seat}"));
    }
    line(&mut batch, format_args!("link set lo up"));
    line(&mut batch, format_args!("link add core type bridge"));
    line(&mut batch, format_args!("link set core up"));
    for rack in 0..shape.rack_count {
        uplink(&mut batch, rack);
    }
    for seat in outside {
        port(&mut batch, seat, seat, CORE);
    }
    for (rack, index) in shape.nodes() {
        let bridge = format!("rack-{rack}");
        port(
            &mut batch,
            &node_port(rack, index),
            &node_seat(rack, index),
            &bridge,
        );
    }
    run("ip", &["-batch", "-"], &batch)?;
    for seat in outside {
        open_link(seat, core_address(seat), limits.frame_bytes())?;
    }
    for (rack, index) in shape.nodes() {
        let address = node_address(rack, index);
        open_link(&node_seat(rack, index), address, limits.frame_bytes())?;
    }
    limit(shape, limits)
}

/// A rack's bridge, and its link to the core: `up-R` sends what leaves the rack, `down-R` what enters.
fn uplink(batch: &mut Batch, rack: u32) {
    for command in [
        format!("link add rack-{rack} type bridge"),
        format!("link set rack-{rack} up"),
        format!("link add up-{rack} type veth peer name down-{rack}"),
        format!("link set up-{rack} master rack-{rack} up"),
        format!("link set down-{rack} master core up"),
    ] {
        line(batch, format_args!("{command}"));
    }
}

/// A link between a seat and a bridge.
fn port(batch: &mut Batch, port: &str, seat: &str, bridge: &str) {
    line(
        batch,
        format_args!("link add {port} type veth peer name eth0 netns {seat}"),
    );
    line(batch, format_args!("link set {port} master {bridge} up"));
}

fn node_port(rack: u32, index: u32) -> String {
    format!("port-{rack}-{index}")
}

/// Gives a seat its address. Senders form frames of at most `frame_bytes`, or of any size.
fn open_link(seat: &str, address: Ipv4Addr, frame_bytes: Option<u64>) -> Result<(), TestbedError> {
    let mut batch = format!(
        "link set lo up\naddress add {address}/16 dev eth0 noprefixroute\nlink set eth0 up\n\
         route add 10.83.0.0/16 dev eth0 congctl {CONGESTION_CONTROL}\n"
    );
    if let Some(bytes) = frame_bytes {
        line(
            &mut batch,
            format_args!("link set eth0 gso_max_size {bytes}"),
        );
    }
    run("ip", &["-netns", seat, "-batch", "-"], &batch)
}

/// Limits all links, each direction separately.
fn limit(shape: Seats, limits: &Limits) -> Result<(), TestbedError> {
    let mut core = String::new();
    for (rack, index) in shape.nodes() {
        let rate = limits.node(rack);
        if rate > 0 {
            let (mut own, port) = (String::new(), node_port(rack, index));
            if limits.are_fair() {
                let node = Side::node(rack, index);
                let others = node.others(shape, true);
                fair::link(&mut own, "eth0", rate, &node, &others);
                fair::link(&mut core, &port, rate, &others, &node);
            } else {
                bucket(&mut own, "eth0", rate);
                bucket(&mut core, &port, rate);
            }
            let seat = node_seat(rack, index);
            run("tc", &["-netns", &seat, "-batch", "-"], &own)?;
        }
    }
    for rack in 0..shape.rack_count {
        match limits {
            Limits::Racks {
                uplink,
                is_fair: true,
                ..
            } => fair_gateway(&mut core, shape, rack, *uplink),
            Limits::Racks { uplink, .. } => gateway(&mut core, shape, rack, *uplink),
            Limits::Regions { from, .. } => regions(&mut core, rack, &from[rack as usize]),
        }
    }
    run("tc", &["-batch", "-"], &core)
}

/// A token bucket on a device's output.
fn bucket(batch: &mut Batch, device: &str, bytes_per_s: u64) {
    let (burst, queue) = (burst_bytes(bytes_per_s), queue_bytes(bytes_per_s));
    line(
        batch,
        format_args!(
            "qdisc add dev {device} root tbf rate {bytes_per_s}bps burst {burst}b limit {queue}b"
        ),
    );
}

/// A rack's uplink whose connections are served in turn.
fn fair_gateway(batch: &mut Batch, shape: Seats, rack: u32, uplink: Uplink) {
    if uplink.rate > 0 {
        let inside = Side::rack(shape, rack);
        let outside = inside.others(shape, !uplink.spares_core);
        fair::link(batch, &format!("up-{rack}"), uplink.rate, &inside, &outside);
        fair::link(
            batch,
            &format!("down-{rack}"),
            uplink.rate,
            &outside,
            &inside,
        );
    }
}

/// A rack's uplink, each direction separately.
fn gateway(batch: &mut Batch, shape: Seats, rack: u32, Uplink { rate, spares_core }: Uplink) {
    let ends = [
        (format!("up-{rack}"), "dst"),
        (format!("down-{rack}"), "src"),
    ];
    for (device, other_end) in ends.iter().filter(|_| rate > 0) {
        if !spares_core {
            bucket(batch, device, rate);
            continue;
        }
        queues(batch, device);
        class(batch, device, 1, rate);
        for other in (0..shape.rack_count).filter(|&other| other != rack) {
            filter(batch, device, other_end, other, 1);
        }
    }
}

/// One class of the region's uplink for each other region; traffic to the coordinator and to
/// clients is in none and has no limit.
fn regions(batch: &mut Batch, rack: u32, to: &[u64]) {
    let device = format!("up-{rack}");
    queues(batch, &device);
    for (region, &rate) in (0..).zip(to) {
        if region != rack && rate > 0 {
            class(batch, &device, region + 1, rate);
            filter(batch, &device, "dst", region, region + 1);
        }
    }
}

/// Makes a device send by classes; unfiltered traffic has no limit.
pub(super) fn queues(batch: &mut Batch, device: &str) {
    line(
        batch,
        format_args!("qdisc add dev {device} root handle 1: htb"),
    );
}

fn class(batch: &mut Batch, device: &str, class: u32, rate: u64) {
    let (burst, queue) = (burst_bytes(rate), queue_bytes(rate));
    // The quantum divides bandwidth that classes lend each other, and these lend none.
    line(
        batch,
        format_args!(
            "class add dev {device} parent 1: classid 1:{class:x} htb rate {rate}bps \
             burst {burst}b cburst {burst}b quantum 60000"
        ),
    );
    line(
        batch,
        format_args!("qdisc add dev {device} parent 1:{class:x} bfifo limit {queue}b"),
    );
}

/// Gives a class the packets whose `end`, `src` or `dst`, is in a rack.
fn filter(batch: &mut Batch, device: &str, end: &str, rack: u32, class: u32) {
    line(
        batch,
        format_args!(
            "filter add dev {device} parent 1: protocol ip u32 match ip {end} \
             10.83.{rack}.0/24 flowid 1:{class:x}"
        ),
    );
}

/// Burst size: the largest packet of a virtual link, or five milliseconds.
fn burst_bytes(bytes_per_s: u64) -> u64 {
    (bytes_per_s / 200).max(66_000)
}

/// Queue length: 50 milliseconds, or a few of the largest packets.
fn queue_bytes(bytes_per_s: u64) -> u64 {
    (bytes_per_s / 20).max(264_000)
}

/// Adds a command.
pub(super) fn line(batch: &mut Batch, text: std::fmt::Arguments<'_>) {
    writeln!(batch, "{text}").expect("writes to a string succeed");
}

/// Runs a program with this input; fails with its output.
fn run(program: &str, arguments: &[&str], input: &str) -> Result<(), TestbedError> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context(format!("start {program}"))?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A program that ends early gives the reason on its stderr, so a broken pipe is no error here.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child
        .wait_with_output()
        .context(format!("wait for {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().collect::<Vec<_>>().join("; ");
    Err(TestbedError::Network {
        command: format!("{program} {}", arguments.join(" ")),
        said,
    })
}
