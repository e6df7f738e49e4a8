//! The formats of traces, one table of them, and how a file's format is found by its first rows.

use super::blkparse::Blkparse;
use super::fio::Fio;
use super::row::{Row, TICKS_A_MICROSECOND, TICKS_A_MILLISECOND, TICKS_A_SECOND};
use super::{alibaba, cloud_physics, disksim, msr, srt, systor, tencent};
use crate::error::{LabError, RowProblem};
use std::fmt;
use std::str::FromStr;

/// Rows by which a format is found.
const ROWS_LOOKED_AT: usize = 64;

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// MSR Cambridge.
    Msr,
    /// fio's I/O logs, versions 2 and 3.
    Fio,
    /// The text that blkparse prints of a blktrace.
    Blkparse,
    /// Alibaba's block traces.
    Alibaba,
    /// Tencent's block traces.
    Tencent,
    /// Systor '17.
    Systor,
    /// `CloudPhysics`, as text.
    CloudPhysics,
    /// `DiskSim`'s ASCII traces.
    DiskSim,
    /// HP's SRT traces, as text.
    Srt,
}

/// The description of a format, wherever formats are listed.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// The format.
    pub format: Format,
    /// The name that `--trace-format` takes.
    pub name: &'static str,
    /// Its rows.
    pub rows: &'static str,
    /// The source of its description.
    pub source: &'static str,
    /// The first line of files that have the names of the columns there.
    header: Option<&'static str>,
    /// Ticks of 100 ns in the unit in which its times are counted.
    pub(super) unit_ticks: u64,
}

/// All formats, in the order in which they are tried and listed.
pub const FORMATS: [Descriptor; 9] = [
    Descriptor {
        format: Format::Msr,
        name: "msr",
        rows: "timestamp,host,disk,Read|Write,offset,size,response",
        source: "readme of MSR Cambridge Traces, SNIA IOTTA",
        header: Some("timestamp,hostname,disknumber,type,offset,size,responsetime"),
        unit_ticks: 1,
    },
    Descriptor {
        format: Format::Fio,
        name: "fio",
        rows: "[microseconds] file action [offset length], after a line of fio's version",
        source: "fio's documentation, Trace file format; iolog.c",
        header: None,
        unit_ticks: TICKS_A_MICROSECOND,
    },
    Descriptor {
        format: Format::Blkparse,
        name: "blkparse",
        rows: "major,minor cpu sequence time pid action rwbs sector + sectors [process]",
        source: "blkparse(1), Output description and formatting",
        header: None,
        unit_ticks: TICKS_A_SECOND,
    },
    Descriptor {
        format: Format::Alibaba,
        name: "alibaba",
        rows: "device,R|W,offset,length,microseconds",
        source: "readme of the repository alibaba/block-traces",
        header: Some("device_id,opcode,offset,length,timestamp"),
        unit_ticks: TICKS_A_MICROSECOND,
    },
    Descriptor {
        format: Format::Tencent,
        name: "tencent",
        rows: "seconds,offset in sectors,sectors,0|1,volume",
        source: "readme of Tencent Block Storage, SNIA IOTTA",
        header: Some("timestamp,offset,size,iotype,volumeid"),
        unit_ticks: TICKS_A_SECOND,
    },
    Descriptor {
        format: Format::Systor,
        name: "systor17",
        rows: "seconds,response,R|W,LUN,offset,size",
        source: "readme of Systor '17 Traces, SNIA IOTTA",
        header: Some("timestamp,response,iotype,lun,offset,size"),
        unit_ticks: TICKS_A_SECOND,
    },
    Descriptor {
        format: Format::CloudPhysics,
        name: "cloudphysics",
        rows: "version,seconds,SCSI operation,size,sector",
        source: "data/trace.csv of the repository 1a1a11a/libCacheSim",
        header: Some("version,time,op,size,lbn"),
        unit_ticks: TICKS_A_SECOND,
    },
    Descriptor {
        format: Format::DiskSim,
        name: "disksim",
        rows: "milliseconds device sector sectors flags",
        source: "DiskSim 4.0 Reference Manual, CMU-PDL-08-101; disksim_iotrace.c",
        header: None,
        unit_ticks: TICKS_A_MILLISECOND,
    },
    Descriptor {
        format: Format::Srt,
        name: "srt",
        rows: "seconds start stop bytes R|W KiB device volume thread process",
        source: "dssrt2txt and srt2ds.cpp of the repository dataseries/DataSeries",
        header: None,
        unit_ticks: TICKS_A_MICROSECOND,
    },
];

impl Format {
    /// Its row of [`FORMATS`].
    #[must_use]
    pub fn descriptor(self) -> &'static Descriptor {
        FORMATS
            .iter()
            .find(|descriptor| descriptor.format == self)
            .unwrap_or(&FORMATS[0])
    }

    /// The names of all formats, separated by commas.
    #[must_use]
    pub fn names() -> String {
        FORMATS.map(|descriptor| descriptor.name).join(", ")
    }

    /// The format of which most of the first rows of a text are.
    pub(super) fn of(head: &str) -> Option<Self> {
        let readable = |descriptor: &&Descriptor| {
            let mut parser = Parser::new(descriptor.format, head);
            let rows = head.lines().take(ROWS_LOOKED_AT);
            rows.filter(|row| matches!(parser.row(row), Ok(Some(_))))
                .count()
        };
        if head.starts_with("fio version ") {
            return Some(Self::Fio);
        }
        // The first of those with the most, so that the order of the table decides.
        let best = FORMATS.iter().rev().max_by_key(readable)?;
        (readable(&best) > 0).then_some(best.format)
    }

    /// Whether a first line has the names of the format's columns.
    pub(super) fn is_header(self, line: &str) -> bool {
        let header = self.descriptor().header;
        header.is_some_and(|header| {
            let names = header.split(',');
            names.eq(line
                .trim()
                .split(',')
                .map(|name| name.trim().to_ascii_lowercase()))
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.descriptor().name)
    }
}

impl FromStr for Format {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        let found = FORMATS.iter().find(|descriptor| descriptor.name == name);
        found
            .map(|descriptor| descriptor.format)
            .ok_or_else(|| LabError::UnknownFormatName {
                name: name.to_owned(),
                known: Self::names(),
            })
    }
}

/// Reads the rows of one file. Some formats carry state from row to row.
#[derive(Debug)]
pub(super) enum Parser {
    Stateless(fn(&str) -> Result<Row<'_>, RowProblem>),
    Fio(Fio),
    Blkparse(Blkparse),
}

impl Parser {
    /// For a file that begins with `head`.
    pub(super) fn new(format: Format, head: &str) -> Self {
        match format {
            Format::Msr => Self::Stateless(msr::row),
            Format::Fio => Self::Fio(Fio::default()),
            Format::Blkparse => Self::Blkparse(Blkparse::new(head)),
            Format::Alibaba => Self::Stateless(alibaba::row),
            Format::Tencent => Self::Stateless(tencent::row),
            Format::Systor => Self::Stateless(systor::row),
            Format::CloudPhysics => Self::Stateless(cloud_physics::row),
            Format::DiskSim => Self::Stateless(disksim::row),
            Format::Srt => Self::Stateless(srt::row),
        }
    }

    pub(super) fn row<'a>(&mut self, row: &'a str) -> Result<Row<'a>, RowProblem> {
        match self {
            Self::Stateless(parse) => parse(row),
            Self::Fio(log) => log.row(row),
            Self::Blkparse(events) => events.row(row),
        }
    }
}
