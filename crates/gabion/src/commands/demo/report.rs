//! Prints the demo's measurements.

use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, say, table};
use gabion_testbed::demo::{DatabaseStep, Repair, Report, Updates};

fn row(updates: &Updates, how: &str) -> [String; 5] {
    [
        format!("{} updates {how}, {}", updates.count, bytes(updates.bytes)),
        format!("{:.2} s", updates.seconds),
        format!("{:.0}/s", updates.count as f64 / updates.seconds),
        updates.planned_cross_rack_bytes.to_string(),
        updates.metered_cross_rack_bytes.to_string(),
    ]
}

fn chunk_s(repair: &Repair) -> f64 {
    repair.busy_s / repair.chunk_count.max(1) as f64
}

pub(super) fn print(report: &Report, format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        return print_json(report);
    }
    say(format!(
        "12 nodes in 3 racks, {} with {} chunks; links {}/s a node, {}/s a rack",
        report.code,
        bytes(report.chunk_bytes),
        bytes(report.node_bytes_per_s),
        bytes(report.rack_bytes_per_s)
    ));
    print_steps(report);
    print_forms(report);
    print_repairs(report);
    say(of_database(&report.database));
    say(format!(
        "every byte was compared after each step; the scrub verified {} on disk; every stripe survives {} more chunk \
        failures",
        bytes(report.scrubbed_bytes),
        report.failures_left
    ));
    Ok(())
}

fn of_database(step: &DatabaseStep) -> String {
    match step {
        DatabaseStep::Done(done) => format!(
            "a database on a mount committed {} transactions in {:.2} s while node {} was killed, the longest in \
            {:.0} ms; mounted anew, it has all {} rows",
            done.transaction_count, done.seconds, done.node, done.longest_commit_ms, done.row_count
        ),
        DatabaseStep::NotRun(why) => format!("the step with a database was skipped: {why}"),
    }
}

fn print_steps(report: &Report) {
    let rate = |seconds: f64| format!("{}/s", bytes((report.file_bytes as f64 / seconds) as u64));
    let mut steps = table(&["step", "time", "rate", "cross-rack planned", "metered"]);
    let none = String::new;
    let file = bytes(report.file_bytes);
    let step = |what: String, seconds: f64, rate: String| {
        [what, format!("{seconds:.2} s"), rate, none(), none()]
    };
    steps.add_row(step("start the cluster".to_owned(), report.start_s, none()));
    steps.add_row(step(
        format!("store {file}"),
        report.put_s,
        rate(report.put_s),
    ));
    steps.add_row(row(&report.updates, "in place"));
    for degraded in &report.degraded {
        let without = format!("without node {}", degraded.node);
        steps.add_row(row(&degraded.updates, &without));
        let what = format!(
            "read {file} without node {} ({} failures left)",
            degraded.node, degraded.failures_left
        );
        steps.add_row(step(what, degraded.seconds, rate(degraded.seconds)));
    }
    let last = format!("read {file} after repair");
    steps.add_row(step(last, report.final_read_s, rate(report.final_read_s)));
    align_numbers(&mut steps);
    println!("{steps}");
    let degraded = report.degraded.iter().map(|degraded| &degraded.updates);
    for updates in std::iter::once(&report.updates).chain(degraded) {
        say(format!(
            "updates: {}; latency p50 {:.2} ms, p99 {:.2} ms",
            updates.source, updates.p50_ms, updates.p99_ms
        ));
    }
}

fn print_forms(report: &Report) {
    let mut forms = table(&[
        "three replicas a block",
        "data",
        "time",
        "writes during it",
        "slowest",
        "restarted",
        "cross-rack data",
        "all planned",
        "metered",
    ]);
    for form in &report.forms {
        forms.add_row([
            form.name.clone(),
            bytes(form.bytes),
            format!("{:.2} s", form.seconds),
            form.write_count.to_string(),
            format!("{:.0} ms", form.slowest_write_ms),
            form.begun_anew_count.to_string(),
            form.data_cross_rack_bytes.to_string(),
            form.planned_cross_rack_bytes.to_string(),
            form.metered_cross_rack_bytes.to_string(),
        ]);
    }
    align_numbers(&mut forms);
    println!("{forms}");
    if report.forms.iter().any(|form| form.begun_anew_count > 0) {
        say(
            "the conversion of a segment restarts after a write to the segment; metered bytes include all attempts, \
            planned bytes only the successful ones",
        );
    }
}

fn print_repairs(report: &Report) {
    let limit_s = report.chunk_bytes as f64 / report.node_bytes_per_s.max(1) as f64;
    println!(
        "one {} chunk sent directly takes {:.1} ms (the link's own limit: {:.1} ms)",
        bytes(report.chunk_bytes),
        report.direct_send_s * 1e3,
        limit_s * 1e3
    );
    let mut repairs = table(&[
        "repair",
        "chunks",
        "time",
        "a chunk",
        "against direct send",
        "cross-rack planned",
        "metered",
    ]);
    for repair in &report.repairs {
        repairs.add_row([
            repair.scheme.clone(),
            repair.chunk_count.to_string(),
            format!("{:.2} s", repair.seconds),
            format!("{:.1} ms", chunk_s(repair) * 1e3),
            format!("{:.2}x", chunk_s(repair) / report.direct_send_s),
            repair.planned_cross_rack_bytes.to_string(),
            repair.metered_cross_rack_bytes.to_string(),
        ]);
    }
    align_numbers(&mut repairs);
    println!("{repairs}");
}
