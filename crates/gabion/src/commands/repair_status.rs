//! `gabion repair status`: the time until data is safe again. The figures come from the records and are never too
//! optimistic: a chunk counts once its node has read all of it back.

use super::health::with;
use crate::failure::Failure;
use crate::output::{self, Format, align_numbers, bytes, print_json, say, table};
use gabion_client::Client;
use gabion_console::view::repair::{RepairLimits, RepairView, degraded_array_count, sent_by_racks};
pub(crate) use gabion_console::view::repair::{last_error, light};
use gabion_layout::RackId;
use gabion_protocol::message::{ClusterStatus, Liveness, Meter, RepairStatus};
use std::time::{Duration, Instant};

/// Refresh interval of a watch.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Shows repairs once, or until there are none and no failure from before is still unknown.
pub(crate) async fn show(client: &Client, watch: bool, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let watched = begun.elapsed();
        let status = client.status().await?;
        let meter = client.meters().await?.sum();
        if format == Format::Json {
            print_json(&RepairView::of(&status, &meter))?;
        } else {
            print(&status, &meter);
        }
        output::written()?;
        if !watch || (light(&status) == "green" && is_over(&status, watched)) {
            return Ok(());
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// Shows the limits of repairs.
pub(crate) async fn show_limits(client: &Client, format: Format) -> Result<(), Failure> {
    let repair = client.status().await?.repair;
    if format == Format::Json {
        return print_json(&RepairLimits::of(&repair));
    }
    let limits = restraints(&repair);
    if limits.is_empty() {
        println!("repairs have no limit");
    } else {
        say(format!("repairs: {}", limits.join(", ")));
    }
    Ok(())
}

/// The light, with its reason.
fn light_sentence(status: &ClusterStatus) -> String {
    let light = light(status);
    let lost = status.lost_chunk_count + status.unreachable_chunk_count;
    match (light, degraded_array_count(status)) {
        ("green", _) => {
            "green: every chunk is there, and repaired chunks were read back".to_owned()
        }
        (_, 0) => format!("{light}: {lost} chunks are lost or out of reach"),
        (_, arrays) => {
            format!(
                "{light}: {lost} chunks are lost or out of reach, and the arrays of {arrays} nodes lack a device"
            )
        }
    }
}

/// Failed repairs that a watch shows: those since its start, until the next progress.
pub(crate) struct RepairErrors {
    /// The failure before the watch, if there was one.
    past: Option<String>,
    left_count: u64,
}

impl RepairErrors {
    /// Ignores failures from before `status`.
    pub(crate) fn since(status: &ClusterStatus, left_count: u64) -> Self {
        Self {
            past: status.repair.last_error.clone(),
            left_count,
        }
    }

    /// The failure to show while this number of chunks is left.
    pub(crate) fn now<'a>(&mut self, repair: &'a RepairStatus, left_count: u64) -> Option<&'a str> {
        if left_count < self.left_count {
            self.past.clone_from(&repair.last_error);
        }
        self.left_count = left_count;
        let error = repair.last_error.as_deref();
        error.filter(|&error| self.past.as_deref() != Some(error))
    }
}

fn print(status: &ClusterStatus, meter: &Meter) {
    let repair = &status.repair;
    say(light_sentence(status));
    for (left, stripes) in &status.at_risk {
        let what = match left {
            -1 => "have lost data".to_owned(),
            0 => "survive no further failure".to_owned(),
            left => format!("survive {left} more chunk failures"),
        };
        println!("{stripes} stripes with lost chunks {what}");
    }
    say(format!(
        "repair ({}): {} chunks to make and {} to move, {}; {} stripes at work",
        repair.scheme,
        repair.queued_chunk_count,
        repair.moving_chunk_count,
        bytes(repair.left_bytes),
        repair.running_count
    ));
    say(speed(repair));
    say(format!(
        "{} chunks made ({}), {} moved ({}), {} caught up ({}) since the coordinator started",
        repair.repaired_chunk_count,
        bytes(repair.repaired_bytes),
        repair.moved_chunk_count,
        bytes(repair.moved_bytes),
        repair.caught_up_chunk_count,
        bytes(repair.caught_up_bytes)
    ));
    if let Some(error) = last_error(status) {
        say(format!("the last failed repair: {error}"));
    }
    let pairs = sent_by_racks(meter);
    if !pairs.is_empty() {
        let mut sent = table(&["from", "to", "repair"]);
        for pair in pairs {
            let (from, to) = (RackId(pair.from_rack), RackId(pair.to_rack));
            sent.add_row([from.to_string(), to.to_string(), bytes(pair.bytes)]);
        }
        align_numbers(&mut sent);
        println!("{sent}");
    }
}

