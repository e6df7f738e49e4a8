//! Measures the executor's overhead beside the sums that it computes. Each line runs a part whose
//! reads are answered and whose sends are credited at once, and then the bare kernel over the same
//! buffers. The two take turns; a figure is the best of all rounds, since a busy machine only adds
//! time. Rates count the bytes read or received.
//!
//! `cargo bench -p gabion-exec --bench exec [-- --quick]`

use bytes::Bytes;
use gabion_codec::Code;
use gabion_codec::kernel::Coefficients;
use gabion_exec::{Command, Event, Executor};
use gabion_layout::{ChunkIndex, Geometry, NodeId, Slices, StripeId};
use gabion_plan::{Part, Plan, Step, ValueId};
use gabion_planner::repair::{Scheme, repair};
use gabion_planner::{Stripe, encode};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

const KIB: u64 = 1 << 10;
/// Target share of the bare kernel's rate.
const GOAL: f64 = 0.85;
/// Buffers that stand for all slices of a value, as many as a disk cache or a socket would reuse.
const BUFFER_COUNT: u64 = 8;
const CACHE_LINE_BYTES: usize = 64;

fn main() {
    // Cargo passes `--bench`, which is redundant.
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let round_count = if is_quick { 25 } else { 200 };
    println!(
        "{:<34} {:>8} {:>8} {:>6} {:>9} {:>9}",
        "part", "GB/s", "kernel", "ratio", "events", "ns/event"
    );
    let mut missed_count = 0;
    for case in cases() {
        missed_count += usize::from(!case.measure(round_count));
    }
    if missed_count == 0 {
        println!("all goals met");
    } else {
        println!("{missed_count} goals missed");
    }
}

/// A part and the kernel's work in it.
struct Case {
    name: &'static str,
    part: Part,
    /// The sums of one slice; none where only events are measured.
    kernel: Option<(Coefficients, u64)>,
}

fn plan_of(
    code: &str,
    chunk_bytes: u64,
    lost: &[ChunkIndex],
    make: impl Fn(&Stripe<'_>) -> Plan,
) -> (Code, Plan) {
    let code: Code = code.parse().expect("a code of its family");
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), chunk_bytes);
    let placement: Vec<NodeId> = (0..code.n() as u32).map(NodeId).collect();
    let plan = make(&Stripe {
        id: StripeId(1),
        code: &code,
        geometry: geometry.expect("the code's own shape"),
        placement: &placement,
        lost,
    });
    (code, plan)
}

fn repair_plan(chunk_bytes: u64, slice_bytes: u64, scheme: Scheme) -> Plan {
    let lost = [ChunkIndex(0)];
    let make = |stripe: &Stripe<'_>| {
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        repair(stripe, lost[0], NodeId(14), &helpers, scheme, slice_bytes).expect("enough helpers")
    };
    plan_of("rs(10,4)", chunk_bytes, &lost, make).1
}

fn encode_plan(code: &str, chunk_bytes: u64, slice_bytes: u64) -> (Code, Plan) {
    plan_of(code, chunk_bytes, &[], |stripe| {
        encode::direct(stripe, NodeId::CLIENT, slice_bytes).expect("a plan for every stripe")
    })
}

fn cases() -> Vec<Case> {
    let (code, plan) = encode_plan("rs(6,3)", 16 << 20, 256 * KIB);
    let generator = &code.generator().elements()[code.k() * code.k()..];
    let encoding = Coefficients::new(code.m(), code.k(), generator);
    let hop = repair_plan(64 << 20, 32 * KIB, Scheme::Pipeline);
    let star = repair_plan(2048, 1, Scheme::Conventional);
    let (_, array) = encode_plan("rdp(30)", 30 * 64, 1);
    vec![
        Case {
            name: "encode rs(6,3), 256 KiB slices",
            part: plan.part(NodeId::CLIENT),
            kernel: Some((encoding, 256 * KIB)),
        },
        Case {
            name: "pipeline hop, 32 KiB slices",
            // The second helper of the chain: it reads, receives, adds and sends.
            kernel: Some((sums_of(&hop, NodeId(2)), 32 * KIB)),
            part: hop.part(NodeId(2)),
        },
        Case {
            name: "gather of 10, 2048 1-byte slices",
            part: star.part(NodeId(14)),
            kernel: None,
        },
        Case {
            name: "encode rdp(30), 64 1-byte slices",
            part: array.part(NodeId::CLIENT),
            kernel: None,
        },
    ]
}

/// The coefficients of the only sum that a plan has at a node.
fn sums_of(plan: &Plan, at: NodeId) -> Coefficients {
    let terms = plan.steps.iter().find_map(|step| match step {
        Step::Combine { node, terms } if *node == at => Some(terms),
        _ => None,
    });
    let terms = terms.expect("a helper adds its share");
    let row: Vec<u8> = terms.iter().map(|term| term.coefficient).collect();
    Coefficients::new(1, row.len(), &row)
}

