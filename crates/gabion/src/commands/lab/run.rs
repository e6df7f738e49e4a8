//! `gabion lab list` and `gabion lab run`: experiments of the papers. The result is printed, and saved
//! with its plots.

use crate::arguments::{RunOptions, ScaleOption};
use crate::failure::{Context, Failure};
use crate::output::{Format, Shown, align_numbers, print_json, say, table, wrapped};
use crate::output_file::OutputFile;
use gabion_lab::clusters::{LocalClusters, end_clusters};
use gabion_lab::experiments::{
    self, Cell, Experiment, Finding, Goal, Progress, Report, Scale, Session, Tally,
};
use gabion_testbed::EndSignals;
use serde_json::{Value, json};
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Prints the available experiments.
pub(super) fn list(format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        let of = |e: &Experiment| json!({ "id": e.id, "title": e.title });
        return print_json(&experiments::registry().iter().map(of).collect::<Vec<_>>());
    }
    let mut table = table(&["experiment", "shows"]);
    for experiment in experiments::registry() {
        table.add_row([experiment.id, experiment.title]);
    }
    println!("{table}");
    Ok(())
}

/// Runs one experiment.
pub(super) async fn run(options: RunOptions, format: Format) -> Result<(), Failure> {
    let experiment = experiments::experiment(&options.id).map_err(Failure::usage)?;
    if let Some(traces) = options.traces.as_deref().filter(|traces| !traces.is_dir()) {
        return Err(Failure::usage(format!(
            "{} is not a directory; name one with traces, or omit --traces for synthetic workloads",
            traces.display()
        )));
    }
    // No signal ends this process before its working directory is removed.
    let signals = EndSignals::listen()?;
    let out = &options.out;
    fs::create_dir_all(out).context(format!("create {}", out.display()))?;
    let work = Work::create(out, experiment.id)?;
    let done = run_apart(experiment, options, work.0.clone(), signals).await;
    let removed = work.remove(done.is_err());
    let (json, report, saved) = done?;
    removed?;
    if format == Format::Json {
        return print_json(&json);
    }
    print(experiment, &report);
    print!("\n");
    say(in_one_line(&report));
    for path in saved {
        println!("saved {}", path.display());
    }
    Ok(())
}

/// Time for an interrupted experiment to stop its cluster.
const STOP_LIMIT: Duration = Duration::from_secs(30);

type Done = (Value, Report, Vec<PathBuf>);

/// Runs the experiment until it ends or a signal arrives. An experiment may compute for minutes, so it runs in a
/// thread of its own, which ends with the process. Its cluster or testbed is stopped first.
async fn run_apart(
    experiment: &'static Experiment,
    options: RunOptions,
    work: PathBuf,
    mut signals: EndSignals,
) -> Result<Done, Failure> {
    let (tell, mut done) = oneshot::channel();
    thread::spawn(move || {
        // An interrupted command takes no result.
        let _ = tell.send(run_here(experiment, &options, &work));
    });
    tokio::select! {
        done = &mut done => done.context("run the experiment")?,
        () = signals.recv() => {
            let why = if end_clusters(STOP_LIMIT).await {
                "interrupted; run the experiment again for its result"
            } else {
                "interrupted, but processes of its cluster still run; end those with '.work.' in their arguments"
            };
            Err(Failure::failed(why))
        }
    }
}

fn run_here(
    experiment: &'static Experiment,
    options: &RunOptions,
    work: &Path,
) -> Result<Done, Failure> {
    let out = &options.out;
    let shown = Steps(Mutex::new(None));
    let scale = match options.scale {
        ScaleOption::Quick => Scale::Quick,
        ScaleOption::Usual => Scale::Usual,
        ScaleOption::Full => Scale::Full,
    };
    let run_count = options.runs.unwrap_or_else(|| experiment.run_count(scale));
    let clusters = LocalClusters {
        hdfs: options.hdfs.clone(),
    };
    let session = |seed: u64| Session {
        scale,
        seed,
        directory: work,
        traces: options.traces.as_deref(),
        clusters: Some(&clusters),
        progress: &shown,
    };
    let begun = Instant::now();
    let seeds = (0..run_count).map(|run| options.seed.wrapping_add(run));
    let runs = seeds.map(|seed| (experiment.run)(&session(seed)));
    let runs: Result<Vec<Report>, _> = runs.collect();
    let report = Report::of_runs(runs.map_err(Failure::failed)?, experiment.is_one_enough);
    let seconds = begun.elapsed().as_secs_f64();
    drop(shown);
    let mut json = json!({
        "experiment": experiment.id,
        "title": experiment.title,
        "scale": format!("{:?}", options.scale).to_lowercase(),
        "seed": options.seed,
        "runs": run_count,
        "seconds": seconds,
        "verdict": report.verdict(),
        "tally": report.tally(),
    });
    let report_json = serde_json::to_value(&report).context("write the result as JSON")?;
    if let (Some(all), Value::Object(fields)) = (json.as_object_mut(), report_json) {
        all.extend(fields);
    }
    let saved = save(out, experiment.id, &json, &report)?;
    Ok((json, report, saved))
}