/// Speed, time left, and limits.
pub(crate) fn speed(repair: &RepairStatus) -> String {
    let mut words = vec![format!("{}/s", bytes(repair.bytes_per_s))];
    if repair.left_bytes > 0 {
        words.push(match repair.rest_ms {
            Some(ms) => format!("about {} s left", ms.div_ceil(1_000)),
            None => "time left unknown".to_owned(),
        });
    }
    words.extend(restraints(repair));
    words.join(", ")
}

/// Limits of repairs, and of other work under the same limits.
pub(crate) fn restraints(repair: &RepairStatus) -> Vec<String> {
    let mut words = Vec::new();
    if repair.is_paused {
        words.push("paused".to_owned());
    }
    let limits = [
        ("a node", repair.limits.node_bytes_per_s),
        ("a rack", repair.limits.rack_bytes_per_s),
        ("in all", repair.limits.total_bytes_per_s),
        ("in all while clients wait", repair.guard_bytes_per_s),
    ];
    for (what, limit) in limits {
        if let Some(bytes_per_s) = limit {
            words.push(format!("at most {}/s {what}", bytes(bytes_per_s)));
        }
    }
    if let Some(target_ms) = repair.p99_target_ms {
        let seen = repair
            .p99_ms
            .map_or("none".to_owned(), |ms| format!("{ms} ms"));
        words.push(format!("clients' p99 {seen} of {target_ms} ms"));
    }
    words
}

/// Chunks that cannot be read or await repair.
pub(super) fn missing_count(status: &ClusterStatus) -> u64 {
    let unreadable = status.lost_chunk_count + status.unreachable_chunk_count;
    unreadable.max(status.repair.queued_chunk_count)
}

/// Whether no chunk is missing, and no failure from before a watch of this duration is still unknown: each node has
/// failed for good or reported since. A node that was killed just before counts as up until its heartbeat is missed.
pub(super) fn is_over(status: &ClusterStatus, watched: Duration) -> bool {
    let was_heard = |node| {
        let silence = status.silence_ms.get(&node).copied();
        silence.is_some_and(|ms| Duration::from_millis(ms) < watched)
    };
    missing_count(status) == 0
        && with(status, Liveness::Suspect).next().is_none()
        && with(status, Liveness::Up).all(was_heard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::NodeId;
    use gabion_meta::Departure;
    use gabion_protocol::message::NodeStatus;

    fn check(change: impl Fn(&mut ClusterStatus), is_over_then: bool) {
        let node = |node| NodeStatus {
            node: NodeId(node),
            rack: RackId(0),
            address: "10.0.0.1:1".to_owned(),
            liveness: Liveness::Up,
            departure: Departure::None,
        };
        let mut status = ClusterStatus {
            nodes: (0..3).map(node).collect(),
            silence_ms: (0..3).map(|node| (NodeId(node), 50)).collect(),
            ..ClusterStatus::default()
        };
        change(&mut status);
        assert_eq!(
            is_over(&status, Duration::from_millis(100)),
            is_over_then,
            "{status:?}"
        );
    }

    #[test]
    fn a_watch_ends_when_no_failure_can_be_pending() {
        check(|_| {}, true);
        check(|status| status.lost_chunk_count = 1, false);
        check(|status| status.unreachable_chunk_count = 1, false);
        check(|status| status.repair.queued_chunk_count = 1, false);
        let silent = |status: &mut ClusterStatus| {
            status.silence_ms.insert(NodeId(1), 150);
        };
        check(silent, false);
        check(|status| status.silence_ms.clear(), false);
        check(|status| status.nodes[1].liveness = Liveness::Suspect, false);
        let failed = |status: &mut ClusterStatus| {
            status.nodes[1].liveness = Liveness::Failed;
            status.silence_ms.remove(&NodeId(1));
        };
        check(failed, true);
        let drained = |status: &mut ClusterStatus| {
            silent(status);
            status.nodes[1].departure = Departure::Drained;
        };
        check(drained, true);
    }

    fn failed(error: &str) -> ClusterStatus {
        let mut status = ClusterStatus::default();
        status.repair.last_error = Some(error.to_owned());
        status
    }

    #[test]
    fn a_watch_shows_failures_since_the_last_progress() {
        let mut errors = RepairErrors::since(&failed("old"), 5);
        assert_eq!(errors.now(&failed("old").repair, 5), None);
        assert_eq!(errors.now(&failed("new").repair, 5), Some("new"));
        assert_eq!(errors.now(&failed("new").repair, 5), Some("new"));
        assert_eq!(
            errors.now(&failed("new").repair, 4),
            None,
            "a chunk was made"
        );
        assert_eq!(errors.now(&failed("newer").repair, 4), Some("newer"));
    }
}
