//! Plans as people read them: one line a step, or a Graphviz drawing with a box a rack.

use crate::{Cost, Goal, Log, Plan, Step, Term};
use gabion_codec::Code;
use gabion_layout::{NodeId, Slices, Topology};
use std::fmt::Write as _;

/// The plan as text: its goal, its cost, then one line a step.
pub fn text(plan: &Plan, code: &Code, topology: &Topology) -> String {
    let cost = Cost::of(plan, topology);
    let mut out = format!(
        "{} of {}, {code}, {} byte chunks\n",
        goal_name(&plan.goal),
        plan.stripe,
        plan.geometry.chunk_bytes()
    );
    let sent = cost.cross_rack_bytes + cost.inner_rack_bytes;
    let _ = writeln!(
        out,
        "cost: {} bytes between nodes ({} cross racks), {} with the client, {} read, {} written",
        sent, cost.cross_rack_bytes, cost.client_bytes, cost.read_bytes, cost.write_bytes
    );
    for (at, step) in plan.steps.iter().enumerate() {
        let _ = writeln!(out, "{at:>4}  {}", line(step, topology));
    }
    out
}

fn goal_name(goal: &Goal) -> &'static str {
    match goal {
        Goal::Update { .. } => "update",
        Goal::Encode => "encoding",
        Goal::Repair { .. } => "repair",
        Goal::Read { .. } => "read",
    }
}

fn line(step: &Step, topology: &Topology) -> String {
    let at = |node: &NodeId| place(*node, topology);
    match step {
        Step::Input {
            node,
            chunk,
            slices,
        } => {
            format!("{}: new bytes of {chunk} {}", at(node), stream(slices))
        }
        Step::Read {
            node,
            chunk,
            slices,
        } => {
            format!("{}: read {chunk} {}", at(node), stream(slices))
        }
        Step::Combine { node, terms } => format!("{}: combine {}", at(node), sum(terms)),
        Step::Send { from, to, value } => {
            let crossing = if topology.crosses_racks(*from, *to) {
                " cross-rack"
            } else {
                ""
            };
            format!("{}: send #{} to {}{crossing}", at(from), value.0, at(to))
        }
        Step::Write {
            node,
            chunk,
            slices,
            value,
        } => {
            format!(
                "{}: write #{} to {chunk} {}",
                at(node),
                value.0,
                stream(slices)
            )
        }
        Step::Append {
            node,
            log,
            chunk,
            slices,
            value,
        } => {
            let log = match log {
                Log::Journal => "journal".to_owned(),
                Log::Parity { data } => format!("parity log (data {data})"),
            };
            format!(
                "{}: append #{} to {log} of {chunk} {}",
                at(node),
                value.0,
                stream(slices)
            )
        }
        Step::Deliver {
            node,
            chunk,
            slices,
            value,
        } => {
            format!(
                "{}: deliver #{} as {chunk} {}",
                at(node),
                value.0,
                stream(slices)
            )
        }
    }
}

fn place(node: NodeId, topology: &Topology) -> String {
    match topology.rack_of(node) {
        Some(rack) => format!("{node} ({rack})"),
        None if node == NodeId::CLIENT => "client".to_owned(),
        None => node.to_string(),
    }
}

fn stream(slices: &Slices) -> String {
    let span = slices.span();
    let bytes = format!("[{}..{})", span.offset, span.end());
    match slices.count {
        1 => bytes,
        count if slices.is_contiguous() => {
            format!("{bytes} in {count} slices of {}", slices.slice_bytes)
        }
        count => {
            format!(
                "{bytes} as {count} slices of {} every {}",
                slices.slice_bytes, slices.stride
            )
        }
    }
}

fn sum(terms: &[Term]) -> String {
    let terms: Vec<String> = terms
        .iter()
        .map(|t| format!("{}*#{}", t.coefficient, t.value.0))
        .collect();
    terms.join(" + ")
}

/// The plan as a Graphviz digraph: a box a rack, a node a step, an arrow a use of a value, bold
/// where bytes cross racks.
pub fn graphviz(plan: &Plan, topology: &Topology) -> String {
    let mut out = String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
    let mut nodes = plan.participants();
    nodes.sort_by_key(|&node| (topology.rack_of(node), node));
    for group in nodes.chunk_by(|a, b| topology.rack_of(*a) == topology.rack_of(*b)) {
        let rack = topology.rack_of(group[0]);
        let (name, label) = match rack {
            Some(rack) => (format!("rack{}", rack.0), rack.to_string()),
            None => ("client".to_owned(), "client".to_owned()),
        };
        let _ = writeln!(out, "  subgraph cluster_{name} {{\n    label=\"{label}\";");
        for (at, step) in plan.steps.iter().enumerate() {
            if group.contains(&step.node()) {
                let text = line(step, topology);
                let _ = writeln!(out, "    s{at} [label=\"#{at} {text}\"];");
            }
        }
        out.push_str("  }\n");
    }
    for (at, step) in plan.steps.iter().enumerate() {
        match step {
            Step::Combine { terms, .. } => {
                for term in terms {
                    let coefficient = term.coefficient;
                    let _ = writeln!(out, "  s{} -> s{at} [label={coefficient}];", term.value.0);
                }
            }
            Step::Send { from, to, value } => {
                let style = if topology.crosses_racks(*from, *to) {
                    "bold"
                } else {
                    "solid"
                };
                let bytes = plan.slices_of(*value).bytes();
                let source = value.0;
                let _ = writeln!(
                    out,
                    "  s{source} -> s{at} [label=\"{bytes} B\" style={style}];"
                );
            }
            Step::Write { value, .. }
            | Step::Append { value, .. }
            | Step::Deliver { value, .. } => {
                let _ = writeln!(out, "  s{} -> s{at};", value.0);
            }
            Step::Input { .. } | Step::Read { .. } => {}
        }
    }
    out.push_str("}\n");
    out
}
