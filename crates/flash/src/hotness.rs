//! How often data is written, and which group it belongs to (`CodFS` thesis, section 6.2.2, Algorithm 2).
//!
//! The hotness of a unit is a moving average of the inverse interval between its writes; sequential
//! K-means sorts hotness values into groups. The thesis's unit is a file. Here it is a run of pages of
//! one, a whole file if one likes, since a volume's or a database's file has hot and cold places. Time
//! is the number of pages written so far, so that groups follow the load and not its pace.
//!
//! Hotness values are in ordinary memory and learnt anew after a restart.

use std::collections::BTreeMap;

/// How hotness values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotnessScale {
    /// By their difference, as in the thesis. Intervals spread over orders of magnitude, and most
    /// centres come to lie among the few hottest.
    Linear,
    /// By the difference of their logarithms: by how many times one is hotter than the other.
    Logarithmic,
}

/// What decides the groups.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HotnessOptions {
    /// Weight of the newest interval in the average, above 0 and at most 1: the thesis's alpha.
    pub alpha: f64,
    /// How far a group's centre follows the value that was put into it, 0 to 1: the thesis's beta.
    pub beta: f64,
    /// Pages of a file that have one hotness; `u32::MAX` is a whole file.
    pub unit_pages: u32,
    /// How values are compared.
    pub scale: HotnessScale,
}

impl Default for HotnessOptions {
    fn default() -> Self {
        Self {
            alpha: 0.3,
            beta: 0.02,
            unit_pages: 16,
            scale: HotnessScale::Logarithmic,
        }
    }
}

/// What a unit's history comes to.
#[derive(Clone, Copy, Debug)]
struct Unit {
    hotness: f32,
    /// Low bits of the time of the last write. An interval beyond 2^32 pages counts as a shorter one.
    written_at: u32,
}

/// The hotness of everything, and the groups' centres.
#[derive(Clone, Debug)]
pub(crate) struct Hotness {
    options: HotnessOptions,
    units: BTreeMap<(u32, u32), Unit>,
    centres: Vec<f64>,
}

impl Hotness {
    pub(crate) fn new(options: HotnessOptions, group_count: usize) -> Self {
        // The thesis guesses at random. Centres that begin orders of magnitude apart meet the values
        // wherever these are.
        let guess = |group: usize| 0.1_f64.powf(group as f64 + 1.0);
        let centres = (0..group_count)
            .map(guess)
            .map(|value| position(options.scale, value));
        Self {
            options,
            units: BTreeMap::new(),
            centres: centres.collect(),
        }
    }

    /// The group of a page that is written now. The first write of a unit, and further pages of one
    /// write at the same time, tell nothing about intervals.
    pub(crate) fn written(&mut self, file: u32, page: u32, now: u64) -> usize {
        let key = (file, page / self.options.unit_pages);
        let now = now as u32;
        let alpha = self.options.alpha;
        let hotness = match self.units.get_mut(&key) {
            None => {
                let fresh = Unit {
                    hotness: 0.0,
                    written_at: now,
                };
                self.units.insert(key, fresh);
                0.0
            }
            Some(unit) => {
                let interval = now.wrapping_sub(unit.written_at);
                if interval > 0 {
                    let older = f64::from(unit.hotness);
                    let hotness = alpha / f64::from(interval) + (1.0 - alpha) * older;
                    unit.hotness = hotness as f32;
                    unit.written_at = now;
                }
                f64::from(unit.hotness)
            }
        };
        self.classify(hotness)
    }

    /// The group of a page that collection moves: its hotness as if it were written now, so that what
    /// was hot once cools down.
    pub(crate) fn moved(&mut self, file: u32, page: u32, now: u64) -> usize {
        let key = (file, page / self.options.unit_pages);
        let alpha = self.options.alpha;
        let hotness = self.units.get(&key).map_or(0.0, |unit| {
            let interval = (now as u32).wrapping_sub(unit.written_at).max(1);
            // No average of intervals is above what the time since the last write allows.
            let blended = alpha / f64::from(interval) + (1.0 - alpha) * f64::from(unit.hotness);
            blended.min(1.0 / f64::from(interval))
        });
        self.classify(hotness)
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, file: u32) {
        let mut rest = self.units.split_off(&(file, 0));
        let mut later = rest.split_off(&(file.saturating_add(1), 0));
        self.units.append(&mut later);
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

/// A hotness on its scale. The coldest values are as cold as one write in 2^32 pages.
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
        Hotness::new(options, 4)
    }

    #[test]
    fn averages_the_inverse_interval_as_the_formula_says() {
        let mut hotness = hotness(HotnessScale::Logarithmic);
        for now in [10, 14, 24] {
            hotness.written(7, 0, now);
        }
        let expected = 0.3 / 10.0 + 0.7 * (0.3 / 4.0);
        let unit = hotness.units[&(7, 0)];
        assert!((f64::from(unit.hotness) - expected).abs() < 1e-6);
    }

    #[test]
    fn what_is_written_often_is_apart_from_what_is_written_once() {
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
    fn what_was_hot_cools_down_when_it_is_moved_later() {
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
        let left: Vec<u32> = hotness.units.keys().map(|key| key.0).collect();
        assert_eq!(left, [0, 2]);
    }
}
