//! How our figures stand to a paper's. The tolerances, which hold on both sides of what is printed, are in `docs/lab.md`.

use serde::Serialize;
use std::fmt;

/// How a figure of ours stands to the paper's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the tolerance of what is printed.
    Near,
    /// Further from it, on the same side of no effect at all.
    DirectionOnly,
    /// On the other side, or a statement of the paper does not hold.
    Opposite,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Near => "near",
            Self::DirectionOnly => "direction only",
            Self::Opposite => "opposite",
        })
    }
}

/// How far a figure may be from what is printed to be near, on both sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tolerance {
    /// So many per cent of the printed value.
    Percent(f64),
    /// So much, in the figure's unit.
    Points(f64),
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "+- {percent} %"),
            Self::Points(points) => write!(f, "+- {points}"),
        }
    }
}

/// The tolerance of ratios.
pub(crate) const RATIO: Tolerance = Tolerance::Percent(15.0);
/// The tolerance of savings and gains in per cent, in percentage points.
const SAVING: Tolerance = Tolerance::Points(10.0);

/// A figure that a paper prints.
#[derive(Clone, PartialEq, Debug)]
pub struct Paper {
    pub(super) printed: String,
    /// The least and the most that is printed.
    pub(super) range: (f64, f64),
    pub(super) tolerance: Tolerance,
    /// What the figure would be if there were no effect.
    no_effect: f64,
}

impl Paper {
    /// How many times as much: 1 is no effect.
    pub fn ratio(value: f64) -> Self {
        Self {
            printed: format!("{}x", digits(value)),
            range: (value, value),
            tolerance: RATIO,
            no_effect: 1.0,
        }
    }

    /// Per cent that is saved or gained: 0 is no effect.
    pub fn saving(percent: f64) -> Self {
        Self {
            printed: format!("{percent:.1} %"),
            range: (percent, percent),
            tolerance: SAVING,
            no_effect: 0.0,
        }
    }

    /// The same, of several settings or as a bound.
    pub fn savings(least: f64, most: f64) -> Self {
        Self {
            range: (least, most),
            ..Self::saving(most).printed(format!("{least} to {most} %"))
        }
    }

    /// A value that has to be met exactly.
    pub fn exactly(value: f64) -> Self {
        Self {
            printed: value.to_string(),
            range: (value, value),
            tolerance: Tolerance::Points(0.0),
            no_effect: 0.0,
        }
    }

    /// Sets the paper's own words.
    #[must_use]
    pub fn printed(self, words: impl Into<String>) -> Self {
        Self {
            printed: words.into(),
            ..self
        }
    }

    /// Sets how far a near figure may be off.
    #[must_use]
    pub const fn within(mut self, tolerance: Tolerance) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets what the figure would be without an effect.
    #[must_use]
    pub const fn without_effect(mut self, value: f64) -> Self {
        self.no_effect = value;
        self
    }

    /// The verdict on a figure of ours.
    pub fn judge(&self, ours: f64) -> Verdict {
        let (least, most) = self.range;
        let room = |value: f64| match self.tolerance {
            Tolerance::Percent(percent) => value.abs() * percent / 100.0,
            Tolerance::Points(points) => points,
        };
        if (least - room(least)..=most + room(most)).contains(&ours) {
            return Verdict::Near;
        }
        let effect = |value: f64| value - self.no_effect;
        let middle = f64::midpoint(least, most);
        if effect(ours) * effect(middle) > 0.0 {
            Verdict::DirectionOnly
        } else {
            Verdict::Opposite
        }
    }
}

/// A goal of this project, which no paper prints.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Goal {
    /// The meaning of the figure.
    pub what: String,
    /// Ours, as it is printed.
    pub ours: String,
    /// Ours, for programs; none if it is not a single number.
    pub ours_value: Option<f64>,
    /// The goal.
    pub goal: String,
    /// Whether ours meets it.
    pub is_met: bool,
    /// Why it does not.
    pub why: Option<String>,
    /// The unit, and whether a number meets the goal.
    #[serde(skip)]
    bound: Option<Bound>,
}

/// What a number has to be.
#[derive(Clone, PartialEq, Debug)]
struct Bound {
    unit: String,
    least: f64,
    most: f64,
}

impl Goal {
    /// At least so much.
    pub fn at_least(what: impl Into<String>, ours: f64, unit: &str, least: f64) -> Self {
        let goal = format!("{least}{unit} at least");
        Self::bounded(what, ours, goal, unit, (least, f64::INFINITY))
    }

