//! The minimum number of chunks that an update must send across racks: the measure of every update scheme.
//!
//! Two things are known about a stripe and the data chunks that change.
//! - **No plan at all can send less** than cuts allow. For any set of racks, the parity outside needs as many rows from
//!   inside as the rank of that part of the generator matrix. Each transfer crosses some cuts, and a linear program
//!   weighs all cuts against each other.
//! - **No plan of the rack-coordinated form sends less** than the best choice of collectors, of which
//!   there are finitely many: each rack with changes hands them to one rack, itself or another, and
//!   each rack that holds changes updates each rack with parity by data deltas or parity deltas. CAU
//!   (section 3.2) and `RackCU` (section III-B) are plans of this form.
//!
//! If both agree, or if the search is small, the answer is exact.

mod cuts;

use crate::Stripe;
use crate::update::rackcu::best_rows;
use crate::update::spread::Spread;
use gabion_layout::{ChunkIndex, Topology};

/// After this many choices of collectors the search ends, and the bound by cuts is used.
const SEARCH_MAX: u64 = 20_000;

/// Grounds on which a bound holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Proof {
    /// A plan reaches the bound by cuts, so it is exact, for plans of any form.
    Reached,
    /// All plans of the rack-coordinated form were tried: it is exact for them.
    Exhausted,
    /// By cuts alone; whether a plan reaches it is not known.
    Cuts,
}

/// The least that must cross racks for an update of whole chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Sub-chunks that cross racks at least; chunks for codes with one a chunk.
    pub rows: u64,
    /// Sub-chunks that cross racks at least in any plan whatever its form, by cuts.
    pub cut_rows: u64,
    /// The proof of `rows`.
    pub proof: Proof,
}

/// The bound for an update of the data chunks `updated` as a whole.
///
/// # Panics
/// When a chunk is not one of the stripe's data chunks.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ChunkIndex, Geometry, StripeId};
/// use gabion_planner::bound::{Proof, least};
/// use gabion_planner::{Stripe, placement};
///
/// // RackCU's example: no plan sends fewer than 8 chunks.
/// let code: Code = "rs(6,4)".parse().unwrap();
/// let (topology, placement) = placement::grouped("3x2+2x2".parse().unwrap(), 6, 4).unwrap();
/// let geometry = Geometry::new(6, 4, 1, 4096).unwrap();
/// let stripe = Stripe { id: StripeId(1), code: &code, geometry, placement: &placement, lost: &[] };
/// let all: Vec<ChunkIndex> = geometry.data_chunks().collect();
/// let bound = least(&stripe, &topology, &all);
/// assert_eq!(bound.rows, 8);
/// assert_ne!(bound.proof, Proof::Cuts);
/// ```
pub fn least(stripe: &Stripe<'_>, topology: &Topology, updated: &[ChunkIndex]) -> Bound {
    let spread = Spread::of_chunks(stripe, topology, updated);
    let (cut_rows, planned) = (cuts::least_rows(&spread), best_rows(&spread));
    let (rows, proof) = if cut_rows == planned {
        (planned, Proof::Reached)
    } else if let Some(rows) = exhaust(&spread) {
        (rows, Proof::Exhausted)
    } else {
        (cut_rows, Proof::Cuts)
    };
    Bound {
        rows: u64::from(rows),
        cut_rows: u64::from(cut_rows),
        proof,
    }
}

/// The least over all choices of collectors; none when there are too many.
fn exhaust(spread: &Spread) -> Option<u32> {
    let givers: Vec<usize> = (0..spread.rack_count)
        .filter(|&rack| spread.cell_racks.contains(&rack))
        .collect();
    let racks = spread.rack_count as u64;
    let choices = racks.checked_pow(givers.len() as u32)?;
    if choices > SEARCH_MAX {
        return None;
    }
    let mut collectors = vec![0; spread.rack_count];
    let choice_rows = |choice: u64| {
        let mut rest = choice;
        for &giver in &givers {
            collectors[giver] = (rest % racks) as usize;
            rest /= racks;
        }
        form_rows(spread, &givers, &collectors)
    };
    (0..choices).map(choice_rows).min()
}

/// Rows that cross racks when rack `a` hands its changes to rack `collectors[a]`.
fn form_rows(spread: &Spread, givers: &[usize], collectors: &[usize]) -> u32 {
    let handed = givers.iter().filter(|&&a| collectors[a] != a);
    let mut rows: u32 = handed.map(|&a| spread.out(a)).sum();
    for collector in 0..spread.rack_count {
        // A rack that holds its own changes has them as they are, whatever it would give to others.
        let group = |b: usize| {
            let members = givers.iter().copied();
            members.filter(move |&a| collectors[a] == collector && a != b)
        };
        for b in (0..spread.rack_count).filter(|&b| b != collector) {
            let data: u32 = group(b).map(|a| spread.cells(a, b)).sum();
            let is_raw =
                group(b).all(|a| a == collector || spread.cells(a, b) == 0 || spread.is_raw(a));
            let parity = spread.rows_from(b, |a| a != b && collectors[a] == collector);
            rows += if is_raw { data.min(parity) } else { parity };
        }
    }
    rows
}
