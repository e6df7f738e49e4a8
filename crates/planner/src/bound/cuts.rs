//! The bound by cuts: a linear program over the sets into which racks can be divided.
//!
//! Let `x(a, b)` be the rows that rack `a` sends to rack `b`. For each set of racks, the rows that leave it are at
//! least the rank of the part that parity outside needs of the changes inside. The least sum of all `x` is a linear
//! program; its dual gives each cut a weight such that no pair of racks is charged more than once. Any such weights
//! prove a bound, so the solver need not be trusted: its solution is scaled until it is feasible, and the bound is the
//! value of the scaled weights, rounded up.

use crate::update::spread::Spread;

/// With more racks than this, only cuts around one or two racks are weighed.
const ALL_CUTS_RACKS_MAX: usize = 8;
/// Pivots after which the solver stops with what it has, which still proves something.
const PIVOTS_MAX: usize = 2_000;
/// Values up to this count as zero in the solver.
const EPSILON: f64 = 1e-9;

/// A set of racks, and the rows that must leave it.
struct Cut {
    /// By active rack.
    is_inside: Vec<bool>,
    rank: u32,
}

/// Rows that cross racks at least.
pub(super) fn least_rows(spread: &Spread) -> u32 {
    let active: Vec<usize> = (0..spread.rack_count)
        .filter(|&rack| {
            let has_target = spread.targets.iter().any(|target| target.rack == rack);
            has_target || spread.cell_racks.contains(&rack)
        })
        .collect();
    let count = active.len();
    let mut cuts = Vec::new();
    for members in member_sets(count) {
        let is_inside: Vec<bool> = (0..count).map(|at| members.contains(&at)).collect();
        let holds = |rack: usize| {
            let at = active.iter().position(|&other| other == rack);
            at.is_some_and(|at| is_inside[at])
        };
        let rank = spread.cut_rank(&holds);
        if rank > 0 {
            cuts.push(Cut { is_inside, rank });
        }
    }
    proven(&cuts, count)
}

/// The sets of racks whose cuts are weighed: all but none and all, or those of one or two racks and
/// what is outside them.
fn member_sets(count: usize) -> Vec<Vec<usize>> {
    if count <= ALL_CUTS_RACKS_MAX {
        let members = |set: u32| (0..count).filter(move |&at| set >> at & 1 == 1).collect();
        return (1..(1u32 << count) - u32::from(count > 0))
            .map(members)
            .collect();
    }
    let mut sets = Vec::new();
    for a in 0..count {
        for b in a..count {
            sets.push(if a == b { vec![a] } else { vec![a, b] });
            sets.push((0..count).filter(|&at| at != a && at != b).collect());
        }
    }
    sets
}

/// The bound that the best found weights prove.
fn proven(cuts: &[Cut], rack_count: usize) -> u32 {
    let pairs: Vec<(usize, usize)> = (0..rack_count)
        .flat_map(|a| {
            (0..rack_count)
                .filter(move |&b| b != a)
                .map(move |b| (a, b))
        })
        .collect();
    let crosses = |cut: &Cut, (a, b): (usize, usize)| cut.is_inside[a] && !cut.is_inside[b];
    let weights = maximise(cuts, &pairs, crosses);
    let load = |pair: &(usize, usize)| -> f64 {
        let charged = cuts
            .iter()
            .zip(&weights)
            .filter(|(cut, _)| crosses(cut, *pair));
        charged.map(|(_, weight)| weight).sum()
    };
    let heaviest = pairs.iter().map(load).fold(1.0, f64::max);
    let worth: f64 = cuts
        .iter()
        .zip(&weights)
        .map(|(cut, weight)| f64::from(cut.rank) * weight)
        .sum();
    // Rounding errors of a few thousand additions are far below a millionth of a row.
    (worth / heaviest - 1e-6).ceil().max(0.0) as u32
}

/// The simplex method on `max rank * weight` with every pair charged at most 1, begun at weights of
/// 0, by Bland's rule, which never goes round in circles. Gives weights of at least 0.
fn maximise(
    cuts: &[Cut],
    pairs: &[(usize, usize)],
    crosses: impl Fn(&Cut, (usize, usize)) -> bool,
) -> Vec<f64> {
    let (rows, columns) = (pairs.len(), cuts.len() + pairs.len());
    // One row a pair, the last column its limit; the last row is the objective, negated.
    let mut tableau = vec![vec![0.0; columns + 1]; rows + 1];
    for (row, &pair) in pairs.iter().enumerate() {
        for (column, cut) in cuts.iter().enumerate() {
            tableau[row][column] = f64::from(u8::from(crosses(cut, pair)));
        }
        tableau[row][cuts.len() + row] = 1.0;
        tableau[row][columns] = 1.0;
    }
    for (column, cut) in cuts.iter().enumerate() {
        tableau[rows][column] = -f64::from(cut.rank);
    }
    let mut basis: Vec<usize> = (cuts.len()..columns).collect();
    for _ in 0..PIVOTS_MAX {
        let Some(entering) = (0..columns).find(|&column| tableau[rows][column] < -EPSILON) else {
            break;
        };
        let ratio = |row: usize| tableau[row][columns] / tableau[row][entering];
        let candidates = (0..rows).filter(|&row| tableau[row][entering] > EPSILON);
        let leaving = candidates.min_by(|&x, &y| {
            let by_ratio = ratio(x).total_cmp(&ratio(y));
            by_ratio.then(basis[x].cmp(&basis[y]))
        });
        let Some(leaving) = leaving else {
            break;
        };
        pivot(&mut tableau, leaving, entering);
        basis[leaving] = entering;
    }
    let mut weights = vec![0.0; cuts.len()];
    for (row, &column) in basis.iter().enumerate() {
        if let Some(weight) = weights.get_mut(column) {
            *weight = f64::max(tableau[row][columns], 0.0);
        }
    }
    weights
}

fn pivot(tableau: &mut [Vec<f64>], row: usize, column: usize) {
    let factor = tableau[row][column];
    for element in &mut tableau[row] {
        *element /= factor;
    }
    let pivot_row = tableau[row].clone();
    for (_, other) in tableau.iter_mut().enumerate().filter(|(at, _)| *at != row) {
        let factor = other[column];
        if factor.abs() > 0.0 {
            for (element, pivot_element) in other.iter_mut().zip(&pivot_row) {
                *element -= factor * pivot_element;
            }
        }
    }
}
