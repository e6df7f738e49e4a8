//! The places of a calibrated workload's working set, and the part of it that is updated.
//!
//! The address space is a row of equal *slots*. A slot has room for one hot extent, which will be
//! updated, and for cold sectors, which are accessed once. A gap after each keeps extents from
//! merging, so that the rule by which a write marks whole extents marks exactly the hot ones. Slots
//! lie in areas that are spread over the volume's span, the next one in the next area, so that the beginning of a
//! workload is as spread as the whole.

use super::target::Target;
use crate::error::LabError;
use crate::stats::SECTOR_BYTES;

/// Sectors that keep two extents apart, and the unit in which extents are cut.
pub(super) const GAP_SECTORS: u64 = 8;
/// Sectors of a read: reads only bring data into the working set, and long ones do it in few.
pub(super) const READ_SECTORS: u64 = 128;
/// Updates that each hot extent has on average, so that all of them are updated in a random order.
const UPDATES_PER_EXTENT: f64 = 4.0;
/// The most by which the working set that writes alone make may exceed the target: rounding in the target's last digit,
/// not a contradiction.
const ROUNDING: f64 = 1.06;

/// The derived dimensions of a workload, in sectors unless a name says otherwise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Blueprint {
    /// The working set.
    pub(super) working_set: u64,
    /// The part of it that is updated.
    pub(super) hot: u64,
    /// Hot extents; all but the last have `extent` sectors.
    pub(super) extent_count: u64,
    /// Sectors of a hot extent.
    pub(super) extent: u64,
    /// Room for cold sectors in a slot.
    pub(super) cold_room: u64,
    /// Sectors that reads, not writes, bring into the working set.
    pub(super) read: u64,
    /// The share of updates among the writes that fit an extent, by sectors. Longer ones are never
    /// updates, so this is more than the target's share of all writes.
    pub(super) update_share: f64,
    /// Sectors of all writes that fit an extent.
    fitting: f64,
    /// The power of the sectors written by which those written for the first time grow.
    growth: f64,
    /// Areas.
    area_count: u64,
    /// Sectors that an area's slots take.
    area_footprint: u64,
    /// Sectors that an area has for itself; its slots lie anywhere within.
    area_pitch: u64,
    /// Decides where.
    seed: u64,
}

impl Blueprint {
    /// Derives the dimensions for a target.
    pub(super) fn new(target: &Target, seed: u64) -> Result<Self, LabError> {
        check(target)?;
        let mix = Mix::of(target);
        let update_share = target.update_writes_pct / 100.0;
        let written = target.writes as f64 * mix.mean;
        let working_set = target.working_set_gib * (1_u64 << 30) as f64 / SECTOR_BYTES as f64;
        let first_written = (1.0 - update_share) * written;
        if first_written > working_set * ROUNDING {
            return Err(refuse(format!(
                "writes that are not updates have {first_written:.0} sectors, but the working set only \
                {working_set:.0}; use shorter writes, fewer writes, or more updates"
            )));
        }
        let hot = round_up(working_set * target.updated_working_set_pct / 100.0);
        let updates = update_share * target.writes as f64;
        let wished = mix
            .longest
            .max((UPDATES_PER_EXTENT * hot as f64 / updates.max(1.0)) as u64);
        // Three extents at least, so that a tiny hot part is not one lump. An updated file is one.
        let extent = match target.files {
            Some(files) => round_up(hot as f64 / files.updated as f64),
            None => round_up(wished as f64).min(round_up(hot as f64 / 3.0)),
        }
        .max(GAP_SECTORS);
        let extent_count = hot.div_ceil(extent);
        if (hot == 0) != (updates < 1.0) || extent_count as f64 > updates {
            return Err(refuse(format!(
                "{updates:.0} updates cannot mark {hot} sectors of the working set as updated"
            )));
        }
        let fitting_share = mix.share_up_to(target, extent);
        if fitting_share < update_share {
            return Err(refuse(format!(
                "too many writes are longer than the {extent} sectors that an updated extent has; \
                 use shorter writes or a larger updated share"
            )));
        }
        let cold = (working_set - hot as f64).max(0.0);
        let even_room = cold / (extent_count.max(target.area_count) as f64);
        // The rest of a slot is too short for the next request, so each slot has room for one more.
        let cold_room = round_up(even_room) + round_up(mix.longest.max(READ_SECTORS) as f64);
        let slot = extent + cold_room + 2 * GAP_SECTORS;
        let slots = extent_count
            .max((cold / cold_room as f64).ceil() as u64)
            .max(1);
        // One slot more, for what rounding adds to the cold part.
        let slots_per_area = (slots + 1).div_ceil(target.area_count);
        let spread = target.span_bytes / SECTOR_BYTES / target.area_count;
        // Without updates nothing has to fit, and the quotient might be 0 / 0.
        let share_of_fitting = update_share / fitting_share.max(f64::MIN_POSITIVE);
        Ok(Self {
            working_set: working_set as u64,
            hot,
            extent_count,
            extent,
            cold_room,
            read: (working_set - first_written).max(0.0) as u64,
            update_share: share_of_fitting,
            fitting: written * fitting_share,
            growth: growth(share_of_fitting, target.writes),
            area_count: target.area_count,
            area_footprint: slots_per_area * slot,
            area_pitch: (spread - spread % GAP_SECTORS).max(slots_per_area * slot),
            seed,
        })
    }

