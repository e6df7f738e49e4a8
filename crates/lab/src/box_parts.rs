//! The parts of a box plot's box for a sample. The plots decide how it is drawn.

/// A box: the middle half of a sample with its median, whiskers to the extreme values within one
/// and a half times the box's height, and the values beyond.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BoxParts {
    /// The lower whisker's end, the lower quartile, the median, the upper quartile, and the upper
    /// whisker's end.
    pub(crate) five: [f64; 5],
    /// The values beyond the whiskers.
    pub(crate) outliers: Vec<f64>,
}

impl BoxParts {
    /// The box of a sample of at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [lower, median, upper] = [0.25, 0.5, 0.75].map(|share| quantile(&sorted, share));
        let reach = 1.5 * (upper - lower);
        let fences = lower - reach..=upper + reach;
        let (within, outliers): (Vec<f64>, Vec<f64>) =
            values.iter().partition(|value| fences.contains(value));
        // Quartiles may lie between two values, and their fences so close that no value is within.
        let low = within.iter().copied().fold(lower, f64::min);
        let high = within.iter().copied().fold(upper, f64::max);
        Self {
            five: [low, lower, median, upper, high],
            outliers,
        }
    }
}

/// The value below which this share of a sorted sample lies, between two values by their distance.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (place - place.floor()) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiskers_end_at_values_and_what_is_beyond_stands_alone() {
        let of = |values: &[f64], five, outliers: &[f64]| {
            let outliers = outliers.to_vec();
            assert_eq!(BoxParts::of(values), BoxParts { five, outliers });
        };
        let spread = [5.0, 1.0, 2.0, 3.0, 4.0, 40.0, -30.0];
        of(&spread, [1.0, 1.5, 3.0, 4.5, 5.0], &[40.0, -30.0]);
        of(&[7.0], [7.0; 5], &[]);
    }
}
