//! The parts of a box plot's box for a sample. The plots decide how it is drawn.

use plotters::data::Quartiles;

/// A box: the middle half of a sample with its median, whiskers to the extreme values within one
/// and a half times the box's height, and the values beyond.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BoxParts {
    /// The lower whisker's end, the lower quartile, the median, the upper quartile, and the upper
    /// whisker's end.
    pub(crate) five: [f32; 5],
    /// The values beyond the whiskers.
    pub(crate) outliers: Vec<f32>,
}

impl BoxParts {
    /// The box of a sample of at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let [from, lower, median, upper, to] = Quartiles::new(values).values();
        let values = values.iter().map(|&value| value as f32);
        let (within, outliers): (Vec<f32>, Vec<f32>) =
            values.partition(|value| (from..=to).contains(value));
        // Quartiles may lie between two values, and their fences so close that no value is within.
        let low = within.iter().copied().fold(lower, f32::min);
        let high = within.iter().copied().fold(upper, f32::max);
        Self {
            five: [low, lower, median, upper, high],
            outliers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiskers_end_at_values_and_what_is_beyond_stands_alone() {
        let of = |values: &[f64], five, outliers: &[f32]| {
            let outliers = outliers.to_vec();
            assert_eq!(BoxParts::of(values), BoxParts { five, outliers });
        };
        let spread = [5.0, 1.0, 2.0, 3.0, 4.0, 40.0, -30.0];
        of(&spread, [1.0, 1.5, 3.0, 4.5, 5.0], &[40.0, -30.0]);
        of(&[7.0], [7.0; 5], &[]);
    }
}
