//! `gabion lab synth`: generates a trace with the statistics of a known volume.

use super::trace_stats::gib;
use crate::arguments::SynthOptions;
use crate::failure::Failure;
use crate::output::{Format, Shown, align_numbers, bytes, print_json, say, table};
use crate::output_file::OutputFile;
use gabion_lab::stats::{Stats, StatsCount};
use gabion_lab::workload::{self, Class, FileCounts, HeldOut, Ratios, Target, VOLUMES, Workload};
use gabion_lab::{RequestKind, TraceWriter};
use serde_json::json;
use std::io::{self, BufWriter, Write as _};

/// Writes between two updates of the progress bar.
const SHOWN_EVERY: u64 = 4096;

/// The generated trace.
#[derive(Default)]
struct Made {
    stats: Stats,
    reads: u64,
    updates: u64,
    update_bytes: u64,
    files: FileCounts,
}

pub(super) fn run(options: &SynthOptions, format: Format) -> Result<(), Failure> {
    let volume = workload::volume(&options.volume).ok_or_else(|| {
        let known: Vec<&str> = VOLUMES.iter().map(|volume| volume.name).collect();
        let (name, known) = (&options.volume, known.join(", "));
        Failure::usage(format!(
            "there is no volume '{name}'; use harvard or one of {known}"
        ))
    })?;
    let mut target = volume.target.part(options.one_in);
    target.span_bytes = options.span.unwrap_or(target.span_bytes);
    let workload = Workload::new(target, options.seed).map_err(Failure::usage)?;
    let least = workload.least_span_bytes();
    if options.span.is_some_and(|span| span < least) {
        return Err(Failure::usage(format!(
            "the requests of {} span at least {}; choose a larger --span, or omit it",
            volume.name,
            bytes(least)
        )));
    }
    let output = OutputFile::create(&options.out)?;
    let made = write(&output, volume.name, &workload).map_err(|error| output.failure(&error))?;
    let is_stdout = output.is_stdout();
    output.finish()?;
    if is_stdout {
        return Ok(());
    }
    let figures = figures(&target, &made);
    if format == Format::Json {
        return print_as_json(options, &made, &figures, volume.class);
    }
    say(format!(
        "{}: {} writes and {} reads after {} ({}), seed {}",
        options.out.display(),
        made.stats.writes,
        made.reads,
        volume.name,
        volume.role,
        options.seed
    ));
    print(&figures);
    print_class(volume.class);
    Ok(())
}

/// Writes the rows. A volume's name consists of its host's name and its number, as in the traces; in a file server's
/// rows the number identifies the file.
fn write(output: &OutputFile, name: &str, workload: &Workload) -> io::Result<Made> {
    let (host, disk) = name.rsplit_once('_').unwrap_or((name, "0"));
    let disk = disk.parse().unwrap_or(0);
    let target = workload.target();
    let progress = Shown::count("making writes", target.writes);
    let mut rows = TraceWriter::new(BufWriter::new(output.file()));
    let mut made = Made::default();
    let mut count = StatsCount::default();
    let mut requests = workload.requests();
    let mut writes = 0;
    while let Some(request) = requests.next() {
        let is_update = count.add(&request) > 0;
        if is_update {
            made.updates += 1;
            made.update_bytes += request.length_bytes;
        }
        if request.kind == RequestKind::Read {
            made.reads += 1;
        } else {
            writes += 1;
            if writes % SHOWN_EVERY == 0 {
                progress.set(writes);
            }
        }
        let disk = match target.files {
            Some(_) => {
                made.files.add(requests.file(), &request, is_update);
                requests.file()
            }
            None => disk,
        };
        rows.write(host, disk, &request)?;
    }
    made.stats = count.stats();
    rows.into_inner().flush()?;
    Ok(made)
}

/// One figure, with its target and its result.
struct Figure {
    name: &'static str,
    json: &'static str,
    target: f64,
    made: f64,
    kind: Kind,
}

/// The unit of a figure. It determines the form of the figure and of its distance from the target.
#[derive(Clone, Copy)]
enum Kind {
    Count,
    Gib,
    Percent,
}

impl Kind {
    fn text(self, value: f64) -> String {
        match self {
            Self::Count => format!("{value:.0}"),
            Self::Gib => gib(value),
            Self::Percent => format!("{value:.2}%"),
        }
    }
}

