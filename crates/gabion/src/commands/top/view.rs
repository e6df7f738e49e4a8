//! The view as lines of at most 100 columns, and as JSON.

use crate::commands::{health, repair_status};
use crate::output::{bytes, counted};
use gabion_console::view::nodes::{NodeView, state_name};
use gabion_console::view::traffic::{Rates, Sample};
use gabion_planner::placement::Space;
use gabion_protocol::message::{ClusterStatus, Liveness, NodeStatus};
use serde_json::{Value, json};

/// The longest line.
const COLUMN_COUNT: usize = 100;
/// Lines for other things than nodes; some are always there.
const OTHER_ROW_COUNT: usize = 14;

/// The meaning of a line, which its colour shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    Plain,
    Heading,
    Good,
    Warning,
    Bad,
}

/// A line of the view.
pub(super) struct Line {
    pub(super) text: String,
    pub(super) tone: Tone,
}

fn line(tone: Tone, text: impl Into<String>) -> Line {
    let mut text = text.into();
    if let Some((end, _)) = text.char_indices().nth(COLUMN_COUNT) {
        text.truncate(end);
    }
    Line { text, tone }
}

/// The lines. The number of nodes' lines is limited so that all lines fit into `row_count`. Rates are unknown at first.
pub(super) fn lines(now: &Sample, rates: Option<&Rates>, row_count: usize) -> Vec<Line> {
    let status = &now.status;
    let mut lines = health_lines(status);
    lines.push(line(Tone::Plain, ""));
    let room = row_count.saturating_sub(OTHER_ROW_COUNT).max(3);
    lines.extend(node_lines(status, rates, room));
    lines.push(line(Tone::Plain, ""));
    lines.push(stripe_line(status));
    lines.extend(repair_lines(status));
    if let Some(rates) = rates {
        lines.extend(rate_lines(rates));
    }
    lines
}

/// The lines of the last successful refresh, with its age.
pub(super) fn aged(then: &Sample, rates: Option<&Rates>, row_count: usize) -> Vec<Line> {
    let seconds = then.age().as_secs();
    let text = format!("no answer for {seconds} s; the view shows the state before");
    let mut lines = vec![line(Tone::Bad, text)];
    lines.extend(self::lines(then, rates, row_count.saturating_sub(1)));
    lines
}

fn health_lines(status: &ClusterStatus) -> Vec<Line> {
    let light = health::light(status);
    let tone = match light {
        "green" => Tone::Good,
        "yellow" => Tone::Warning,
        _ => Tone::Bad,
    };
    let troubles = health::troubles(status);
    let Some(first) = troubles.first() else {
        return vec![line(
            tone,
            "green: every node answers and every chunk is there",
        )];
    };
    let more = match troubles.len() - 1 {
        0 => String::new(),
        count => format!(
            "; {}",
            counted(count as u64, "more problem", "more problems")
        ),
    };
    vec![line(tone, format!("{light}: {first}{more}"))]
}

fn state(status: &ClusterStatus, node: &NodeStatus) -> (&'static str, Tone) {
    let name = state_name(status, node);
    let tone = match name {
        "up" | "drained" if node.liveness != Liveness::Up => Tone::Plain,
        "up" => Tone::Plain,
        "failed" => Tone::Bad,
        _ => Tone::Warning,
    };
    (name, tone)
}

fn node_lines(status: &ClusterStatus, rates: Option<&Rates>, room: usize) -> Vec<Line> {
    let heading = format!(
        "{:>6} {:>5}  {:<9} {:>6} {:>11} {:>11} {:>10} {:>10}  {}",
        "node", "rack", "state", "full", "free", "heard", "updates/s", "reads/s", "address"
    );
    let mut lines = vec![line(Tone::Heading, heading)];
    let mut nodes: Vec<&NodeStatus> = status.nodes.iter().collect();
    if nodes.len() > room {
        // Those that need attention come first, then the fullest ones.
        let used = |node: &NodeStatus| {
            let space = status.spaces.get(&node.node);
            space.map_or(0, Space::used_percent)
        };
        nodes.sort_by_key(|node| {
            let is_well = state(status, node).1 == Tone::Plain;
            (is_well, std::cmp::Reverse(used(node)), node.node)
        });
    }
    let hidden_count = nodes.len().saturating_sub(room);
    for node in nodes.into_iter().take(room) {
        let (state, tone) = state(status, node);
        let space = status.spaces.get(&node.node);
        let full = space.map_or_else(String::new, |space| format!("{} %", space.used_percent()));
        let free = space.map_or_else(String::new, |space| bytes(space.free_bytes));
        let heard = status.silence_ms.get(&node.node);
        let heard = heard.map_or_else(String::new, |ms| format!("{:.1} s ago", *ms as f64 / 1e3));
        let served = rates.and_then(|rates| rates.served.get(&node.node));
        let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate:.0}"));
        let text = format!(
            "{:>6} {:>5}  {state:<9} {full:>6} {free:>11} {heard:>11} {:>10} {:>10}  {}",
            node.node.0,
            node.rack.0,
            rate(served.map(|served| served.0)),
            rate(served.map(|served| served.1)),
            node.address,
        );
        lines.push(line(tone, text));
    }
    if hidden_count > 0 {
        let text = format!("       and {hidden_count} more that are up and less full");
        lines.push(line(Tone::Plain, text));
    }
    lines
}

