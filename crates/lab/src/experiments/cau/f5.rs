//! CAU-F5: data-loss probabilities of the append phase, figure 5 of CAU (section 3.5).

use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session, Table};
use crate::plot::{Chart, Plot};
use crate::reliability::{Counting, Model, Redundancy};

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "CAU-F5",
    "data loss against the length of the append phase",
    run,
)
.once();

/// The lines of the figure.
const LINES: [(&str, Redundancy); 3] = [
    ("CAU-0", Redundancy::Replicas(0)),
    ("CAU-1", Redundancy::Replicas(1)),
    ("baseline", Redundancy::Parity),
];
/// The paper's values of the last two lines at the figure's end.
const PRINTED: [f64; 2] = [9.83e-7, 2.24e-7];
/// The longest append phase of the figure, in hours.
const HOURS_MAX: u32 = 18;

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let model = Model::figure_5();
    let columns = [
        "hours",
        "CAU-0",
        "CAU-1",
        "baseline",
        "CAU-1, exact",
        "baseline, exact",
    ];
    let mut table = Table::new("Probability of data loss", &columns);
    let mut series = LINES.map(|(name, _)| (name.to_owned(), Vec::new()));
    session.sweep("computing hours", 0..=HOURS_MAX, |hours| {
        let loss = |redundancy, counting| model.loss(redundancy, f64::from(hours), counting);
        let printed = LINES.map(|(_, redundancy)| loss(redundancy, Counting::Paper));
        let exact = [1, 2].map(|at: usize| loss(LINES[at].1, Counting::Exact));
        for ((_, points), value) in series.iter_mut().zip(printed) {
            points.push((f64::from(hours), value));
        }
        let losses = printed.iter().chain(&exact);
        let cells = losses.map(|loss| format!("{loss:.2e}").into());
        table.row(std::iter::once(u64::from(hours).into()).chain(cells));
        Ok(())
    })?;
    let sentence = |text: &str| vec![text.to_owned()];
    let mut plot = Plot::new(
        "CAU-F5",
        "Data loss in the append phase",
        ["hours", "probability"],
        Chart::LogLines {
            series: series.to_vec(),
        },
    );
    for printed in PRINTED {
        plot.mark_point(f64::from(HOURS_MAX), printed);
    }
    Ok(Report {
        setting: sentence(
            "RS(6,3) on 3 racks of 3 nodes, parity in one of them; a node lives 10 years, a rack fails \
             with a probability of 0.0278 a year",
        ),
        scaled: sentence(
            "nothing; the paper prints a rack life of 36 years, but its figures follow from the probability, which \
            means 35.47 years",
        ),
        findings: findings(&model),
        tables: vec![table],
        notes: sentence(
            "the paper counts a rack's failure as survived only if no other failure occurs; the exact columns count \
            the surviving chunks",
        ),
        plots: vec![plot],
        ..Report::default()
    })
}

/// The paper's statement on the end of the figure.
fn findings(model: &Model) -> Vec<Finding> {
    let at_end =
        LINES.map(|(_, redundancy)| model.loss(redundancy, f64::from(HOURS_MAX), Counting::Paper));
    let printed = |at: usize| {
        let [ours, paper] = [at_end[at], PRINTED[at - 1]].map(|loss| format!("{loss:.2e}"));
        let is_same = ours == paper;
        let what = format!("{} at 18 h, to the printed digits", LINES[at].0);
        Finding::claim(what, ours, paper, is_same)
    };
    let is_highest = at_end[0] > at_end[1] && at_end[0] > at_end[2];
    let ours = if is_highest {
        "is highest"
    } else {
        "is not highest"
    };
    vec![
        printed(1),
        printed(2),
        Finding::claim("CAU-0", ours, "is highest", is_highest),
    ]
}
