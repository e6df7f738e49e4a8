//! Hotness: how often data is written, and the group that it belongs to (`CodFS` thesis, section
//! 6.2.2, Algorithm 2).
//!
//! The hotness of a unit is a moving average of the inverse interval between its writes; sequential
//! K-means sorts hotness values into groups. The thesis's unit is a file. Here it is a page, or a
//! run of pages up to a whole file, since volumes and databases have hot and cold regions. Time is
//! the number of pages written so far, so that groups follow the load and not its rate.
//!
//! A unit takes three bytes of ordinary memory: its hotness to a twelfth, and the tick of its last
//! write; the clock wraps after sixteen times the store's capacity. Both are finer than the
//! distance between groups. A restart learns them anew.

use std::collections::BTreeMap;

/// Comparison of hotness values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotnessScale {
    /// By difference, as in the thesis. Intervals spread over orders of magnitude, so most centres
    /// end up among the few hottest values.
    Linear,
    /// By the difference of logarithms, i.e. the ratio.
    Logarithmic,
}

/// Parameters of the grouping.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HotnessOptions {
    /// Weight of the newest interval in the average, above 0 and at most 1: the thesis's alpha.
    pub alpha: f64,
    /// The weight with which a value moves its group's centre, 0 to 1: the thesis's beta.
    pub beta: f64,
    /// Pages of a file that share one hotness; `u32::MAX` is a whole file.
    pub unit_pages: u32,
    /// Comparison of values.
    pub scale: HotnessScale,
}

impl Default for HotnessOptions {
    fn default() -> Self {
        Self {
            alpha: 0.3,
            beta: 0.02,
            unit_pages: 1,
            scale: HotnessScale::Logarithmic,
        }
    }
}

/// Units of a leaf.
const LEAF_UNITS: u32 = 256;
/// Steps of a coded hotness within a factor of two; a byte covers 32 such factors.
const STEPS_PER_OCTAVE: f64 = 254.0 / 32.0;

/// The history of some units.
#[derive(Clone, Debug)]
struct Leaf {
    /// Coded by [`encode`]; 0 is a unit that was never written.
    hotness: [u8; LEAF_UNITS as usize],
    /// Low bits of the tick of the last write.
    written_at: [u16; LEAF_UNITS as usize],
}

/// The hotness of all units, and the groups' centres.
#[derive(Clone, Debug)]
pub(crate) struct Hotness {
    options: HotnessOptions,
    leaves: BTreeMap<(u32, u32), Box<Leaf>>,
    centres: Vec<f64>,
    /// Base-2 logarithm of the written pages in a tick.
    tick_shift: u32,
}

impl Hotness {
    /// For a store that holds `capacity_pages`.
    pub(crate) fn new(options: HotnessOptions, group_count: usize, capacity_pages: u64) -> Self {
        // The thesis draws random centres. Centres that begin orders of magnitude apart suit values
        // of any range.
        let guess = |group: usize| 0.1_f64.powf(group as f64 + 1.0);
        let centres = (0..group_count)
            .map(guess)
            .map(|value| position(options.scale, value));
        let round_pages = capacity_pages.saturating_mul(16);
        Self {
            options,
            leaves: BTreeMap::new(),
            centres: centres.collect(),
            tick_shift: u64::BITS - (round_pages >> u16::BITS).leading_zeros(),
        }
    }

    /// The location of a unit's history: the leaf, and the unit in it.
    fn place(&self, file: u32, page: u32) -> ((u32, u32), usize) {
        let unit = page / self.options.unit_pages;
        ((file, unit / LEAF_UNITS), (unit % LEAF_UNITS) as usize)
    }

    fn tick(&self, now: u64) -> u16 {
        (now >> self.tick_shift) as u16
    }

    /// Pages written between two ticks: at least half a tick's.
    fn interval(&self, from: u16, to: u16) -> f64 {
        let ticks = f64::from(to.wrapping_sub(from)).max(0.5);
        ticks * f64::from(1_u32 << self.tick_shift)
    }

    /// The group of a page that is being written. The first write of a unit, and further pages of
    /// one write at the same time, give no interval.
    pub(crate) fn written(&mut self, file: u32, page: u32, now: u64) -> usize {
        let (key, at) = self.place(file, page);
        let tick = self.tick(now);
        // Writes within one tick: a unit of one page was rewritten; in a larger unit each page may
        // have been written once.
        let is_told = self.options.unit_pages == 1 && self.tick_shift > 0;
        let leaf = self.leaves.get(&key);
        let (code, written_at) =
            leaf.map_or((0, 0), |leaf| (leaf.hotness[at], leaf.written_at[at]));
        let mut hotness = decode(code);
        if code != 0 && (tick != written_at || is_told) {
            let alpha = self.options.alpha;
            hotness = alpha / self.interval(written_at, tick) + (1.0 - alpha) * hotness;
        }
        let leaf = self.leaves.entry(key).or_insert_with(|| {
            Box::new(Leaf {
                hotness: [0; LEAF_UNITS as usize],
                written_at: [0; LEAF_UNITS as usize],
            })
        });
        leaf.hotness[at] = encode(hotness);
        leaf.written_at[at] = tick;
        self.classify(hotness)
    }