impl Figure {
    /// The distance from the target: in points for shares, in per cent otherwise.
    fn off(&self) -> String {
        let off = self.made - self.target;
        match self.kind {
            Kind::Percent => format!("{off:+.3} points"),
            Kind::Count | Kind::Gib => format!("{:+.2}%", 100.0 * off / self.target),
        }
    }
}

fn figures(target: &Target, made: &Made) -> Vec<Figure> {
    let figure = |name, json, target, made, kind| Figure {
        name,
        json,
        target,
        made,
        kind,
    };
    let stats = &made.stats;
    let mut figures = vec![
        figure(
            "writes",
            "writes",
            target.writes as f64,
            stats.writes as f64,
            Kind::Count,
        ),
        figure(
            "working set",
            "working_set_gib",
            target.working_set_gib,
            stats.working_set_gib(),
            Kind::Gib,
        ),
        figure(
            "updated working set",
            "updated_working_set_pct",
            target.updated_working_set_pct,
            stats.updated_working_set_pct(),
            Kind::Percent,
        ),
        figure(
            "update writes",
            "update_writes_pct",
            target.update_writes_pct,
            stats.update_writes_pct(),
            Kind::Percent,
        ),
    ];
    if let Some(files) = target.files {
        let pct = |updated: u64, accessed: u64| 100.0 * updated as f64 / accessed.max(1) as f64;
        let (updated, accessed) = (made.files.updated(), made.files.accessed());
        figures.push(figure(
            "files accessed",
            "files_accessed",
            files.accessed as f64,
            accessed as f64,
            Kind::Count,
        ));
        figures.push(figure(
            "files updated",
            "files_updated_pct",
            pct(files.updated, files.accessed),
            pct(updated, accessed),
            Kind::Percent,
        ));
    }
    figures
}

fn print(figures: &[Figure]) {
    let mut table = table(&["figure", "target", "made", "off"]);
    for figure in figures {
        let text = |value| figure.kind.text(value);
        let (target, made) = (text(figure.target), text(figure.made));
        table.add_row([figure.name.to_owned(), target, made, figure.off()]);
    }
    align_numbers(&mut table);
    println!("{table}");
}

/// Prints the origin of sizes and offsets, and the distance between the class's stand-ins and real volumes.
fn print_class(class: Class) {
    say(class.text());
    let Some(errors) = class.held_out() else {
        return;
    };
    say(format!(
        "figures of stand-ins divided by those of held-out real volumes ({}):",
        errors.volumes.join(", ")
    ));
    let mut table = table(&["figure", "chunks", "least", "most"]);
    let mut add = |figure: &str, chunk_bytes: u64, ratios: Ratios| {
        let [least, most] = [ratios.least, ratios.most].map(|ratio| format!("{ratio:.2}"));
        table.add_row([figure.to_owned(), bytes(chunk_bytes), least, most]);
    };
    for (chunk_bytes, ratios) in HeldOut::CHUNKS_BYTES.into_iter().zip(errors.chunk_updates) {
        add("chunk updates", chunk_bytes, ratios);
    }
    for (chunk_bytes, ratios) in HeldOut::CHUNKS_BYTES.into_iter().zip(errors.baseline) {
        add("transfers of the baseline", chunk_bytes, ratios);
    }
    let [.., largest] = HeldOut::CHUNKS_BYTES;
    add("stripes in 1,000 writes", largest, errors.stripes);
    align_numbers(&mut table);
    println!("{table}");
}

fn print_as_json(
    options: &SynthOptions,
    made: &Made,
    figures: &[Figure],
    class: Class,
) -> Result<(), Failure> {
    let of = |value: fn(&Figure) -> f64| {
        let number = |figure: &Figure| match figure.kind {
            Kind::Count => json!(value(figure) as u64),
            Kind::Gib | Kind::Percent => json!(value(figure)),
        };
        let pairs = figures.iter().map(|f| (f.json.to_owned(), number(f)));
        pairs.collect::<serde_json::Map<_, _>>()
    };
    print_json(&json!({
        "out": options.out.display().to_string(),
        "volume": options.volume,
        "seed": options.seed,
        "one_in": options.one_in,
        "reads": made.reads,
        "updates": made.updates,
        "mean_update_bytes": made.update_bytes as f64 / made.updates.max(1) as f64,
        "class": class.text(),
        "held_out": class.held_out(),
        "target": of(|figure| figure.target),
        "made": of(|figure| figure.made),
    }))
}
