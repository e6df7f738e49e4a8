//! Encoders, writers and background traffic at work on one network, as in EAR's simulations (section
//! V-B): the slowdown of the foreground while stripes are encoded, and the time of the encoding.

use super::agenda::Token;
use super::engine::{Engine, Sharing};
use super::fabric::{Fabric, Rates};
use super::jobs::Jobs;
use super::script::{Execution, Flow, Script};
use super::stripes::{EncoderSeat, Layout, Stripes};
use gabion_layout::Topology;
use gabion_plan::Plan;
use gabion_planner::PlanError;
use gabion_planner::placement::{RackTable, ReplicaSpread};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const NS_PER_S: f64 = 1e9;
/// Bytes of a block in EAR's simulations.
const EAR_BLOCK_BYTES: u64 = 64 << 20;
/// Bytes a second of a link of 1 Gb/s.
const GBIT_BYTES_PER_S: f64 = 125e6;

/// Bytes that an encoder of EAR's time multiplies and adds in a second, with look-ups in tables. The paper
/// does not say; of 1, 1.5, 2 and 3 GB/s this comes nearest to its figures (`docs/placement.md`).
const EAR_CODING_BYTES_PER_S: f64 = 1.5e9;

/// The inputs of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Racks.
    pub rack_count: u32,
    /// Nodes of each.
    pub nodes_per_rack: u32,
    /// The rates of links and disks.
    pub rates: Rates,
    /// Bytes that an encoder multiplies and adds in a second, which are `k` for each of a parity chunk;
    /// without it, parity is made in no time.
    pub coding_bytes_per_s: Option<f64>,
    /// Data chunks of a stripe, `k`.
    pub data_count: usize,
    /// Parity chunks of a stripe, `m`.
    pub parity_count: usize,
    /// The most chunks of a stripe that a rack may hold once it is encoded, `c`.
    pub per_rack: usize,
    /// The racks that a stripe is to end in, `R'`; all without it. Random replication has none.
    pub target_rack_count: Option<usize>,
    /// Replicas of a block.
    pub replica_count: usize,
    /// The places of those beyond the third.
    pub replica_spread: ReplicaSpread,
    /// Bytes of a block.
    pub chunk_bytes: u64,
    /// The placement of replicas.
    pub layout: Layout,
    /// Encoders, each of which encodes one stripe after another.
    pub encoder_count: u32,
    /// Stripes of each.
    pub stripes_per_encoder: u32,
    /// Blocks that are written each second, on average; the times between are exponential.
    pub writes_per_s: f64,
    /// Background transfers that begin each second, on average.
    pub background_per_s: f64,
    /// Their mean size in bytes; sizes are exponential.
    pub background_mean_bytes: f64,
    /// The share of them that crosses racks.
    pub background_cross_share: f64,
    /// The choices that the paper leaves open.
    pub settings: Settings,
}

impl Scenario {
    /// The setting of EAR's simulations (section V-B, experiment B.2), with this number of stripes for each
    /// encoder; the paper has 50. Unspecified details follow a simulator of processes that reserve
    /// links: encoders and writers wait for each transfer, and each transfer has its links to itself.
    /// Any node writes. There are as many encoders as racks, so each has one; parity takes them time.
    pub fn ear(layout: Layout, stripes_per_encoder: u32) -> Self {
        Self {
            rack_count: 20,
            nodes_per_rack: 20,
            rates: Rates {
                node_bytes_per_s: GBIT_BYTES_PER_S,
                rack_bytes_per_s: GBIT_BYTES_PER_S,
                disk_bytes_per_s: None,
            },
            coding_bytes_per_s: Some(EAR_CODING_BYTES_PER_S),
            data_count: 10,
            parity_count: 4,
            per_rack: 1,
            target_rack_count: None,
            replica_count: 3,
            replica_spread: ReplicaSpread::FreshRacks,
            chunk_bytes: EAR_BLOCK_BYTES,
            layout,
            encoder_count: 20,
            stripes_per_encoder,
            writes_per_s: 1.0,
            background_per_s: 1.0,
            background_mean_bytes: EAR_BLOCK_BYTES as f64,
            background_cross_share: 0.5,
            settings: Settings {
                sharing: Sharing::Slotted {
                    slot_bytes: EAR_BLOCK_BYTES,
                },
                encoder_seat: EncoderSeat::RackEach,
                is_core_encoder_nearest: false,
                is_writer_at_first_replica: false,
                write: Execution::Serial,
                encoding: Execution::Serial,
            },
        }
    }
}