    /// The group of a page that collection moves: its hotness as if it were written now, so that
    /// formerly hot data cools down.
    pub(crate) fn moved(&mut self, file: u32, page: u32, now: u64) -> usize {
        let (key, at) = self.place(file, page);
        let alpha = self.options.alpha;
        let known = self.leaves.get(&key).filter(|leaf| leaf.hotness[at] != 0);
        let hotness = known.map_or(0.0, |leaf| {
            let interval = self.interval(leaf.written_at[at], self.tick(now)).max(1.0);
            // The average of intervals cannot exceed what the time since the last write implies.
            let blended = alpha / interval + (1.0 - alpha) * decode(leaf.hotness[at]);
            blended.min(1.0 / interval)
        });
        self.classify(hotness)
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, file: u32) {
        let mut rest = self.leaves.split_off(&(file, 0));
        let mut later = rest.split_off(&(file.saturating_add(1), 0));
        self.leaves.append(&mut later);
    }

    /// One step of sequential K-means.
    fn classify(&mut self, hotness: f64) -> usize {
        let value = position(self.options.scale, hotness);
        let mut nearest = 0;
        for (group, centre) in self.centres.iter().enumerate() {
            if (centre - value).abs() < (self.centres[nearest] - value).abs() {
                nearest = group;
            }
        }
        self.centres[nearest] += self.options.beta * (value - self.centres[nearest]);
        nearest
    }
}

/// Codes a hotness in a byte: its logarithm, never 0. The coldest, as after a first write, is 1.
fn encode(hotness: f64) -> u8 {
    let octaves = hotness.clamp(2_f64.powi(-32), 1.0).log2() + 32.0;
    1 + (octaves * STEPS_PER_OCTAVE).round() as u8
}

fn decode(code: u8) -> f64 {
    if code <= 1 {
        return 0.0;
    }
    (f64::from(code - 1) / STEPS_PER_OCTAVE - 32.0).exp2()
}

/// The hotness on the chosen scale, cut off at one write in 2^32 pages.
fn position(scale: HotnessScale, hotness: f64) -> f64 {
    match scale {
        HotnessScale::Linear => hotness,
        HotnessScale::Logarithmic => hotness.max(2_f64.powi(-32)).log2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hotness(scale: HotnessScale) -> Hotness {
        let options = HotnessOptions {
            unit_pages: u32::MAX,
            scale,
            ..HotnessOptions::default()
        };
        Hotness::new(options, 4, 4096)
    }

    #[test]
    fn averages_the_inverse_interval_as_the_formula_says() {
        let mut hotness = hotness(HotnessScale::Logarithmic);
        for now in [10, 14, 24] {
            hotness.written(7, 0, now);
        }
        let expected = 0.3 / 10.0 + 0.7 * (0.3 / 4.0);
        let found = decode(hotness.leaves[&(7, 0)].hotness[0]);
        assert!((found / expected - 1.0).abs() < 0.1, "{found}, {expected}");
    }

    #[test]
    fn often_written_pages_are_in_another_group_than_once_written_ones() {
        for scale in [HotnessScale::Logarithmic, HotnessScale::Linear] {
            let mut hotness = hotness(scale);
            let mut groups = (0, 0);
            for now in 0..10_000_u64 {
                let is_hot = now % 2 == 0;
                let file = if is_hot {
                    (now / 2 % 4) as u32
                } else {
                    now as u32 + 100
                };
                let group = hotness.written(file, 0, now);
                groups = if is_hot {
                    (group, groups.1)
                } else {
                    (groups.0, group)
                };
            }
            assert_ne!(groups.0, groups.1, "{scale:?}");
        }
    }

    #[test]
    fn hot_pages_cool_down_when_they_are_moved_later() {
        let mut hotness = hotness(HotnessScale::Logarithmic);
        let mut hot = 0;
        for now in 0..1000 {
            hot = hotness.written(1, 0, now);
            hotness.written(now as u32 + 2, 0, now);
        }
        assert_eq!(hotness.moved(1, 0, 1001), hot);
        assert_ne!(hotness.moved(1, 0, 100_000_000), hot);
    }

    #[test]
    fn a_deleted_file_leaves_nothing_behind() {
        let mut hotness = hotness(HotnessScale::Linear);
        for file in 0..3 {
            hotness.written(file, 0, 1);
        }
        hotness.forget(1);
        let left: Vec<u32> = hotness.leaves.keys().map(|key| key.0).collect();
        assert_eq!(left, [0, 2]);
    }

    #[test]
    fn a_byte_tells_hotness_to_a_twelfth() {
        for exponent in 1..=310 {
            let hotness = 0.933_f64.powi(exponent);
            let found = decode(encode(hotness));
            assert!((found / hotness - 1.0).abs() < 1.0 / 12.0, "{hotness}");
        }
        assert_eq!((encode(0.0), encode(1.0)), (1, 255));
    }

    #[test]
    fn a_large_store_tells_pages_apart_by_its_coarse_clock() {
        let options = HotnessOptions::default();
        let mut hotness = Hotness::new(options, 4, 1 << 22);
        assert_eq!(hotness.tick_shift, 11);
        let mut groups = [0; 3];
        for round in 0..200_u64 {
            let now = round * 100_000;
            // One page again and again, one now and then, and one that is new each time.
            for again in 0..3 {
                groups[0] = hotness.written(1, 0, now + again);
            }
            if round % 50 == 0 {
                groups[1] = hotness.written(1, 1, now);
            }
            groups[2] = hotness.written(2, round as u32, now);
        }
        assert!(
            groups[0] != groups[1] && groups[0] != groups[2],
            "{groups:?}"
        );
    }
}
