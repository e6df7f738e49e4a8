//! Compares our figures with a paper's, and with goals of this project. The tolerances are in [`super::tolerance`].

use super::tolerance::{EXACT, RATIO, Rule, SAVING};
use crate::sample::mean_and_interval;
use serde::Serialize;
use std::fmt;

/// The relation of a figure of ours to the paper's.
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

/// Rounding error of sums of floating-point numbers.
const ROUNDING: f64 = 1e-9;

/// A figure that a paper prints.
#[derive(Clone, PartialEq, Debug)]
pub struct Paper {
    pub(super) printed: String,
    /// The least and the most that is printed; infinite on the side on which everything holds.
    pub(super) range: (f64, f64),
    rule: &'static Rule,
    /// The figure without an effect; none for a statement, which holds or does not.
    no_effect: Option<f64>,
    /// Whether the tolerance is what a figure has to have, and not what it may be off.
    is_margin: bool,
}

impl Paper {
    /// A ratio: 1 is no effect.
    pub fn ratio(value: f64) -> Self {
        Self {
            printed: format!("{}x", digits(value)),
            range: (value, value),
            rule: &RATIO,
            no_effect: Some(1.0),
            is_margin: false,
        }
    }

    /// Per cent that is saved or gained: 0 is no effect.
    pub fn saving(percent: f64) -> Self {
        Self {
            printed: format!("{percent:.1} %"),
            range: (percent, percent),
            rule: &SAVING,
            no_effect: Some(0.0),
            is_margin: false,
        }
    }