/// Choices that EAR's text leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The sharing of links by transfers.
    pub sharing: Sharing,
    /// The nodes of the encoders.
    pub encoder_seat: EncoderSeat,
    /// Whether an encoder in a core rack is the node that has to fetch the least; else any of the rack.
    pub is_core_encoder_nearest: bool,
    /// Whether a block is written by the node of its first replica; else by any node.
    pub is_writer_at_first_replica: bool,
    /// The way in which the nodes of a block's replicas pass it on.
    pub write: Execution,
    /// Whether an encoder sends parity while it still gets data.
    pub encoding: Execution,
}

/// The result of a simulation, up to the end of the last encoding.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Until the last stripe was encoded, in nanoseconds.
    pub encode_ns: u64,
    /// Stripes that were encoded.
    pub stripe_count: u64,
    /// Their data, in bytes.
    pub encoded_bytes: u64,
    /// Writes that were done by then.
    pub write_count: u64,
    /// The times that they took, added up, in nanoseconds.
    pub write_ns: u64,
    /// The speed of each of them, in bytes a second, added up.
    pub write_speeds: f64,
    /// The encoded bytes of each stripe in a second of its own time, added up.
    pub stripe_speeds: f64,
    /// Bytes that encodings sent across racks.
    pub encode_cross_rack_bytes: u64,
    /// Bytes that those writes sent across racks.
    pub write_cross_rack_bytes: u64,
    /// Events that were simulated.
    pub event_count: u64,
}

impl Outcome {
    /// Data encoded each second, in bytes.
    pub fn encode_bytes_per_s(&self) -> f64 {
        self.encoded_bytes as f64 / (self.encode_ns as f64 / NS_PER_S)
    }

    /// Returns the encoded bytes of a stripe in a second of its own time, on average of stripes.
    pub fn mean_stripe_bytes_per_s(&self) -> f64 {
        self.stripe_speeds / self.stripe_count.max(1) as f64
    }

    /// Returns the speed of a write in bytes a second, on average of writes.
    pub fn mean_write_bytes_per_s(&self) -> f64 {
        self.write_speeds / self.write_count.max(1) as f64
    }

    /// The mean time that a write took, in seconds.
    pub fn mean_write_s(&self) -> f64 {
        self.write_ns as f64 / self.write_count.max(1) as f64 / NS_PER_S
    }
}

/// Runs a scenario. Writes come at the same times for all layouts of one seed, and so does background
/// traffic.
///
/// # Errors
/// When a stripe of the scenario cannot be placed.
///
/// # Panics
/// When a rate of the scenario is not above 0, or a slot has no bytes.
pub fn simulate(scenario: &Scenario, seed: u64) -> Result<Outcome, PlanError> {
    let topology = Topology::uniform(scenario.rack_count, scenario.nodes_per_rack);
    let racks = RackTable::new(&topology);
    let mut run = Run::new(scenario, &topology, &racks, seed)?;
    run.begin()?;
    while run.encoders_left > 0 {
        let due = run.engine.next();
        let (_, token) = due.expect("arrivals never end");
        match token {
            WRITE_ARRIVES => run.write_arrives()?,
            BACKGROUND_ARRIVES => run.background_arrives(),
            flow => {
                if let Some(owner) = run.jobs.flow_ends(&mut run.engine, flow) {
                    run.finish(owner);
                }
            }
        }
    }
    run.outcome.encode_ns = run.engine.now_ns();
    run.outcome.event_count = run.engine.event_count();
    Ok(run.outcome)
}

const WRITE_ARRIVES: Token = Token::MAX;
const BACKGROUND_ARRIVES: Token = Token::MAX - 1;

/// The owner of the flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Encode { encoder: usize },
    Write,
    Background,
}

/// Something under way.
#[derive(Clone, Copy, Debug)]
struct Owner {
    purpose: Purpose,
    begun_ns: u64,
    cross_rack_bytes: u64,
}

