//! Means of samples, with the interval in which a mean lies with 95 % confidence (Student's t, since samples are
//! small).

/// Quantiles of Student's t distribution for 95 % on both sides, by degrees of freedom from 1 on; for more it is
/// taken as normal, 1.96.
const T_95: [f64; 14] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145,
];

/// The mean of some values, at least one, and half the width of its 95 % confidence interval; none of a single value.
pub(crate) fn mean_and_interval(values: &[f64]) -> (f64, Option<f64>) {
    let (mean, width) = mean_and_width(values);
    (
        mean,
        width.map(|width| width / (values.len() as f64).sqrt()),
    )
}

/// The mean of some values, at least one, and half the width of the interval in which one more value lies with a
/// probability of 95 %; none of a single value.
pub(crate) fn mean_and_prediction(values: &[f64]) -> (f64, Option<f64>) {
    let (mean, width) = mean_and_width(values);
    let widening = (1.0 + 1.0 / values.len() as f64).sqrt();
    (mean, width.map(|width| width * widening))
}

/// The mean, and the standard deviation times the quantile.
fn mean_and_width(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, None);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    let quantile = T_95.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean, Some(quantile * deviation))
}

/// The mean of some values; 0 of none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The least and the most of some values; 0 of none.
pub(crate) fn least_and_most(values: &[f64]) -> [f64; 2] {
    let kept = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
    [kept(f64::min), kept(f64::max)].map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        assert_eq!(mean_and_interval(&[7.0]), (7.0, None));
        let (mean, half) = mean_and_interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12);
        // A deviation of 1, and 4.303 / sqrt(3).
        assert!((half.expect("three values") - 2.4843).abs() < 1e-3);
        let (_, half) = mean_and_interval(&[5.0; 40]);
        assert_eq!(half, Some(0.0));
        // 4.303 * sqrt(4 / 3).
        let (_, half) = mean_and_prediction(&[1.0, 2.0, 3.0]);
        assert!((half.expect("three values") - 4.9687).abs() < 1e-3);
    }
}
