//! ECP-A2: the time of the search for a weighted path, and a check that it is exact (`ECPipe` section 4.3).

use super::bench::random_weights;
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Goal, Report, Session, Table, mean};
use crate::plot::Plot;
use gabion_layout::NodeId;
use gabion_planner::PlanError;
use gabion_planner::repair::{LinkWeights, weighted_path, weighted_path_by_extension};
use std::time::Instant;

pub(crate) const A2: Experiment = Experiment::new(
    "ECP-A2",
    "search for weighted paths: time and exactness (section 4.3)",
    run,
)
.once();

const ALGORITHM_2: &str = "algorithm 2";
/// The time that the paper prints of it, for (14,10).
const ALGORITHM_2_MS: f64 = 0.9;

/// One code's searches.
struct Searched {
    n: u32,
    k: usize,
    /// Of each weighting, in milliseconds.
    ours_ms: Vec<f64>,
    theirs_ms: Vec<f64>,
    /// Weightings whose best path was found otherwise too, and had the same slowest link.
    equal_count: u64,
    compared_count: u64,
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let rounds = session.scale.pick(50, 1000, 1000);
    let codes = [(9, 6), (10, 6), (14, 10), (16, 12), (20, 16)];
    let all = session.sweep("codes", codes, |(n, k)| search(n, k, rounds, session.seed))?;
    Ok(report(&all, rounds))
}

fn search(n: u32, k: usize, rounds: u64, seed: u64) -> Result<Searched, LabError> {
    let helpers: Vec<NodeId> = (0..n - 1).map(NodeId).collect();
    let requestor = NodeId(n - 1);
    let mut searched = Searched {
        n,
        k,
        ours_ms: Vec::new(),
        theirs_ms: Vec::new(),
        equal_count: 0,
        compared_count: 0,
    };
    for round in 0..rounds {
        let weights = random_weights(n, seed.wrapping_mul(1_000_003) + round);
        let begun = Instant::now();
        let ours = weighted_path(&helpers, requestor, k, &weights);
        searched.ours_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        let none = || PlanError::Layout("no path has weights".to_owned());
        let ours = Some(ours.ok_or_else(none)?.bottleneck);
        // Algorithm 2 takes long for wide codes; trying all paths, for any but the narrow.
        if n <= 14 {
            let begun = Instant::now();
            let theirs = weighted_path_by_extension(&helpers, requestor, k, &weights);
            searched.theirs_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            searched.compare(ours == theirs.map(|path| path.bottleneck));
        }
        if n <= 10 {
            searched.compare(ours == brute_force(&helpers, requestor, k, &weights));
        }
    }
    Ok(searched)
}

impl Searched {
    fn compare(&mut self, is_equal: bool) {
        self.compared_count += 1;
        self.equal_count += u64::from(is_equal);
    }
}

/// The least slowest link of all paths, every one of which is tried.
fn brute_force(
    helpers: &[NodeId],
    requestor: NodeId,
    k: usize,
    weights: &LinkWeights,
) -> Option<u64> {
    fn go_on(
        path: &mut Vec<NodeId>,
        slowest: u64,
        (helpers, requestor, k, weights): (&[NodeId], NodeId, usize, &LinkWeights),
    ) -> Option<u64> {
        let last = *path.last().expect("a path has begun");
        let to = |node| weights.get(&(last, node)).copied();
        if path.len() == k {
            return to(requestor).map(|weight| weight.max(slowest));
        }
        let mut best = None;
        for &node in helpers {
            if path.contains(&node) {
                continue;
            }
            let Some(weight) = to(node) else { continue };
            path.push(node);
            let found = go_on(path, slowest.max(weight), (helpers, requestor, k, weights));
            path.pop();
            best = [best, found].into_iter().flatten().min();
        }
        best
    }
    let starts = helpers.iter().map(|&start| {
        let all = (helpers, requestor, k, weights);
        go_on(&mut vec![start], 0, all)
    });
    starts.flatten().min()
}

fn report(all: &[Searched], rounds: u64) -> Report {
    let columns = [
        "(n,k)",
        "ours, mean ms",
        "ours, longest ms",
        "algorithm 2, mean ms",
        "comparisons",
        "equal",
    ];
    let mut table = Table::new(
        "Search for the path with the fastest slowest link",
        &columns,
    );
    let mut report = Report {
        setting: vec![format!(
            "{rounds} random weightings of all links among n hosts, one of which is the requestor; a path takes k \
             of the others"
        )],
        ..Report::default()
    };
    for searched in all {
        let Searched { n, k, .. } = searched;
        let ours = mean(&searched.ours_ms);
        let theirs = if searched.theirs_ms.is_empty() {
            "-".into()
        } else {
            mean(&searched.theirs_ms).into()
        };
        table.row([
            format!("({n},{k})").into(),
            ours.into(),
            searched.ours_ms.iter().copied().fold(0.0, f64::max).into(),
            theirs,
            searched.compared_count.into(),
            searched.equal_count.into(),
        ]);
        let (paper, goal_ms) = match n {
            14 => ("0.9 ms (Algorithm 2; brute force 27,000 ms)", 0.1),
            20 => ("-", 5.0),
            _ => continue,
        };
        let what = format!("({n},{k}): mean time of a search");
        report
            .findings
            .push(Finding::number(what.as_str(), ours, " ms", paper));
        let goal = Goal::at_most(what, ours, " ms", goal_ms);
        report
            .goals
            .push(goal.because("the goal applies to an optimised build on an idle machine"));
    }
    let sum = |of: fn(&Searched) -> u64| all.iter().map(of).sum::<u64>();
    let (equal, compared) = (sum(|s| s.equal_count), sum(|s| s.compared_count));
    let ours = format!("{equal} of {compared}");
    let what = "searches as good as Algorithm 2 and, up to (10,6), as all paths";
    report
        .findings
        .push(Finding::claim(what, ours, "exact", equal == compared));
    report.tables.push(table);
    report.plots.push(plot(all));
    report
}

fn plot(all: &[Searched]) -> Plot {
    let name = |searched: &Searched| format!("({},{})", searched.n, searched.k);
    let bars =
        |of: fn(&Searched) -> &[f64]| all.iter().map(|searched| mean(of(searched))).collect();
    let mut plot = Plot::bars(
        "ECP-A2",
        "Search for a weighted path",
        ["(n,k)", "milliseconds"],
        all.iter().map(name).collect(),
        vec![
            ("ours".to_owned(), bars(|s| &s.ours_ms)),
            (ALGORITHM_2.to_owned(), bars(|s| &s.theirs_ms)),
        ],
    );
    plot.mark_bar("(14,10)", ALGORITHM_2, ALGORITHM_2_MS);
    plot
}
