//! The cluster of a seed: its nodes, its pool, and the limits of its nodes.

use crate::cells::CELL_BYTES;
use crate::dice::Dice;
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, EncodeAfter, GroupingRule, ReplicaPlacement, Survive, UpdateScheme,
};
use gabion_meta::INLINE_BYTES_MAX;
use gabion_planner::update::{SCHEMES, descriptor, phase_survives};
use gabion_protocol::limits::Limits;
use gabion_protocol::message::LifecycleRequest;

/// Chunks are a multiple of this.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The cluster of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) rack_count: u32,
    pub(crate) node_count: usize,
    pub(crate) client_count: usize,
    pub(crate) code: String,
    pub(crate) survive: Survive,
    /// Losses that the pool promises to survive.
    pub(crate) survived_count: usize,
    pub(crate) chunk_bytes: u64,
    pub(crate) update: UpdateScheme,
    pub(crate) append: Option<AppendSpec>,
    /// The replication of blocks before encoding, if there is one.
    pub(crate) lifecycle: Option<LifecycleRequest>,
    pub(crate) stripe_bytes: u64,
    /// In a fault period, one message in this many arrives twice; 0 is never.
    pub(crate) repeat_one_in: u64,
    /// Whether bytes of repairs are delayed.
    pub(crate) is_thin: bool,
    /// Memory limits of nodes.
    pub(crate) limits: Limits,
    /// Most stripes of a window of a file's layout.
    pub(crate) window_stripe_count: u64,
    /// See [`crate::Options::writes_twice`].
    pub(crate) writes_twice: bool,
    /// The size of the largest inline file.
    pub(crate) inline_bytes: u64,
    /// Whether clients truncate files and punch holes into them, if files change their size.
    pub(crate) shrinks: bool,
}

/// Codes of the simulated pools.
const CODES: [&str; 8] = [
    "rs(2,1)",
    "rs(2,2)",
    "rs(3,2)",
    "cauchy(2,2)",
    "rdp(2)",
    "rdp(3)",
    "evenodd(2)",
    "rep(3)",
];

/// Codes of pools whose chunks move: a stripe with few chunks gains nothing by grouping.
const GROUPED_CODES: [&str; 3] = ["rs(4,3)", "rs(6,3)", "rs(4,4)"];

/// The rule for moving chunks in pools of CAU.
const GROUPING: [Option<GroupingRule>; 4] = {
    use GroupingRule::{Algorithm1, Authors};
    [None, Some(Algorithm1), Some(Authors), Some(Authors)]
};

/// The update scheme of a seed's pool: each in turn, and the default once more.
pub fn scheme_of(seed: u64) -> UpdateScheme {
    let turn = seed as usize % (SCHEMES.len() + 1);
    SCHEMES
        .get(turn)
        .map_or_else(UpdateScheme::default, |known| known.scheme)
}

impl Shape {
    pub(crate) fn draw(seed: u64, dice: &mut Dice) -> Self {
        let update = scheme_of(seed);
        let grouping = if descriptor(update).appends_by_rack() {
            *dice.pick(&GROUPING)
        } else {
            None
        };
        let (codes, rack_count) = match grouping {
            None => (&CODES[..], 3),
            Some(_) => (&GROUPED_CODES[..], dice.between(3, 5) as u32),
        };
        let name = *dice.pick(codes);
        let code: Code = name.parse().expect("these codes exist");
        let survived_count = code.failures_survived();
        // Replicas, too, would need the racks that grouping requires.
        let lifecycle = match grouping {
            None => lifecycle_of(seed, survived_count),
            Some(_) => None,
        };
        // Phases end for each possible reason.
        let append = descriptor(update).appends().then(|| AppendSpec {
            replicas: dice.between(1, survived_count as u64) as u8,
            stripes_max: dice.between(1, 4),
            log_bytes_max: dice.between(1, 32) << 10,
            age_max_s: dice.between(1, 20),
            grouping,
        });
        let survived_count = phase_survives(update, append, &code).unwrap_or(survived_count);
        let shrinks = lifecycle.is_none() && dice.one_in(3);
        let chunk_bytes = PAGE_BYTES * dice.between(1, 2);
        let chunk_bytes = chunk_bytes.next_multiple_of(code.sub_chunks() as u64);
        Self {
            rack_count,
            // A lost node stays lost until the next recovery, and repairs need other nodes.
            node_count: code.n() + dice.between(1, 3) as usize,
            client_count: dice.between(1, 4) as usize,
            code: name.to_owned(),
            survive: Survive::Nodes(code.failures_survived() as u32),
            survived_count,
            chunk_bytes,
            update,
            append,
            lifecycle,
            stripe_bytes: chunk_bytes * code.k() as u64,
            repeat_one_in: *dice.pick(&[0, 0, 30, 300]),
            // A long chain of helpers would never complete.
            is_thin: dice.one_in(2) && grouping.is_none(),
            limits: limits_of(seed, chunk_bytes),
            window_stripe_count: [1, 2, 512][(seed / 7 % 3) as usize],
            writes_twice: false,
            inline_bytes: [0, PAGE_BYTES, INLINE_BYTES_MAX][(seed / 11 % 3) as usize],
            shrinks,
        }
    }

    /// Whether files change their size: those whose blocks are replicated at first keep it.
    pub(crate) const fn grows(&self) -> bool {
        self.lifecycle.is_none()
    }

    /// A stripe of a file that grows ends at a multiple of this many cells of its segment, or with the segment.
    pub(crate) const fn cells_between_ends(&self) -> u64 {
        PAGE_BYTES * (self.stripe_bytes / self.chunk_bytes) / CELL_BYTES
    }
}

/// The replication of a seed's blocks before encoding, if there is one: one seed in four, under every
/// update scheme. It draws no random number, so that the other seeds keep their runs.
fn lifecycle_of(seed: u64, survived_count: usize) -> Option<LifecycleRequest> {
    let placements = ReplicaPlacement::NAMES;
    let times = [
        EncodeAfter::Asked,
        EncodeAfter::Full,
        EncodeAfter::Age(8),
        EncodeAfter::Idle(2),
    ];
    let turn = seed / SCHEMES.len() as u64;
    turn.is_multiple_of(4).then(|| LifecycleRequest {
        replica_count: survived_count + 1,
        after: times[(turn / 4 % 4) as usize],
        placement: placements[turn as usize / 16 % placements.len()].1,
    })
}

/// Memory limits of nodes: in two of five runs a few stripes as primaries, or few staged bytes, so that the
/// limits are reached. One update has room for its bytes at any node, also at one that stands in for
/// another. It draws no random number.
fn limits_of(seed: u64, chunk_bytes: u64) -> Limits {
    let mut limits = Limits::default();
    match seed % 5 {
        1 => limits.primary_stripe_count = 1 + (seed / 5 % 3) as usize,
        2 => {
            limits.staged_bytes = 3 * chunk_bytes;
            limits.client_bytes = 2 * chunk_bytes;
        }
        _ => {}
    }
    limits
}