    /// The same, of several settings.
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
            rule: &EXACT,
            no_effect: Some(0.0),
            is_margin: false,
        }
    }

    /// A statement that holds for what is at most this value, and for a little more by its tolerance.
    pub fn at_most(value: f64, rule: &'static Rule) -> Self {
        Self {
            printed: format!("{value} at most"),
            range: (f64::NEG_INFINITY, value),
            rule,
            no_effect: None,
            is_margin: false,
        }
    }

    /// A statement without a number: the value is `from` plus the tolerance at least.
    pub fn above(from: f64, rule: &'static Rule) -> Self {
        Self {
            printed: format!("above {from}"),
            range: (from, f64::INFINITY),
            rule,
            no_effect: None,
            is_margin: true,
        }
    }

    /// A statement without a number: the value is `from` less the tolerance at most.
    pub fn below(from: f64, rule: &'static Rule) -> Self {
        Self {
            printed: format!("below {from}"),
            range: (f64::NEG_INFINITY, from),
            rule,
            no_effect: None,
            is_margin: true,
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
    pub const fn within(mut self, rule: &'static Rule) -> Self {
        self.rule = rule;
        self
    }

    /// Sets what the figure would be without an effect.
    #[must_use]
    pub const fn without_effect(mut self, value: f64) -> Self {
        self.no_effect = Some(value);
        self
    }

    /// The same as a statement that holds or does not, so that there is no direction.
    #[must_use]
    pub const fn as_statement(mut self) -> Self {
        self.no_effect = None;
        self
    }

    /// Returns the printed figure in words.
    pub(crate) fn words(&self) -> &str {
        &self.printed
    }

    /// The middle of what is printed.
    pub(crate) fn middle(&self) -> f64 {
        f64::midpoint(self.range.0, self.range.1)
    }

    /// The least and the most that is near.
    pub fn near(&self) -> (f64, f64) {
        let (least, most) = self.range;
        let room = |value: f64| {
            if value.is_infinite() {
                return 0.0;
            }
            let room = self.rule.tolerance.room(value, self.no_effect);
            if self.is_margin { -room } else { room }
        };
        (least - room(least), most + room(most))
    }

    /// Returns the range that counts as near, in words.
    pub(super) fn accepted(&self) -> String {
        let (least, most) = self.near();
        if least.is_infinite() {
            format!("{} at most", digits(most))
        } else if most.is_infinite() {
            format!("{} at least", digits(least))
        } else if least < most {
            format!("{} to {}", digits(least), digits(most))
        } else {
            "exact".to_owned()
        }
    }

    /// The verdict on a figure of ours.
    pub fn judge(&self, ours: f64) -> Verdict {
        let (least, most) = self.near();
        if (least - ROUNDING..=most + ROUNDING).contains(&ours) {
            return Verdict::Near;
        }
        let Some(no_effect) = self.no_effect else {
            return Verdict::Opposite;
        };
        if (ours - no_effect) * (self.middle() - no_effect) > 0.0 {
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
    /// The reason if it does not.
    pub why: Option<String>,
    /// The unit, and whether a number meets the goal.
    #[serde(skip)]
    bound: Option<Bound>,
    /// The reason for a miss, kept for means, which may miss where the first run does not.
    #[serde(skip)]
    reason: Option<String>,
}

/// The range that a number must have.
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
        let is_met = (least - ROUNDING..=most + ROUNDING).contains(&ours);
        let shown = format!("{}{unit}", digits(ours));
        let unit = unit.to_owned();
        Self {
            ours_value: Some(ours),
            bound: Some(Bound { unit, least, most }),
            ..Self::words(what, shown, goal, is_met)
        }
    }

    /// Puts the result of several runs in place of the first one's: the mean of numbers, judged as such; for words,
    /// what most runs have.
    pub(super) fn merge(&mut self, others: &[&Self]) {
        let values: Option<Vec<f64>> = std::iter::once(self.ours_value)
            .chain(others.iter().map(|other| other.ours_value))
            .collect();
        if let (Some(values), Some(Bound { unit, least, most })) = (values, &self.bound) {
            let (mean, half) = mean_and_interval(&values);
            self.ours_value = Some(mean);
            self.ours = format!("{}{unit} +- {}", digits(mean), digits(half.unwrap_or(0.0)));
            self.is_met = (least - ROUNDING..=most + ROUNDING).contains(&mean);
        } else {
            let met = others.iter().filter(|other| other.is_met).count() + usize::from(self.is_met);
            let count = others.len() + 1;
            self.is_met = 2 * met > count;
            self.ours = format!("{} (met in {met} of {count} runs)", self.ours);
        }
        self.explain();
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
            reason: None,
        }
    }

    /// Says why the goal is missed, if it is.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.reason = Some(why.into());
        self.explain();
        self
    }

    fn explain(&mut self) {
        self.why = self.reason.clone().filter(|_| !self.is_met);
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
    use crate::experiment::tolerance::{FLAT, LOG_READ, SIGNIFICANT};
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
            (15.0, Near),
            (25.0, Near),
            (14.9, DirectionOnly),
            (25.1, DirectionOnly),
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
        assert_eq!(Paper::saving(20.0).accepted(), "15.00 to 25.00");
    }

    #[test]
    fn the_other_side_of_no_effect_is_opposite() {
        check(&Paper::saving(20.0), &[(0.0, Opposite), (-1.0, Opposite)]);
        check(
            &Paper::saving(-5.8),
            &[(-5.0, Near), (-15.9, DirectionOnly), (4.3, Opposite)],
        );
        check(&Paper::ratio(2.0), &[(1.0, Opposite), (0.5, Opposite)]);
        let half = Paper::ratio(0.5).within(&LOG_READ);
        check(&half, &[(0.6, Near), (0.9, DirectionOnly), (1.2, Opposite)]);
        let most = Paper::saving(85.0).without_effect(50.0);
        check(
            &most,
            &[(76.0, Near), (60.0, DirectionOnly), (25.0, Opposite)],
        );
    }

    #[test]
    fn a_statement_holds_on_one_side_or_does_not() {
        let most = Paper::at_most(4.1, &SAVING);
        check(&most, &[(-3.0, Near), (5.1, Near), (5.2, Opposite)]);
        assert_eq!(most.accepted(), "5.12 at most");
        let above = Paper::above(1.0, &SIGNIFICANT);
        check(&above, &[(1.1, Near), (9.0, Near), (1.09, Opposite)]);
        assert_eq!(above.accepted(), "1.10 at least");
        let below = Paper::below(1.0, &SIGNIFICANT);
        check(&below, &[(0.9, Near), (0.91, Opposite)]);
        let flat = Paper::ratio(1.0).within(&FLAT).as_statement();
        check(&flat, &[(0.9, Near), (1.1, Near), (1.2, Opposite)]);
    }
}