    /// Sectors of all areas, side by side.
    pub(super) const fn least_span_sectors(&self) -> u64 {
        self.area_count * self.area_footprint
    }

    /// Sectors of hot extent `at`.
    pub(super) fn extent_sectors(&self, at: u64) -> u64 {
        self.extent.min(self.hot - at * self.extent)
    }

    /// The first sector of hot extent `at`, which is that of slot `at`.
    pub(super) fn hot_start(&self, at: u64) -> u64 {
        let slot = self.extent + self.cold_room + 2 * GAP_SECTORS;
        let area = at % self.area_count;
        let places = (self.area_pitch - self.area_footprint) / GAP_SECTORS + 1;
        let place = scatter(self.seed, area) % places * GAP_SECTORS;
        area * self.area_pitch + place + at / self.area_count * slot
    }

    /// Of the first `fitting` sectors that fit an extent, those that are to be accessed for the first time. They grow
    /// with a power of the sectors written, as the distinct words of a text do with its length (Heaps' law), from the
    /// first write, which is no update, to the target's share at the end.
    pub(super) fn first_due(&self, fitting: f64) -> f64 {
        let whole = self.fitting.max(1.0);
        (1.0 - self.update_share) * whole * (fitting / whole).powf(self.growth)
    }

    /// The first sector of the cold room of slot `at`.
    pub(super) fn cold_start(&self, at: u64) -> u64 {
        self.hot_start(at) + self.extent + GAP_SECTORS
    }
}

/// The power of Heaps' law: of `writes` writes the first one and, at the end, all but the share of updates are no
/// updates.
fn growth(update_share: f64, writes: u64) -> f64 {
    let first_share = (1.0 - update_share).max(f64::MIN_POSITIVE);
    (1.0 + first_share.ln() / (writes.max(2) as f64).ln()).max(0.0)
}

/// A number that looks random but follows from the seed and the area, so that areas need no memory:
/// the output function of Steele, Lea and Flood's `SplitMix` generator.
const fn scatter(seed: u64, area: u64) -> u64 {
    let counter = seed.wrapping_add((area + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (counter ^ (counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The mean and the longest of the sizes of a target.
struct Mix {
    /// Sectors of a write on average.
    mean: f64,
    /// Sectors of the longest write.
    longest: u64,
}

impl Mix {
    fn of(target: &Target) -> Self {
        let weights: f64 = target.sizes.iter().map(|size| f64::from(size.weight)).sum();
        let longest = target.sizes.iter().map(|size| size.length_bytes).max();
        Self {
            mean: sectors_up_to(target, u64::MAX) / weights,
            longest: longest.unwrap_or(0) / SECTOR_BYTES,
        }
    }

    /// The share of written sectors that are in writes of at most `sectors` sectors.
    fn share_up_to(&self, target: &Target, sectors: u64) -> f64 {
        if sectors >= self.longest {
            return 1.0;
        }
        sectors_up_to(target, sectors) / sectors_up_to(target, u64::MAX)
    }
}

/// Sectors of a full deck's writes of at most `sectors` sectors.
fn sectors_up_to(target: &Target, sectors: u64) -> f64 {
    let short = target
        .sizes
        .iter()
        .filter(|size| size.length_bytes / SECTOR_BYTES <= sectors);
    short
        .map(|size| (size.length_bytes / SECTOR_BYTES) as f64 * f64::from(size.weight))
        .sum()
}

/// Refuses targets that say nothing sensible, each on its own.
fn check(target: &Target) -> Result<(), LabError> {
    let is_share = |pct: f64| (0.0..=100.0).contains(&pct);
    let is_size = |bytes: u64| bytes > 0 && bytes.is_multiple_of(SECTOR_BYTES);
    let card_count: u64 = target.sizes.iter().map(|size| u64::from(size.weight)).sum();
    let fault = if target.writes == 0 || target.writes > 1 << 40 {
        "there must be at least one write, and at most 2^40"
    } else if !(target.working_set_gib > 0.0 && target.working_set_gib <= (1_u64 << 30) as f64) {
        "the working set must have more than 0 and at most 2^30 GiB"
    } else if !is_share(target.updated_working_set_pct) || !is_share(target.update_writes_pct) {
        "shares are per cent, from 0 to 100"
    } else if !target.sizes.iter().all(|size| is_size(size.length_bytes)) {
        "sizes are positive multiples of 512 bytes"
    } else if card_count == 0 || card_count > 1_000_000 {
        "the weights of the sizes must add up to 1 to 1000000"
    } else if target.area_count == 0 || target.span_bytes > 1 << 60 {
        "there must be at least one area, and a span of at most 2^60 bytes"
    } else if target
        .files
        .is_some_and(|files| files.updated == 0 || files.updated > files.accessed)
    {
        "at least one file must be updated, and no more than are accessed"
    } else {
        return Ok(());
    };
    Err(refuse(fault.to_owned()))
}

const fn refuse(why: String) -> LabError {
    LabError::Target(why)
}

/// The next multiple of the unit in which extents are cut.
fn round_up(sectors: f64) -> u64 {
    (sectors.ceil() as u64).next_multiple_of(GAP_SECTORS)
}
