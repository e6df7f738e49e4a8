//! Reads the requests of one volume of a trace.

use super::clock::{Clock, Warning};
use super::format::Format;
use super::request::{Request, RequestKind};
use super::row::VolumeName;
use super::rows::Rows;
use crate::error::LabError;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Names of volumes that an error lists.
const LISTED_VOLUMES: usize = 12;
/// Rows that are read to list them.
const LISTED_ROWS: u32 = 1_000_000;

/// The options with which a trace is read.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Its format; found by the first rows if not given.
    pub format: Option<Format>,
    /// The volume whose requests are read; required of a file that has several.
    pub volume: Option<String>,
    /// Told once of each fault of the times.
    pub warn: fn(&Warning),
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            format: None,
            volume: None,
            warn: |_| {},
        }
    }
}

/// One volume of a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VolumeSummary {
    /// Its requests.
    pub requests: u64,
    /// Those that write.
    pub writes: u64,
    /// One past its last byte that is read or written.
    pub span_bytes: u64,
}

/// Reads requests from a trace, one after another. After the first error the stream is over.
pub struct TraceReader {
    rows: Rows,
    clock: Clock,
    options: TraceOptions,
    /// The volume of the requests so far.
    volume: Option<String>,
    /// Other volumes, the first few.
    others: BTreeSet<String>,
    is_over: bool,
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("name", &self.rows.name)
            .field("format", &self.rows.format)
            .field("line_count", &self.rows.line_count)
            .finish_non_exhaustive()
    }
}

impl TraceReader {
    /// Opens a trace of one volume. Compression and format are seen from its bytes, not its name.
    ///
    /// # Errors
    /// [`LabError::Io`] when the file cannot be opened or its first bytes cannot be read,
    /// [`LabError::DamagedTrace`] when they cannot be decompressed, [`LabError::EmptyTrace`] when it is empty,
    /// [`LabError::UnknownFormat`] when no format has such rows.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        Self::open_with(path, &TraceOptions::default())
    }

    /// Opens a trace, as [`TraceReader::open`] does, with options.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn open_with(path: &Path, options: &TraceOptions) -> Result<Self, LabError> {
        let (trace, file) = file(path)?;
        Self::with(trace, file, options)
    }

    /// Reads a trace from bytes that come from anywhere; errors call it `name`.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn new(name: String, bytes: impl Read + Send + 'static) -> Result<Self, LabError> {
        Self::with(name, bytes, &TraceOptions::default())
    }

    /// Reads a trace, as [`TraceReader::new`] does, with options.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn with(
        name: String,
        bytes: impl Read + Send + 'static,
        options: &TraceOptions,
    ) -> Result<Self, LabError> {
        Ok(Self {
            rows: Rows::new(name, bytes, options.format)?,
            clock: Clock::default(),
            options: options.clone(),
            volume: None,
            others: BTreeSet::new(),
            is_over: false,
        })
    }

    /// The format of the file.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.rows.format
    }

    fn read_request(&mut self) -> Result<Option<Request>, LabError> {
        loop {
            let (chosen, volume, others) =
                (&self.options.volume, &mut self.volume, &mut self.others);
            let found = self.rows.next(|name, request| {
                let is_ours = is_ours(chosen.as_deref(), volume, others, name);
                (is_ours, request)
            })?;
            match found {
                None if self.volume.is_some() => return Ok(None),
                None => return Err(self.nothing()),
                Some((true, request)) => {
                    self.watch(request.at_ticks);
                    return Ok(Some(request));
                }
                Some((false, _)) if self.options.volume.is_none() => return Err(self.several()),
                Some((false, _)) => {}
            }
        }
    }

    fn watch(&mut self, at_ticks: u64) {
        let unit_ticks = self.rows.format.descriptor().unit_ticks;
        let is_coarse = matches!(self.rows.format, Format::Tencent | Format::CloudPhysics);
        if let Some(fault) = self.clock.passes(at_ticks, unit_ticks, is_coarse) {
            (self.options.warn)(&Warning {
                trace: self.rows.name.clone(),
                line: self.rows.line_count,
                fault,
            });
        }
    }

    /// The error of a stream without requests.
    fn nothing(&self) -> LabError {
        let trace = self.rows.name.clone();
        // The line read last is the end, after the last line.
        let line = (self.rows.line_count - 1).max(1);
        match &self.options.volume {
            Some(volume) if !self.others.is_empty() => LabError::NoSuchVolume {
                trace,
                line,
                volume: volume.clone(),
                found: listed(&self.others),
            },
            _ => LabError::EmptyTrace { trace, line },
        }
    }

    /// The error of a second volume where none was chosen, with the names of those that follow.
    fn several(&mut self) -> LabError {
        let line = self.rows.line_count;
        self.others.extend(self.volume.take());
        for _ in 0..LISTED_ROWS {
            let others = &mut self.others;
            let next = self.rows.next(|name, _| note(others, name));
            if !matches!(next, Ok(Some(()))) || self.others.len() > LISTED_VOLUMES {
                break;
            }
        }
        LabError::SeveralVolumes {
            trace: self.rows.name.clone(),
            line,
            found: listed(&self.others),
        }
    }
}

impl Iterator for TraceReader {
    type Item = Result<Request, LabError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let request = self.read_request().transpose();
        self.is_over = !matches!(request, Some(Ok(_)));
        request
    }
}

/// The volumes of a trace, by name.
///
/// # Errors
/// As [`TraceReader::open`], and [`LabError::Row`] for a malformed row and [`LabError::DamagedTrace`] for data behind
/// it that cannot be decompressed.
pub fn volumes(
    path: &Path,
    format: Option<Format>,
) -> Result<BTreeMap<String, VolumeSummary>, LabError> {
    let (trace, file) = file(path)?;
    let mut rows = Rows::new(trace, file, format)?;
    let mut found: BTreeMap<String, VolumeSummary> = BTreeMap::new();
    let mut count = |name: VolumeName<'_>, request: Request| {
        let volume = found.entry(name.text()).or_default();
        volume.requests += 1;
        volume.writes += u64::from(request.kind == RequestKind::Write);
        volume.span_bytes = volume.span_bytes.max(request.end_bytes());
    };
    while rows.next(&mut count)?.is_some() {}
    Ok(found)
}

fn file(path: &Path) -> Result<(String, File), LabError> {
    let trace = path.display().to_string();
    match File::open(path) {
        Ok(file) => Ok((trace, file)),
        Err(source) => Err(LabError::Io {
            operation: "open",
            trace,
            source,
        }),
    }
}

/// Whether a request's volume is the one that is read: the chosen one, or that of the first request.
fn is_ours(
    chosen: Option<&str>,
    volume: &mut Option<String>,
    others: &mut BTreeSet<String>,
    name: VolumeName<'_>,
) -> bool {
    let is_ours = match volume.as_deref().or(chosen) {
        Some(ours) => name.is(ours),
        None => true,
    };
    if !is_ours {
        note(others, name);
    } else if volume.is_none() {
        *volume = Some(name.text());
    }
    is_ours
}

/// Keeps a name for an error, unless there are enough.
fn note(others: &mut BTreeSet<String>, name: VolumeName<'_>) {
    if others.len() <= LISTED_VOLUMES && !others.iter().any(|other| name.is(other)) {
        others.insert(name.text());
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names
        .iter()
        .take(LISTED_VOLUMES)
        .map(String::as_str)
        .collect();
    let more = if names.len() > LISTED_VOLUMES {
        ", ..."
    } else {
        ""
    };
    format!("{}{more}", first.join(", "))
}