fn save(out: &Path, id: &str, json: &Value, report: &Report) -> Result<Vec<PathBuf>, Failure> {
    let text = serde_json::to_string_pretty(json).context("write the result as JSON")?;
    let mut files = vec![(format!("{id}.json"), text + "\n")];
    for plot in &report.plots {
        files.push((
            format!("{}.svg", plot.name),
            plot.svg().map_err(Failure::failed)?,
        ));
    }
    let mut saved = Vec::new();
    for (name, text) in files {
        let path = out.join(name);
        let output = OutputFile::create(&path)?;
        let written = output.file().write_all(text.as_bytes());
        written.map_err(|error| output.failure(&error))?;
        output.finish()?;
        saved.push(path);
    }
    Ok(saved)
}

/// The working directory of an experiment.
struct Work(PathBuf);

impl Work {
    fn create(out: &Path, id: &str) -> Result<Self, Failure> {
        let path = out.join(format!("{id}.work.{}", std::process::id()));
        fs::create_dir_all(&path).context(format!("create {}", path.display()))?;
        Ok(Self(path))
    }

    /// Removes it. An interrupted experiment runs until the process ends and may still make files, so the directory
    /// must be absent twice.
    fn remove(self, is_interrupted: bool) -> Result<(), Failure> {
        const ATTEMPT_COUNT: u32 = 20;
        const PAUSE: Duration = Duration::from_millis(100);
        let (mut removed, mut absent_count) = (Ok(()), 0);
        for _ in 0..ATTEMPT_COUNT {
            removed = match fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
            absent_count = if removed.is_ok() { absent_count + 1 } else { 0 };
            if absent_count > u32::from(is_interrupted) {
                break;
            }
            thread::sleep(PAUSE);
        }
        removed.context(format!("remove {}", self.0.display()))
    }
}

/// Shows an experiment's steps as successive progress bars.
struct Steps(Mutex<Option<Shown>>);

impl Progress for Steps {
    fn begin(&self, what: &str, step_count: u64) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The previous bar must be gone before the next is drawn.
        *shown = None;
        *shown = Some(Shown::count(what, step_count));
    }

    fn step(&self) {
        if let Some(shown) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            shown.step();
        }
    }
}

fn print(experiment: &Experiment, report: &Report) {
    println!("{}: {}", experiment.id, experiment.title);
    print_list("Setting", &report.setting);
    print_list("Not as in the paper", &report.scaled);
    for measured in &report.tables {
        let columns: Vec<&str> = measured.columns.iter().map(String::as_str).collect();
        let mut shown = table(&columns);
        for row in &measured.rows {
            shown.add_row(row.iter().map(Cell::text));
        }
        align_numbers(&mut shown);
        print!("\n");
        say(&measured.title);
        println!("{shown}");
    }
    if !report.findings.is_empty() {
        let mut shown = table(&["figure", "ours", "paper", "verdict"]);
        for finding in &report.findings {
            shown.add_row([
                finding.what.as_str(),
                &finding.ours,
                &finding.paper,
                &verdict(finding),
            ]);
        }
        println!("\nBeside the paper\n{shown}");
        for left_out in &report.left_out {
            println!("{}", wrapped(&format!("  left out: {left_out}"), 4));
        }
        for finding in &report.findings {
            if let Some(why) = &finding.why {
                println!("{}", wrapped(&format!("  {}: {why}", finding.what), 4));
            }
        }
    }
    for reading in &report.readings {
        print!("\n");
        say(format!(
            "The paper leaves a point open; the judged reading is {}: {}, because {}",
            reading.open, reading.chosen, reading.why
        ));
    }
    print_goals(&report.goals);
    print_list("Notes", &report.notes);
}

/// The verdict with the compared figures; empty for figures that are only shown. Figures of another reading of the
/// paper are marked.
fn verdict(finding: &Finding) -> String {
    let verdict = match (finding.verdict, &finding.tolerance) {
        (None, _) => return String::new(),
        (Some(verdict), None) => verdict.to_string(),
        (Some(verdict), Some(tolerance)) => format!("{verdict} ({tolerance})"),
    };
    match &finding.reading {
        Some(reading) => format!("not judged, {reading}: {verdict}"),
        None => verdict,
    }
}

/// The experiment's verdict, which is its worst finding's, and the numbers of findings behind it.
fn in_one_line(report: &Report) -> String {
    let Tally {
        near,
        direction_only,
        opposite,
        other_readings,
    } = report.tally();
    let Some(verdict) = report.verdict() else {
        let why = if report.goals.is_empty() {
            "no measurement here is comparable with the paper's figures"
        } else {
            "no paper prints figures for it"
        };
        return format!("Verdict: none, because {why}");
    };
    let others = match other_readings {
        0 => String::new(),
        count => format!("; {count} of other readings are not judged"),
    };
    format!(
        "Verdict: {verdict} ({near} near, {direction_only} direction only, {opposite} opposite{others})"
    )
}

fn print_goals(goals: &[Goal]) {
    if goals.is_empty() {
        return;
    }
    let mut shown = table(&["goal of this project", "ours", "goal", "met"]);
    for goal in goals {
        let is_met = if goal.is_met { "yes" } else { "no" };
        shown.add_row([goal.what.as_str(), &goal.ours, &goal.goal, is_met]);
    }
    println!("\nGoals\n{shown}");
    for goal in goals {
        if let Some(why) = &goal.why {
            println!("{}", wrapped(&format!("  {}: {why}", goal.what), 4));
        }
    }
}

fn print_list(title: &str, lines: &[String]) {
    if !lines.is_empty() {
        println!("\n{title}");
    }
    for line in lines {
        println!("{}", wrapped(&format!("  - {line}"), 4));
    }
}