fn stripe_line(status: &ClusterStatus) -> Line {
    if status.stripes_by_failures_left.is_empty() {
        return line(Tone::Plain, "stripes by failures left: no stripes");
    }
    let stripes = status.stripes_by_failures_left.iter();
    let words: Vec<String> = stripes
        .map(|(&left, count)| match left {
            ..0 => format!("lost data: {count}"),
            left => format!("{left}: {count}"),
        })
        .collect();
    let tone = match health::light(status) {
        "red" => Tone::Bad,
        _ if status.at_risk.is_empty() => Tone::Plain,
        _ => Tone::Warning,
    };
    line(
        tone,
        format!("stripes by failures left: {}", words.join(", ")),
    )
}

fn repair_lines(status: &ClusterStatus) -> Vec<Line> {
    let repair = &status.repair;
    let left = repair.queued_chunk_count + repair.moving_chunk_count;
    let tone = if left > 0 { Tone::Warning } else { Tone::Plain };
    let mut lines = vec![line(
        tone,
        format!(
            "repair ({}): {} to rebuild, {} to move, {} left; {}",
            repair.scheme,
            repair.queued_chunk_count,
            repair.moving_chunk_count,
            bytes(repair.left_bytes),
            repair_status::speed(repair)
        ),
    )];
    if let Some(error) = repair_status::last_error(status) {
        lines.push(line(Tone::Bad, format!("the last failed repair: {error}")));
    }
    lines
}

fn rate_lines(rates: &Rates) -> Vec<Line> {
    let (updates, reads) = rates.all_served();
    let mut lines = vec![line(
        Tone::Plain,
        format!("operations: {updates:.0} updates/s, {reads:.0} parts of reads/s"),
    )];
    if rates.crossing.is_empty() {
        lines.push(line(Tone::Plain, "cross-rack bytes: none"));
        return lines;
    }
    let heading = format!("{:<12} {:>16} {:>16}", "cross-rack", "planned", "metered");
    lines.push(line(Tone::Heading, heading));
    for (purpose, planned, metered) in &rates.crossing {
        let rate = |rate: &f64| format!("{}/s", bytes(*rate as u64));
        let text = format!(
            "{:<12} {:>16} {:>16}",
            purpose.name(),
            rate(planned),
            rate(metered)
        );
        lines.push(line(Tone::Plain, text));
    }
    lines
}

/// The same as JSON.
pub(super) fn as_json(now: &Sample, rates: &Rates) -> Value {
    let status = &now.status;
    let nodes = status.nodes.iter();
    let nodes = nodes.map(|node| NodeView::of(status, node, Some(rates)));
    let (updates, reads) = rates.all_served();
    json!({
        "light": health::light(status),
        "troubles": health::troubles(status),
        "nodes": nodes.collect::<Vec<_>>(),
        "stripes_by_failures_left": status.stripes_by_failures_left,
        "repair": {
            "scheme": status.repair.scheme,
            "queued_chunks": status.repair.queued_chunk_count,
            "moving_chunks": status.repair.moving_chunk_count,
            "left_bytes": status.repair.left_bytes,
            "bytes_per_s": status.repair.bytes_per_s,
            "rest_ms": status.repair.rest_ms,
        },
        "cross_rack": rates.crossings(),
        "updates_per_s": updates,
        "read_parts_per_s": reads,
    })
}
