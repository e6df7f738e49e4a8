//! The distribution of erases over an SSD's blocks.

/// Statistics of erases by block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wear {
    /// Erases of the least worn block.
    pub least: u32,
    /// Erases of the most worn block.
    pub most: u32,
    /// Mean erases of a block.
    pub mean: f64,
    /// Standard deviation of the erases of blocks.
    pub deviation: f64,
}

impl Wear {
    pub(super) fn of(erases: &[u32]) -> Self {
        let count = erases.len().max(1) as f64;
        let mean = erases.iter().map(|&erases| f64::from(erases)).sum::<f64>() / count;
        let square = |erases: &u32| (f64::from(*erases) - mean).powi(2);
        let variance = erases.iter().map(square).sum::<f64>() / count;
        Self {
            least: erases.iter().copied().min().unwrap_or(0),
            most: erases.iter().copied().max().unwrap_or(0),
            mean,
            deviation: variance.sqrt(),
        }
    }
}