struct Run<'a> {
    scenario: &'a Scenario,
    fabric: Fabric,
    engine: Engine,
    stripes: Stripes<'a>,
    /// Draws when writes come, and where they go.
    write_rng: [ChaCha8Rng; 2],
    background_rng: ChaCha8Rng,
    encode_rng: ChaCha8Rng,
    /// By encoder, the plans that it has not begun, the next one last.
    plans: Vec<Vec<Plan>>,
    jobs: Jobs<Owner>,
    encoders_left: u32,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(
        scenario: &'a Scenario,
        topology: &'a Topology,
        racks: &'a RackTable,
        seed: u64,
    ) -> Result<Self, PlanError> {
        let mut fabric = Fabric::new(topology, scenario.rates);
        if let Some(bytes_per_s) = scenario.coding_bytes_per_s {
            fabric = fabric.with_coders(bytes_per_s);
        }
        let rng = |stream| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            rng
        };
        Ok(Self {
            scenario,
            engine: Engine::new(&fabric, scenario.settings.sharing),
            fabric,
            stripes: Stripes::new(scenario, topology, racks)?,
            write_rng: [rng(0), rng(1)],
            background_rng: rng(2),
            encode_rng: rng(3),
            plans: Vec::new(),
            jobs: Jobs::default(),
            encoders_left: 0,
            outcome: Outcome::default(),
        })
    }

    fn begin(&mut self) -> Result<(), PlanError> {
        for encoder in 0..self.scenario.encoder_count {
            let mut plans = self.stripes.encodings(encoder, &mut self.encode_rng)?;
            plans.reverse();
            self.plans.push(plans);
        }
        self.encoders_left = self.scenario.encoder_count;
        for encoder in 0..self.plans.len() {
            self.encode_next(encoder);
        }
        self.expect_next(WRITE_ARRIVES);
        self.expect_next(BACKGROUND_ARRIVES);
        Ok(())
    }

    /// Sets the timer of the next arrival of its kind.
    fn expect_next(&mut self, token: Token) {
        let (rate, rng) = if token == WRITE_ARRIVES {
            (self.scenario.writes_per_s, &mut self.write_rng[0])
        } else {
            (self.scenario.background_per_s, &mut self.background_rng)
        };
        if rate > 0.0 {
            let after_s = exponential(rng) / rate;
            self.engine.set_timer((after_s * NS_PER_S) as u64, token);
        }
    }

    fn write_arrives(&mut self) -> Result<(), PlanError> {
        self.expect_next(WRITE_ARRIVES);
        let plan = self.stripes.write(&mut self.write_rng[1])?;
        let script = Script::of_plan(&plan, &self.fabric, self.scenario.settings.write);
        self.run_script(script, Purpose::Write);
        Ok(())
    }

    fn background_arrives(&mut self) {
        self.expect_next(BACKGROUND_ARRIVES);
        let (from, to) = self.stripes.background_ends(&mut self.background_rng);
        let size = exponential(&mut self.background_rng) * self.scenario.background_mean_bytes;
        let flow = Flow::new(size as u64 + 1, self.fabric.path(from, to));
        self.run_script(Script::of(flow), Purpose::Background);
    }

    fn encode_next(&mut self, encoder: usize) {
        let Some(plan) = self.plans[encoder].pop() else {
            self.encoders_left -= 1;
            return;
        };
        let script = Script::of_plan(&plan, &self.fabric, self.scenario.settings.encoding);
        self.run_script(script, Purpose::Encode { encoder });
    }

    fn run_script(&mut self, script: Script, purpose: Purpose) {
        let owner = Owner {
            purpose,
            begun_ns: self.engine.now_ns(),
            cross_rack_bytes: script.cross_rack_bytes(&self.fabric),
        };
        // One replica at its writer's, for example, sends nothing.
        if let Some(owner) = self.jobs.begin(&mut self.engine, script, owner) {
            self.finish(owner);
        }
    }

    fn finish(&mut self, owner: Owner) {
        let Owner {
            purpose,
            begun_ns,
            cross_rack_bytes,
        } = owner;
        match purpose {
            Purpose::Encode { encoder } => {
                let bytes = self.scenario.data_count as u64 * self.scenario.chunk_bytes;
                self.outcome.stripe_count += 1;
                self.outcome.encoded_bytes += bytes;
                self.outcome.stripe_speeds += self.speed(bytes, begun_ns);
                self.outcome.encode_cross_rack_bytes += cross_rack_bytes;
                self.encode_next(encoder);
            }
            Purpose::Write => {
                self.outcome.write_count += 1;
                self.outcome.write_ns += self.engine.now_ns() - begun_ns;
                self.outcome.write_speeds += self.speed(self.scenario.chunk_bytes, begun_ns);
                self.outcome.write_cross_rack_bytes += cross_rack_bytes;
            }
            Purpose::Background => {}
        }
    }

    /// Bytes over the time since `begun_ns`, in bytes a second. A duration of zero counts as a nanosecond.
    fn speed(&self, bytes: u64, begun_ns: u64) -> f64 {
        let ns = (self.engine.now_ns() - begun_ns).max(1);
        bytes as f64 / ns as f64 * NS_PER_S
    }
}

/// An exponentially distributed number with mean 1: the time between two arrivals of a Poisson process.
pub fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    // From (0, 1], so that the logarithm is finite.
    -(1.0 - rng.random::<f64>()).ln()
}
