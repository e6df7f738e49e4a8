//! The distances from a printed figure up to which a figure counts as near: every tolerance of every experiment.
//! `docs/lab.md` has the same table; a test compares the two.

use std::fmt;

/// The distance that a figure may have from a printed value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tolerance {
    /// This share of the printed value, in per cent.
    Percent(f64),
    /// This much, in the figure's unit.
    Points(f64),
    /// The smaller of this much and this share of the printed value, so that a small value has a small tolerance.
    Smaller {
        /// In the figure's unit.
        points: f64,
        /// In per cent of the printed value.
        percent: f64,
    },
    /// This share of the printed value in per cent, but at most half of its distance from no effect, so that no
    /// effect at all is never near.
    Effect(f64),
}

impl Tolerance {
    /// Returns the distance that a figure may have from this printed value; `no_effect` is the figure without an
    /// effect.
    pub fn room(self, printed: f64, no_effect: Option<f64>) -> f64 {
        let share = |percent: f64| printed.abs() * percent / 100.0;
        match self {
            Self::Percent(percent) => share(percent),
            Self::Points(points) => points,
            Self::Smaller { points, percent } => points.min(share(percent)),
            Self::Effect(percent) => {
                let half = no_effect.map_or(f64::INFINITY, |none| (printed - none).abs() / 2.0);
                share(percent).min(half)
            }
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Points(0.0) => f.write_str("exact"),
            Self::Percent(percent) => write!(f, "{percent} % of the printed value"),
            Self::Points(points) => write!(f, "{points}"),
            Self::Smaller { points, percent } => {
                write!(
                    f,
                    "{points} points or {percent} % of the printed value, the smaller"
                )
            }
            Self::Effect(percent) => write!(
                f,
                "{percent} % of the printed value, at most half of its distance from no effect"
            ),
        }
    }
}

/// The figures that have a tolerance, and the tolerance.
#[derive(PartialEq, Debug)]
pub struct Rule {
    /// The figures, as `docs/lab.md` names them.
    pub figures: &'static str,
    /// Their tolerance.
    pub tolerance: Tolerance,
}

impl Rule {
    const fn new(figures: &'static str, tolerance: Tolerance) -> Self {
        Self { figures, tolerance }
    }
}

