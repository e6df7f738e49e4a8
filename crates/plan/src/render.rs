//! Plans in readable form: one line a step, or a Graphviz drawing with a box a rack.
//!
//! A step's value is written `#` and the step's number; `7*#4 + #5` is 7 times the value of step 4,
//! over GF(2^8), plus that of step 5. Byte positions are of the chunk, and `[a..b)` leaves out `b`.

use crate::cost::Cost;
use crate::step::{Goal, Keepings, Log, Plan, Step, Term, ValueId};
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkRange, Keeping, NodeId, RackId, Slices, Topology};
use std::fmt::Write as _;

/// The plan as text: its goal, its cost, then one line a step in columns of step number, rack,
/// node and action.
///
/// # Panics
/// If the plan is inconsistent, which [`crate::check`] finds before.
pub fn text(plan: &Plan, code: &Code, topology: &Topology) -> String {
    let mut out = format!(
        "{}\n{code} with chunks of {}\n{}\n\n",
        title(plan),
        amount(plan.geometry.chunk_bytes()),
        cost_line(&Cost::of(plan, topology)),
    );
    let number_width = plan.steps.len().saturating_sub(1).to_string().len() + 1;
    let worker = |step: &Step| match step {
        Step::Send { from, .. } => *from,
        other => other.node(),
    };
    let places: Vec<(String, String)> = plan
        .steps
        .iter()
        .map(|step| place(worker(step), topology))
        .collect();
    let rack_width = places.iter().map(|(rack, _)| rack.len()).max().unwrap_or(0);
    let node_width = places.iter().map(|(_, node)| node.len()).max().unwrap_or(0);
    for (at, (step, (rack, node))) in plan.steps.iter().zip(&places).enumerate() {
        let number = format!("#{at}");
        let (verb, object) = action(step, plan.keepings, topology);
        let _ = writeln!(
            out,
            "{number:>number_width$}  {rack:rack_width$}  {node:node_width$}  {verb:7}  {object}"
        );
    }
    out
}

fn goal_name(goal: &Goal) -> &'static str {
    match goal {
        Goal::Update { .. } => "update",
        Goal::Append { .. } => "append",
        Goal::Commit { .. } => "commit",
        Goal::Encode => "encoding",
        Goal::EncodeReplicas { .. } => "encoding of replicas",
        Goal::Convert { .. } => "conversion",
        Goal::Move { .. } => "move",
        Goal::Repair { .. } => "repair",
        Goal::CatchUp { .. } => "catch up",
        Goal::Read { .. } => "read",
        Goal::ReadAppended { .. } => "read in an append phase",
    }
}

fn goal_detail(goal: &Goal) -> String {
    let list = |ranges: &[ChunkRange]| {
        let parts = ranges
            .iter()
            .map(|part| format!("{} {}", part.chunk, positions(part.range)));
        parts.collect::<Vec<_>>().join(", ")
    };
    match goal {
        Goal::Update { ranges }
        | Goal::Read { ranges }
        | Goal::ReadAppended { ranges, .. }
        | Goal::Append { ranges, .. }
        | Goal::Commit { ranges, .. } => list(ranges),
        Goal::CatchUp { node, ranges } => format!("{} on {node}", list(ranges)),
        Goal::Encode => "all chunks".to_owned(),
        Goal::Repair { chunks }
        | Goal::Move { chunks }
        | Goal::EncodeReplicas { replicas: chunks }
        | Goal::Convert { sources: chunks } => {
            let parts = chunks
                .iter()
                .map(|(chunk, node)| format!("{chunk} on {node}"));
            parts.collect::<Vec<_>>().join(", ")
        }
    }
}

fn cost_line(cost: &Cost) -> String {
    let sent = cost.cross_rack_bytes + cost.inner_rack_bytes;
    format!(
        "cost: {} between nodes, {} of it across racks; {} with the client; {} read, {} written",
        amount(sent),
        amount(cost.cross_rack_bytes),
        amount(cost.client_bytes),
        amount(cost.read_bytes),
        amount(cost.write_bytes)
    )
}

