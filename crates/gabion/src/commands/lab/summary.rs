//! `gabion lab summary`: the verdicts of all experiments whose results were saved, as a table for `docs/lab.md`.

use crate::arguments::SummaryOptions;
use crate::failure::{Context, Failure};
use crate::output::{Format, print_json};
use gabion_lab::experiments::{Experiment, registry};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Runs with a column in the table.
const RUN_COLUMNS: usize = 3;

/// One experiment's row.
#[derive(Serialize)]
struct Row {
    experiment: &'static str,
    /// The scale of the runs; `None` if it was not run.
    scale: Option<String>,
    /// The first run's seed; each further run has the next one.
    seed: Option<u64>,
    /// Findings near, direction only and opposite of each run; `None` if it was not run.
    runs: Vec<String>,
    verdict: String,
    seconds: Option<u64>,
    cause: String,
}

impl Row {
    /// The scale and the seed, unless these are the ones that `gabion lab run` has without options.
    fn setting(&self) -> String {
        match (self.scale.as_deref(), self.seed) {
            (None | Some("usual"), None | Some(1)) => String::new(),
            (scale, seed) => {
                let scale = scale.unwrap_or("usual");
                format!(" ({scale}, seeds from {})", seed.unwrap_or(1))
            }
        }
    }
}

/// Prints the table.
pub(super) fn run(options: &SummaryOptions, format: Format) -> Result<(), Failure> {
    if !options.from.is_dir() {
        return Err(Failure::usage(format!(
            "there is no directory {}; choose one with results of 'gabion lab run' by --from",
            options.from.display()
        )));
    }
    let rows: Result<Vec<Row>, Failure> = registry()
        .iter()
        .map(|experiment| row(experiment, &options.from))
        .collect();
    let rows = rows?;
    if format == Format::Json {
        return print_json(&rows);
    }
    println!("| experiment | run 1 | run 2 | run 3 | verdict | seconds | cause |");
    println!("|---|---|---|---|---|---|---|");
    for row in rows {
        let run = |at: usize| row.runs.get(at).map_or("", String::as_str);
        let seconds = row.seconds.map_or(String::new(), |s| s.to_string());
        println!(
            "| `{}`{} | {} | {} | {} | {} | {seconds} | {} |",
            row.experiment,
            row.setting(),
            run(0),
            run(1),
            run(2),
            row.verdict,
            row.cause
        );
    }
    Ok(())
}

fn row(experiment: &Experiment, directory: &Path) -> Result<Row, Failure> {
    let path = directory.join(format!("{}.json", experiment.id));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(not_run(experiment)),
        Err(error) => return Err(error).context(format!("read {}", path.display())),
    };
    let result: Value =
        serde_json::from_str(&text).context(format!("read {} as JSON", path.display()))?;
    let runs: Vec<String> = list(&result, "by_run").iter().map(tally).collect();
    let runs = match runs.as_slice() {
        [one] if experiment.is_one_enough => {
            vec![one.clone(), "the same".to_owned(), "the same".to_owned()]
        }
        _ => runs.into_iter().take(RUN_COLUMNS).collect(),
    };
    Ok(Row {
        experiment: experiment.id,
        scale: result["scale"].as_str().map(str::to_owned),
        seed: result["seed"].as_u64(),
        runs,
        verdict: verdict(&result),
        seconds: result["seconds"].as_f64().map(|s| s.ceil() as u64),
        cause: cause(&result),
    })
}

fn not_run(experiment: &Experiment) -> Row {
    let why = if experiment.needs_testbed {
        "not run here: needs root and a testbed"
    } else {
        "not run here"
    };
    Row {
        experiment: experiment.id,
        scale: None,
        seed: None,
        runs: Vec::new(),
        verdict: why.to_owned(),
        seconds: None,
        cause: String::new(),
    }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn tally(run: &Value) -> String {
    let count = |field: &str| run[field].as_u64().unwrap_or(0);
    format!(
        "{}/{}/{}",
        count("near"),
        count("direction_only"),
        count("opposite")
    )
}

/// The verdict of the runs' means; without figures in a paper, the number of goals met.
fn verdict(result: &Value) -> String {
    if let Some(verdict) = result["verdict"].as_str() {
        return verdict.replace('-', " ");
    }
    let goals = list(result, "goals");
    let met = goals.iter().filter(|goal| goal["is_met"] == true).count();
    format!("none; goals met: {met} of {}", goals.len())
}

/// The reasons of all judged findings that are not near, each once. Findings without one are named together: no
/// experiment has found their cause.
fn cause(result: &Value) -> String {
    let mut causes: Vec<String> = Vec::new();
    let mut unexplained: Vec<&str> = Vec::new();
    for finding in list(result, "findings") {
        let is_judged = finding["reading"].is_null() && finding["verdict"].is_string();
        if !is_judged || finding["verdict"] == "near" {
            continue;
        }
        match finding["why"].as_str() {
            Some(why) if !causes.iter().any(|cause| cause == why) => causes.push(why.to_owned()),
            Some(_) => {}
            None => unexplained.extend(finding["what"].as_str()),
        }
    }
    if !unexplained.is_empty() {
        causes.push(format!("cause not found ({})", unexplained.join(", ")));
    }
    causes.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(findings: &Value, expected: &str) {
        assert_eq!(cause(&json!({ "findings": findings })), expected);
    }

    #[test]
    fn misses_without_a_cause_are_named() {
        let finding = |what: &str, verdict: &str, why: Option<&str>| json!({"what": what, "verdict": verdict, "why": why});
        let near = finding("a", "near", None);
        let explained = finding("b", "opposite", Some("links"));
        let again = finding("c", "direction-only", Some("links"));
        let [first, second] = ["d", "e"].map(|what| finding(what, "direction-only", None));
        let other = json!({"what": "f", "verdict": "opposite", "reading": "another disk"});
        let unjudged = json!({"what": "g", "verdict": null});
        check(&json!([near, other, unjudged]), "");
        check(&json!([near, explained, again, other]), "links");
        check(&json!([first, near, second]), "cause not found (d, e)");
        check(
            &json!([explained, first, again]),
            "links; cause not found (d)",
        );
    }
}