/// Savings and gains in per cent, and their changes along an axis.
pub(crate) static SAVING: Rule = Rule::new(
    "savings and gains in per cent, their changes along an axis, and 'at most' in per cent",
    Tolerance::Smaller {
        points: 10.0,
        percent: 25.0,
    },
);
/// Ratios.
pub(crate) static RATIO: Rule = Rule::new("ratios", Tolerance::Effect(15.0));
/// Gains of rates that are multiples.
pub(crate) static RATE_GAIN: Rule = Rule::new(
    "gains of rates in per cent (`ECP-11`)",
    Tolerance::Percent(15.0),
);
/// Fragments of a chunk.
pub(crate) static FRAGMENTS: Rule = Rule::new("fragments (`COD-T51`)", Tolerance::Percent(15.0));
/// A repair over sending one chunk.
pub(crate) static DIRECT_SEND: Rule = Rule::new(
    "pipelining over direct send (`ECP-8a`)",
    Tolerance::Effect(5.0),
);
/// A repair over a conventional one.
pub(crate) static OF_CONVENTIONAL: Rule = Rule::new(
    "shares of conventional repair (`ECP-8d`)",
    Tolerance::Points(0.05),
);
/// Reading chunks with their logs over reading them alone.
pub(crate) static LOG_READ: Rule = Rule::new(
    "reading with logs over reading in place (`COD-F52`)",
    Tolerance::Points(0.1),
);
/// The thesis's "negligible", which has no number.
pub(crate) static NEGLIGIBLE: Rule = Rule::new(
    "a spread that is printed as negligible (`COD-F52`), per cent from 0",
    Tolerance::Points(5.0),
);
/// The thesis's "significant", which has no number.
pub(crate) static SIGNIFICANT: Rule = Rule::new(
    "a ratio that is printed as significantly below or above 1 (`COD-F53`), least distance from 1",
    Tolerance::Points(0.1),
);
/// Reserved space of a fixed size.
pub(crate) static RESERVED_FIXED: Rule = Rule::new(
    "reserved space of a fixed size (`COD-F56`)",
    Tolerance::Points(0.001),
);
/// Reserved space that shrinks.
pub(crate) static RESERVED_SHRUNK: Rule = Rule::new(
    "reserved space that shrinks (`COD-F56`)",
    Tolerance::Percent(25.0),
);
/// Writes that wait for a merge.
pub(crate) static STALLED: Rule = Rule::new(
    "writes of 1,000 that wait for a merge, at most 10 (`COD-F57`)",
    Tolerance::Points(0.0),
);
/// Replicas of a rack.
pub(crate) static REPLICAS: Rule = Rule::new(
    "replicas of a rack in per cent of all (`EAR-C1`)",
    Tolerance::Points(0.15),
);
/// Reads of the hottest rack, by scale.
pub(crate) static HOTTEST: [Rule; 3] = [
    Rule::new(
        "reads of the hottest rack (`EAR-C2`), per cent from RR's, `quick`",
        Tolerance::Points(25.0),
    ),
    Rule::new(
        "reads of the hottest rack (`EAR-C2`), per cent from RR's, `usual`",
        Tolerance::Points(5.0),
    ),
    Rule::new(
        "reads of the hottest rack (`EAR-C2`), per cent from RR's, `full`",
        Tolerance::Points(2.0),
    ),
];
/// The least rise that counts as one.
pub(crate) static RISE: Rule = Rule::new(
    "a rise without a number (`CAU-F13`, up to `u_s` = 10), least distance from 1",
    Tolerance::Points(0.05),
);
/// The most that counts as flat.
pub(crate) static FLAT: Rule = Rule::new(
    "flat (`CAU-F13`, from `u_s` = 10), distance from 1",
    Tolerance::Points(0.1),
);
/// Counts and probabilities that follow from formulas.
pub(crate) static EXACT: Rule = Rule::new(
    "counts and probabilities that follow from formulas (`RCU-EX`, `CAU-F5`, `COD-T32`)",
    Tolerance::Points(0.0),
);

/// All tolerances, in the order of the table in `docs/lab.md`.
pub fn rules() -> Vec<&'static Rule> {
    let [quick, usual, full] = &HOTTEST;
    vec![
        &SAVING,
        &RATIO,
        &RATE_GAIN,
        &FRAGMENTS,
        &DIRECT_SEND,
        &OF_CONVENTIONAL,
        &LOG_READ,
        &NEGLIGIBLE,
        &SIGNIFICANT,
        &RESERVED_FIXED,
        &RESERVED_SHRUNK,
        &STALLED,
        &REPLICAS,
        quick,
        usual,
        full,
        &RISE,
        &FLAT,
        &EXACT,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a table of docs/lab.md, from the line after its head.
    fn documented() -> Vec<String> {
        let guide = include_str!("../../../../docs/lab.md");
        let (_, table) = guide
            .split_once("| figures | tolerance |\n|---|---|\n")
            .expect("docs/lab.md has the table of tolerances");
        let rows = table.lines().take_while(|line| line.starts_with('|'));
        rows.map(str::to_owned).collect()
    }

    #[test]
    fn the_guide_lists_all_tolerances() {
        let row = |rule: &&Rule| format!("| {} | {} |", rule.figures, rule.tolerance);
        let rows: Vec<String> = rules().iter().map(row).collect();
        assert_eq!(documented(), rows, "\n{}", rows.join("\n"));
    }

    #[test]
    fn small_values_have_small_tolerances() {
        let saving = |printed| SAVING.tolerance.room(printed, Some(0.0));
        assert!((saving(14.1) - 3.525).abs() < 1e-9);
        assert!((saving(-5.8) - 1.45).abs() < 1e-9);
        assert!((saving(60.0) - 10.0).abs() < 1e-9);
        let ratio = |printed| RATIO.tolerance.room(printed, Some(1.0));
        assert!(
            (ratio(1.133) - 0.0665).abs() < 1e-9,
            "1 is no effect, and not near"
        );
        assert!((ratio(4.0) - 0.6).abs() < 1e-9);
    }
}