impl Case {
    /// Measures and prints. Returns whether the goal, if any, is met.
    fn measure(&self, round_count: usize) -> bool {
        let mut world = World::new(&self.part);
        let bytes = world.incoming_bytes() as f64;
        let (mut run_s, mut bare_s) = (f64::INFINITY, f64::INFINITY);
        let mut event_count = 0;
        for _ in 0..round_count {
            let begin = Instant::now();
            event_count = black_box(world.run(&self.part));
            run_s = run_s.min(begin.elapsed().as_secs_f64());
            if let Some((coefficients, slice_bytes)) = &self.kernel {
                bare_s = bare_s.min(world.run_bare(coefficients, *slice_bytes));
            }
        }
        let event_ns = run_s * 1e9 / event_count as f64;
        let rates = if self.kernel.is_some() {
            let rate = |seconds: f64| bytes / seconds / 1e9;
            let ratio = bare_s / run_s;
            format!("{:>8.2} {:>8.2} {ratio:>6.2}", rate(run_s), rate(bare_s))
        } else {
            format!("{:24}", "")
        };
        println!("{:<34} {rates} {event_count:>9} {event_ns:>9.0}", self.name);
        self.kernel.is_none() || bare_s / run_s >= GOAL
    }
}

/// A value from outside the part.
struct Incoming {
    id: ValueId,
    slices: Slices,
    is_sent: bool,
    buffers: Vec<Bytes>,
}

impl Incoming {
    fn bytes(&self, slice: u64) -> Bytes {
        let buffer = &self.buffers[(slice % BUFFER_COUNT) as usize];
        buffer.slice(..self.slices.slice(slice).length as usize)
    }
}

/// Disks and peers that answer at once, in turn.
struct World {
    incoming: Vec<Incoming>,
    events: VecDeque<Event>,
}

impl World {
    fn new(part: &Part) -> Self {
        let comes_from_outside = |step: &Step| match step {
            Step::Input { .. } | Step::Read { .. } => true,
            Step::Send { to, .. } => *to == part.node,
            _ => false,
        };
        let steps = part.steps.iter().filter(|s| comes_from_outside(&s.step));
        let incoming = steps.map(|step| Incoming {
            id: step.id,
            slices: step.slices,
            is_sent: matches!(step.step, Step::Send { .. }),
            buffers: (0..BUFFER_COUNT)
                .map(|at| Bytes::from(vec![at as u8 + 1; step.slices.slice_bytes as usize]))
                .collect(),
        });
        Self {
            incoming: incoming.collect(),
            events: VecDeque::new(),
        }
    }

    fn incoming_bytes(&self) -> u64 {
        self.incoming.iter().map(|v| v.slices.bytes()).sum()
    }

    /// Runs the part to its end. Returns the number of events.
    fn run(&mut self, part: &Part) -> u64 {
        let (mut executor, commands) = Executor::new(part).expect("a planner's part");
        self.answer(commands);
        let values: Vec<usize> = (0..self.incoming.len()).collect();
        let sent: Vec<usize> = values
            .into_iter()
            .filter(|&v| self.incoming[v].is_sent)
            .collect();
        let mut arrived = vec![0; self.incoming.len()];
        let mut count = 0;
        while !executor.is_finished() {
            let event = self.events.pop_front().or_else(|| {
                // Slices of all senders arrive side by side.
                let &value = sent.iter().min_by_key(|&&value| arrived[value])?;
                let slice = arrived[value];
                arrived[value] += 1;
                let value = &self.incoming[value];
                Some(Event::Received {
                    value: value.id,
                    slice,
                    bytes: value.bytes(slice),
                })
            });
            let event = event.expect("an unfinished part waits for something");
            let commands = executor.handle(event).expect("honest peers");
            count += 1;
            self.answer(commands);
        }
        self.events.clear();
        count
    }

    fn answer(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Fetch { step, slice, .. } => {
                    let found = self.incoming.binary_search_by_key(&step, |v| v.id);
                    let bytes = self.incoming[found.expect("a read value")].bytes(slice);
                    let event = Event::Fetched { step, slice, bytes };
                    self.events.push_back(event);
                }
                Command::Send { value, .. } => {
                    self.events.push_back(Event::Credited { value, slices: 1 });
                }
                Command::Store { step, .. } => self.events.push_back(Event::Stored { step }),
                Command::Grant { .. } => {}
            }
        }
    }

    /// Time of the sums alone over the same slices, in seconds.
    fn run_bare(&self, coefficients: &Coefficients, slice_bytes: u64) -> f64 {
        let length = slice_bytes as usize;
        // One buffer a sum, used before and on whole cache lines: the best that a caller could do.
        let mut outputs = vec![vec![1; length + CACHE_LINE_BYTES]; coefficients.row_count()];
        let begin = Instant::now();
        for slice in 0..self.incoming[0].slices.count {
            let at = (slice % BUFFER_COUNT) as usize;
            let sources = self.incoming.iter().map(|v| v.buffers[at].as_ref());
            let sources: Vec<&[u8]> = sources.collect();
            let sums = outputs.iter_mut().map(|output| {
                let start = output.as_ptr().align_offset(CACHE_LINE_BYTES);
                &mut output[start..start + length]
            });
            let mut sums: Vec<&mut [u8]> = sums.collect();
            coefficients.combine(&sources, &mut sums);
        }
        let seconds = begin.elapsed().as_secs_f64();
        black_box(&outputs);
        seconds
    }
}