/// A step as a verb and its object. The caller gives the node.
fn action(step: &Step, keepings: Keepings, topology: &Topology) -> (&'static str, String) {
    match step {
        Step::Input { chunk, slices, .. } => {
            ("take", format!("new bytes of {chunk} {}", stream(slices)))
        }
        Step::Read { chunk, slices, .. } => ("read", format!("{chunk} {}", stream(slices))),
        Step::Recall {
            log, chunk, slices, ..
        } => (
            "recall",
            format!("{chunk} {} from {}", stream(slices), log_name(*log)),
        ),
        Step::Combine { terms, .. } => ("combine", sum(terms)),
        Step::Send { from, to, value } => {
            let (rack, node) = place(*to, topology);
            let crossing = if topology.crosses_racks(*from, *to) {
                format!(" across to {rack}")
            } else {
                String::new()
            };
            ("send", format!("#{} to {node}{crossing}", value.0))
        }
        Step::Write {
            chunk,
            slices,
            value,
            ..
        } => (
            "write",
            format!("#{} to {chunk} {}", value.0, stream(slices)),
        ),
        Step::Append {
            log,
            chunk,
            slices,
            value,
            ..
        } => {
            let stream = stream(slices);
            let place = log_place(*log, keepings);
            let object = match log {
                Log::Parity { data } => {
                    format!("#{} to {place} of {chunk} {stream} for {data}", value.0)
                }
                _ => format!("#{} to {place} of {chunk} {stream}", value.0),
            };
            ("append", object)
        }
        Step::Deliver {
            chunk,
            slices,
            value,
            ..
        } => (
            "deliver",
            format!("#{} as {chunk} {}", value.0, stream(slices)),
        ),
    }
}

/// The destination of a record, by its log and the pool's keeping.
const fn log_place(log: Log, keepings: Keepings) -> &'static str {
    match (log, keepings.of(log)) {
        (Log::Replica | Log::Original, _) | (_, Keeping::InPlace) => log_name(log),
        (_, Keeping::AtOnce | Keeping::Reserve { bytes: 0 }) => "journal and chunk",
        (_, Keeping::Reserve { .. }) => "reserve",
        (_, Keeping::Log) => "log",
    }
}

/// A log as the end of "to the ... of a chunk".
const fn log_name(log: Log) -> &'static str {
    match log {
        Log::Journal => "journal",
        Log::Parity { .. } | Log::ParitySum => "log",
        Log::Replica => "replica",
        Log::Original => "original",
    }
}

/// Rack and node; the client is in no rack.
fn place(node: NodeId, topology: &Topology) -> (String, String) {
    match topology.rack_of(node) {
        Some(rack) => (rack.to_string(), node.to_string()),
        None if node == NodeId::CLIENT => (String::new(), "client".to_owned()),
        None => (String::new(), node.to_string()),
    }
}

fn stream(slices: &Slices) -> String {
    let span = positions(slices.span());
    let slice = amount(slices.slice_bytes);
    match slices.count {
        1 => span,
        count if slices.is_contiguous() => format!("{span} in {count} slices of {slice}"),
        count => {
            let stride = amount(slices.stride);
            format!("{span} as {count} slices of {slice} every {stride}")
        }
    }
}

fn positions(range: ByteRange) -> String {
    format!("[{}..{})", rounded(range.offset), rounded(range.end()))
}

/// A number of bytes with its unit.
fn amount(bytes: u64) -> String {
    let number = rounded(bytes);
    match bytes {
        1 => "1 byte".to_owned(),
        _ if number.ends_with('B') => number,
        _ => format!("{number} bytes"),
    }
}

/// A number of bytes in the largest unit that leaves it whole; single bytes stay without a unit.
fn rounded(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS
        .iter()
        .find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((shift, name)) => format!("{} {name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

fn sum(terms: &[Term]) -> String {
    let terms: Vec<String> = terms
        .iter()
        .map(|term| match term.coefficient {
            1 => format!("#{}", term.value.0),
            coefficient => format!("{coefficient}*#{}", term.value.0),
        })
        .collect();
    terms.join(" + ")
}

/// A step of a plan, for a drawing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrawnStep {
    /// The node with the step's result.
    pub node: NodeId,
    /// Its rack; none for the client.
    pub rack: Option<RackId>,
    /// The step as a verb, such as `read`.
    pub verb: &'static str,
    /// The rest of the sentence.
    pub object: String,
    /// The values that it uses.
    pub uses: Vec<DrawnUse>,
}

/// The use of a value by a step, for a drawing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrawnUse {
    /// The step that makes the value.
    pub step: ValueId,
    /// Its factor in GF(2^8) in a sum; otherwise 1.
    pub coefficient: u8,
    /// Bytes that move between nodes for it; 0 if it stays.
    pub sent_bytes: u64,
    /// Whether they cross racks.
    pub crosses_racks: bool,
}

/// The goal of a plan, in words.
pub fn title(plan: &Plan) -> String {
    format!(
        "{} of {}: {}",
        goal_name(&plan.goal),
        plan.stripe,
        goal_detail(&plan.goal)
    )
}

