//! Output of figures: tables for people, JSON for programs.
//!
//! This crate's [`println!`] and [`print!`] do not end the command. They keep the first failure of stdout, and the
//! command reports it at its end ([`written`]).

pub(crate) use gabion_testbed::bytes;

use crate::failure::{Context, Failure};
use clap::ValueEnum;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width};
use gabion_client::Progress;
pub(crate) use gabion_console::view::counted;
use gabion_meta::Limit;
use gabion_testbed::Unit;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

/// The failure of stdout, if it has failed.
static STDOUT_FAILURE: OnceLock<Failure> = OnceLock::new();

/// The standard macro of this name panics when stdout is full or closed; this one keeps that for
/// [`written`].
macro_rules! println {
    ($($text:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// The same as [`println!`] without an end of line.
macro_rules! print {
    ($($text:tt)*) => {
        $crate::output::print(format_args!($($text)*))
    };
}

/// The standard macro of this name panics when stderr fails; here that is ignored.
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::output::complain(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Writes to stderr, and ignores failures.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Writes to stdout, unless it has failed before.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    if STDOUT_FAILURE.get().is_none() {
        keep(io::stdout().write_fmt(text));
    }
}

/// Spaces around the text of a cell.
const CELL_PADDING: usize = 2;
/// Width of the output in columns.
const COLUMNS: usize = 100;

/// Prints a sentence, wrapped if it is long.
pub(crate) fn say(sentence: impl fmt::Display) {
    println!("{}", wrapped(&sentence.to_string(), 2));
}

/// Prints a sentence on standard error, wrapped if it is long.
pub(crate) fn remark(sentence: impl fmt::Display) {
    eprintln!("{}", wrapped(&sentence.to_string(), 2));
}

/// Prints a failure on standard error, wrapped if it is long. Each line of it is a sentence of its own.
pub(crate) fn say_failure(failure: impl fmt::Display) {
    for sentence in failure.to_string().lines() {
        let sentence = format!("gabion: {sentence}");
        eprintln!("{}", wrapped(&sentence, "gabion: ".len()));
    }
}

/// Breaks a sentence at spaces where a line would exceed 100 characters, and indents the following
/// lines. A longer word, such as a path, stays whole.
pub(crate) fn wrapped(sentence: &str, indent: usize) -> String {
    let mut lines = String::with_capacity(sentence.len());
    let mut column = 0;
    for (at, word) in sentence.split(' ').enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > COLUMNS {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if at > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

/// Breaks each line of a text as [`wrapped`] does.
pub(crate) fn wrapped_lines(text: &str, indent: usize) -> String {
    let lines = text.lines().map(|line| wrapped(line, indent) + "\n");
    lines.collect()
}

/// Whether stdout has accepted all output. A command that prints repeatedly calls this each time.
///
/// # Errors
/// One sentence when stdout is full; none when its reader has closed it.
pub(crate) fn written() -> Result<(), Failure> {
    if STDOUT_FAILURE.get().is_none() {
        keep(io::stdout().flush());
    }
    STDOUT_FAILURE.get().cloned().map_or(Ok(()), Err)
}

fn keep(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = STDOUT_FAILURE.set(write_failure(&"stdout", &error));
    }
}

/// The error of writing a command's output there.
pub(crate) fn write_failure(place: &dyn fmt::Display, error: &io::Error) -> Failure {
    if error.kind() == ErrorKind::BrokenPipe {
        Failure::reader_gone()
    } else {
        Failure::failed(format!("cannot write {place}: {error}"))
    }
}

/// Tables or JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences for people.
    #[default]
    Text,
    /// One JSON document on stdout, for programs.
    Json,
}

/// Prints a value as JSON, in one line.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).context("write the result as JSON")?;
    println!("{text}");
    Ok(())
}

/// The cells of a limit: the name, what is limited, the used part, the limit and the rest.
pub(crate) fn limit_row(
    name: &str,
    what: &str,
    (used, limit): (u64, Limit),
    unit: fn(u64) -> String,
) -> [String; 5] {
    let limit = limit.number();
    let left = limit.map(|limit| limit.saturating_sub(used));
    [
        name.to_owned(),
        what.to_owned(),
        unit(used),
        limit.map_or_else(|| "none".to_owned(), unit),
        left.map_or_else(String::new, unit),
    ]
}

/// A table with a heading; columns after the first are right-aligned if they hold numbers. Cells of
/// a table wider than 100 characters are wrapped.
pub(crate) fn table(heading: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS as u16)
        .set_header(heading.iter().copied());
    table
}

/// Right-aligns all columns but the first, and keeps words whole where the table's width allows it.
pub(crate) fn align_numbers(table: &mut Table) {
    keep_words_whole(table);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Makes each column at least as wide as its longest word, unless the table would be too wide.
fn keep_words_whole(table: &mut Table) {
    let rows: Vec<&Row> = table.header().into_iter().chain(table.row_iter()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (at, cell) in row.cell_iter().enumerate() {
            let content = cell.content();
            let longest = content.split_whitespace().map(|word| word.chars().count());
            let width = longest.max().unwrap_or(0) + CELL_PADDING;
            widths.resize(widths.len().max(at + 1), 0);
            widths[at] = widths[at].max(width);
        }
    }
    // A separator stands between columns.
    if widths.iter().sum::<usize>() + widths.len() > COLUMNS {
        return;
    }
    for (column, width) in table.column_iter_mut().zip(widths) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width as u16)));
    }
}