    /// At most so much.
    pub fn at_most(what: impl Into<String>, ours: f64, unit: &str, most: f64) -> Self {
        let goal = format!("{most}{unit} at most");
        Self::bounded(what, ours, goal, unit, (f64::NEG_INFINITY, most))
    }

    /// Within so much of 0, on both sides.
    pub fn within(what: impl Into<String>, ours: f64, unit: &str, most: f64) -> Self {
        let goal = format!("within {most}{unit}");
        Self::bounded(what, ours, goal, unit, (-most, most))
    }

    fn bounded(
        what: impl Into<String>,
        ours: f64,
        goal: String,
        unit: &str,
        (least, most): (f64, f64),
    ) -> Self {
        let is_met = (least..=most).contains(&ours);
        let shown = format!("{}{unit}", digits(ours));
        let unit = unit.to_owned();
        Self {
            ours_value: Some(ours),
            bound: Some(Bound { unit, least, most }),
            ..Self::words(what, shown, goal, is_met)
        }
    }

    /// Puts a mean of several runs in place of one run's figure.
    pub(super) fn set_mean(&mut self, (mean, half): (f64, Option<f64>)) {
        let (Some(half), Some(Bound { unit, least, most })) = (half, &self.bound) else {
            return;
        };
        self.ours_value = Some(mean);
        self.ours = format!("{}{unit} +- {}", digits(mean), digits(half));
        self.is_met = (*least..=*most).contains(&mean);
        if self.is_met {
            self.why = None;
        }
    }

    /// A goal in words.
    pub fn words(
        what: impl Into<String>,
        ours: impl Into<String>,
        goal: impl Into<String>,
        is_met: bool,
    ) -> Self {
        Self {
            what: what.into(),
            ours: ours.into(),
            ours_value: None,
            goal: goal.into(),
            is_met,
            why: None,
            bound: None,
        }
    }

    /// Says why the goal is missed, if it is.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        if !self.is_met {
            self.why = Some(why.into());
        }
        self
    }
}

/// A number with about three significant digits, and at least two behind the point if it is small.
pub(super) fn digits(number: f64) -> String {
    let size = number.abs();
    if size >= 1000.0 {
        format!("{number:.0}")
    } else if size >= 100.0 {
        format!("{number:.1}")
    } else if size >= 0.1 || size == 0.0 {
        format!("{number:.2}")
    } else {
        format!("{number:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{DirectionOnly, Near, Opposite};

    fn check(paper: &Paper, expected: &[(f64, Verdict)]) {
        for &(ours, verdict) in expected {
            assert_eq!(
                paper.judge(ours),
                verdict,
                "{ours} beside {}",
                paper.printed
            );
        }
    }

    #[test]
    fn numbers_have_as_many_digits_as_say_something() {
        let printed = [0.0, 0.012_34, 0.356, 29.409, 117.66, 1_055.4, -3.333].map(digits);
        let expected = ["0.00", "0.0123", "0.36", "29.41", "117.7", "1055", "-3.33"];
        assert_eq!(printed, expected);
    }

    #[test]
    fn tolerances_hold_on_both_sides() {
        let savings = [
            (10.0, Near),
            (30.0, Near),
            (9.9, DirectionOnly),
            (30.1, DirectionOnly),
        ];
        check(&Paper::saving(20.0), &savings);
        let ratios = [
            (1.7, Near),
            (2.3, Near),
            (1.69, DirectionOnly),
            (2.31, DirectionOnly),
        ];
        check(&Paper::ratio(2.0), &ratios);
        check(
            &Paper::savings(80.0, 90.0),
            &[(70.0, Near), (100.0, Near), (69.0, DirectionOnly)],
        );
        check(&Paper::exactly(3.0), &[(3.0, Near), (4.0, DirectionOnly)]);
    }

    #[test]
    fn the_other_side_of_no_effect_is_opposite() {
        check(&Paper::saving(20.0), &[(0.0, Opposite), (-1.0, Opposite)]);
        check(
            &Paper::saving(-5.8),
            &[(-15.9, DirectionOnly), (4.3, Opposite)],
        );
        check(&Paper::ratio(2.0), &[(1.0, Opposite), (0.5, Opposite)]);
        let half = Paper::ratio(0.5).within(Tolerance::Points(0.1));
        check(&half, &[(0.6, Near), (0.9, DirectionOnly), (1.2, Opposite)]);
        let most = Paper::saving(85.0).without_effect(50.0);
        check(
            &most,
            &[(76.0, Near), (60.0, DirectionOnly), (25.0, Opposite)],
        );
    }
}