/// The plan's steps with the values that they use, for a drawing.
///
/// # Panics
/// If the plan is inconsistent, which [`crate::check`] finds before.
pub fn drawn(plan: &Plan, topology: &Topology) -> Vec<DrawnStep> {
    let streams = plan.streams();
    let stays = |step, coefficient| DrawnUse {
        step,
        coefficient,
        sent_bytes: 0,
        crosses_racks: false,
    };
    let steps = plan.steps.iter().map(|step| {
        let (verb, object) = action(step, plan.keepings, topology);
        let uses = match step {
            Step::Combine { terms, .. } => {
                let uses = terms.iter();
                uses.map(|term| stays(term.value, term.coefficient))
                    .collect()
            }
            Step::Send { from, to, value } => vec![DrawnUse {
                sent_bytes: streams[value.at()].bytes(),
                crosses_racks: topology.crosses_racks(*from, *to),
                ..stays(*value, 1)
            }],
            Step::Write { value, .. }
            | Step::Append { value, .. }
            | Step::Deliver { value, .. } => vec![stays(*value, 1)],
            Step::Input { .. } | Step::Read { .. } | Step::Recall { .. } => Vec::new(),
        };
        DrawnStep {
            node: step.node(),
            rack: topology.rack_of(step.node()),
            verb,
            object,
            uses,
        }
    });
    steps.collect()
}

/// The plan as a Graphviz digraph: a box a rack, a node a step, an arrow a use of a value, bold
/// where bytes cross racks.
///
/// # Panics
/// If the plan is inconsistent, which [`crate::check`] finds before.
pub fn graphviz(plan: &Plan, topology: &Topology) -> String {
    let mut out = String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
    let mut nodes = plan.participants();
    nodes.sort_by_key(|&node| (topology.rack_of(node), node));
    for group in nodes.chunk_by(|a, b| topology.rack_of(*a) == topology.rack_of(*b)) {
        let (name, label) = match topology.rack_of(group[0]) {
            Some(rack) => (format!("rack{}", rack.0), rack.to_string()),
            None => ("outside".to_owned(), "outside the racks".to_owned()),
        };
        let _ = writeln!(out, "  subgraph cluster_{name} {{\n    label=\"{label}\";");
        for (at, step) in plan.steps.iter().enumerate() {
            if group.contains(&step.node()) {
                let _ = writeln!(out, "    s{at} [label=\"{}\"];", box_label(at, step));
            }
        }
        out.push_str("  }\n");
    }
    let streams = plan.streams();
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
                let (bytes, source) = (amount(streams[value.at()].bytes()), value.0);
                let _ = writeln!(
                    out,
                    "  s{source} -> s{at} [label=\"{bytes}\" style={style}];"
                );
            }
            Step::Write { value, .. }
            | Step::Append { value, .. }
            | Step::Deliver { value, .. } => {
                let _ = writeln!(out, "  s{} -> s{at};", value.0);
            }
            Step::Input { .. } | Step::Read { .. } | Step::Recall { .. } => {}
        }
    }
    out.push_str("}\n");
    out
}

/// A step as a box in the drawing, without the information of the arrows.
fn box_label(at: usize, step: &Step) -> String {
    let node = match step.node() {
        NodeId::CLIENT => "client".to_owned(),
        node => node.to_string(),
    };
    let what = match step {
        Step::Input { chunk, slices, .. } => format!("new {chunk} {}", stream(slices)),
        Step::Read { chunk, slices, .. } => format!("read {chunk} {}", stream(slices)),
        Step::Recall {
            log, chunk, slices, ..
        } => format!(
            "recall {chunk} {}\\nfrom {}",
            stream(slices),
            log_name(*log)
        ),
        Step::Combine { .. } => "combine".to_owned(),
        Step::Send { .. } => "receive".to_owned(),
        Step::Write { chunk, slices, .. } => format!("write {chunk} {}", stream(slices)),
        Step::Append {
            chunk, slices, log, ..
        } => match log {
            Log::Journal | Log::ParitySum | Log::Replica | Log::Original => {
                format!("{} {chunk} {}", log_name(*log), stream(slices))
            }
            Log::Parity { data } => {
                format!("log {chunk} {}\\nfor {data}", stream(slices))
            }
        },
        Step::Deliver { chunk, slices, .. } => format!("deliver {chunk} {}", stream(slices)),
    };
    format!("#{at} {node}\\n{what}")
}