/// A progress bar on stderr, removed when dropped. It is drawn on terminals only.
pub(crate) struct Shown(ProgressBar);

impl Shown {
    /// Counts bytes.
    pub(crate) fn bytes(what: &str) -> Self {
        Self::with_template(
            what,
            0,
            "{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {elapsed}",
        )
    }

    /// Counts items.
    pub(crate) fn count(what: &str, total: u64) -> Self {
        Self::with_template(what, total, "{msg} {bar:40} {pos}/{len} {elapsed}")
    }

    /// Shows a step of a testbed.
    pub(crate) fn of(what: &str, unit: Unit) -> Box<dyn Progress> {
        Box::new(match unit {
            Unit::Bytes => Self::bytes(what),
            Unit::Items => Self::count(what, 0),
            Unit::Unknown => Self::spinner(what),
        })
    }

    /// A spinner, which turns until it is dropped.
    pub(crate) fn spinner(what: &str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let spinner = ProgressBar::new_spinner()
            .with_style(style)
            .with_message(what.to_owned());
        spinner.enable_steady_tick(Duration::from_millis(100));
        Self(spinner)
    }

    /// Counts one more item.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Sets the count and the total.
    pub(crate) fn set_of(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Sets the count.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Changes the text.
    pub(crate) fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn with_template(what: &str, total: u64, template: &str) -> Self {
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(
            ProgressBar::new(total)
                .with_style(style)
                .with_message(what.to_owned()),
        )
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Shown {
    fn advanced(&self, done_bytes: u64, total_bytes: u64) {
        self.0.set_length(total_bytes);
        self.0.set_position(done_bytes);
    }
}

/// A time as people read it: `41.7 h`, `12.0 min` or `3.5 s`.
pub(crate) fn time(seconds: f64) -> String {
    if seconds >= 3600.0 {
        format!("{:.1} h", seconds / 3600.0)
    } else if seconds >= 60.0 {
        format!("{:.1} min", seconds / 60.0)
    } else {
        format!("{seconds:.1} s")
    }
}

/// Reads a time in seconds: a number with a unit.
pub(crate) fn parse_seconds(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is not a time; write a number and a unit, such as 45s, 30m or 12h");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let value: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let factor = match text[digits..].trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(wrong()),
    };
    let seconds = value.checked_mul(factor);
    seconds.filter(|s| *s > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(parse_seconds("45s"), Ok(45));
        assert_eq!(parse_seconds("30 m"), Ok(1800));
        assert_eq!(parse_seconds("12h"), Ok(43200));
        assert_eq!(parse_seconds("2d"), Ok(172_800));
        for text in ["", "12", "0s", "h", "-1h", "1.5h", "99999999999999999d"] {
            assert!(parse_seconds(text).unwrap_err().contains("12h"), "{text}");
        }
    }

    #[test]
    fn long_sentences_are_broken_at_spaces() {
        let sentence = "word ".repeat(50);
        let broken = wrapped(sentence.trim_end(), 8);
        let lines: Vec<&str> = broken.lines().collect();
        assert_eq!(lines.len(), 3, "{broken}");
        assert_eq!(lines[0].len(), 99, "20 words and the spaces between them");
        assert!(
            lines[1..].iter().all(|line| line.starts_with("        w")),
            "{broken}"
        );
        assert!(
            lines.iter().all(|line| line.chars().count() <= COLUMNS),
            "{broken}"
        );
        assert_eq!(broken.replace("\n        ", " "), sentence.trim_end());
        let umlauts = "\u{fc}".repeat(COLUMNS);
        assert_eq!(wrapped(&umlauts, 8), umlauts, "characters count, not bytes");
        assert_eq!(wrapped_lines("a\n  b  c\n", 8), "a\n  b  c\n");
        let path = "/".repeat(COLUMNS + 1);
        assert_eq!(
            wrapped(&format!("read {path} now"), 2),
            format!("read\n  {path}\n  now")
        );
    }

    #[test]
    fn times_have_the_largest_unit_that_they_fill() {
        assert_eq!(time(150_000.0), "41.7 h");
        assert_eq!(time(720.0), "12.0 min");
        assert_eq!(time(0.25), "0.2 s");
    }

    #[test]
    fn tables_break_between_words() {
        let mut advice = table(&[
            "scheme",
            "code",
            "chunk",
            "across racks",
            "95 % of pools",
            "a byte written",
            "exposure",
            "longest wait",
            "loss",
            "stored a byte",
        ]);
        let row = [
            "baseline",
            "rs(6,3)",
            "64 KiB",
            "8.2 MiB",
            "7.9 MiB to 8.5 MiB",
            "3.00",
            "12.0 min",
            "1.0 h",
        ];
        advice.add_row(row.into_iter().chain(["1.23e-12", "1.50"]));
        align_numbers(&mut advice);
        let shown = advice.to_string();
        for word in ["exposure", "1.23e-12", "baseline", "longest"] {
            assert!(shown.contains(word), "{word} is broken:\n{shown}");
        }
        assert!(
            shown.lines().all(|line| line.chars().count() <= COLUMNS),
            "{shown}"
        );
    }
}
