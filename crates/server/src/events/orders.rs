//! Orders of operators as events: settings and departures.

use super::log::Happening;
use gabion_meta::{Limit, QuotaChange};
use gabion_protocol::message::{CoordinatorRequest, RepairOrder};

/// A node's store has failed. The node says so until it is answered.
pub(crate) const STORE_FAILED: &str = "store_failed";

/// The event of a request that the coordinator has carried out, if it is an order. `directory` is the path of the
/// directory whose quota it sets; without one, its number names it.
pub(crate) fn order_of(request: &CoordinatorRequest, directory: Option<&str>) -> Option<Happening> {
    use CoordinatorRequest as R;
    let plain = |sentence: String| Some(Happening::plain("setting", sentence));
    let of_node = |kind, node, sentence: String| {
        Some(Happening {
            node: Some(node),
            ..Happening::plain(kind, sentence)
        })
    };
    match request {
        R::CreatePool(pool) => plain(format!("pool {} is made", pool.name)),
        R::SetQuota(asked) => {
            let what = format!("pool {}", asked.pool);
            plain(quota_sentence(&what, Some(asked.change)))
        }
        R::SetDirectoryQuota(asked) => {
            let number = asked.directory.0.to_string();
            let what = format!("directory {}", directory.unwrap_or(&number));
            plain(quota_sentence(&what, asked.change))
        }
        R::OrderRepair(order) => plain(repair_sentence(order)),
        R::RepairNow(now) => plain(match &now.scheme {
            Some(scheme) => format!("repairs begin now, by {scheme}"),
            None => "repairs begin now".to_owned(),
        }),
        R::OrderForm(order) => {
            let form = if order.is_encoded {
                "encoded"
            } else {
                "replicated again"
            };
            let what = order.file.as_deref().unwrap_or("every file");
            plain(format!("{what} of pool {} is to be {form}", order.pool))
        }
        R::Drain(node) => of_node("drain_began", *node, format!("{node} is to leave")),
        R::Keep(node) => of_node("drain_cancelled", *node, format!("{node} is to stay")),
        R::Accept(node) => {
            let sentence = format!("{node} may set its unknown chunks aside");
            of_node("join_accepted", *node, sentence)
        }
        R::StoreFailed(failure) => {
            let node = failure.node;
            let sentence = format!("the store of {node} has failed: {}", failure.reason);
            let happening = of_node(STORE_FAILED, node, sentence)?;
            Some(Happening {
                is_warning: true,
                ..happening
            })
        }
        _ => None,
    }
}

fn quota_sentence(what: &str, change: Option<QuotaChange>) -> String {
    let part = |limit: Option<Limit>, unit: &str| match limit? {
        Limit::Unlimited => Some(format!("no limit of {unit}")),
        Limit::AtMost(count) => Some(format!("at most {count} {unit}")),
    };
    let Some(QuotaChange { bytes, files }) = change else {
        return format!("quota of {what}: removed");
    };
    let parts: Vec<String> = [part(bytes, "bytes"), part(files, "files")]
        .into_iter()
        .flatten()
        .collect();
    if parts.is_empty() {
        return format!("quota of {what}: unchanged");
    }
    format!("quota of {what}: {}", parts.join(", "))
}

fn repair_sentence(order: &RepairOrder) -> String {
    let rate = |name: &str, rate: Option<u64>| {
        rate.map(|bytes_per_s| format!("{name} {bytes_per_s} bytes a second"))
    };
    match order {
        RepairOrder::Pause => "repairs are paused".to_owned(),
        RepairOrder::Resume => "repairs are resumed".to_owned(),
        RepairOrder::Limit {
            limits,
            p99_target_ms,
        } => {
            let all = [
                rate("a node", limits.node_bytes_per_s),
                rate("a rack", limits.rack_bytes_per_s),
                rate("in all", limits.total_bytes_per_s),
                p99_target_ms.map(|ms| format!("latency target {ms} ms")),
            ];
            let all: Vec<String> = all.into_iter().flatten().collect();
            if all.is_empty() {
                "repairs have no limits".to_owned()
            } else {
                format!("limits of repairs: {}", all.join(", "))
            }
        }
    }
}
