//! Errors of the lab: an invalid trace, or an experiment that cannot be set up. Every message is
//! one plain sentence for the user.

use gabion_client::ClientError;
use gabion_flash::FlashError;
use gabion_layout::{GeometryError, TopologyError};
use gabion_planner::PlanError;
use gabion_store::StoreError;
use gabion_testbed::TestbedError;
use std::io;
use thiserror::Error;

/// Errors for which an experiment has no result.
#[derive(Debug, Error)]
pub enum LabError {
    /// A trace could not be opened or read.
    #[error("cannot {operation} the trace {trace}: {source}")]
    Io {
        /// The operation: `open` or `read`.
        operation: &'static str,
        /// The trace's name, usually its path.
        trace: String,
        /// The system's error.
        source: io::Error,
    },
    /// The compressed data of a trace cannot be decoded.
    #[error(
        "{trace}, line {line}: the {compression} data is damaged or cut off within the first {read_bytes} bytes of \
         the file; fetch the file again"
    )]
    DamagedTrace {
        /// The trace's name, usually its path.
        trace: String,
        /// The first line that cannot be read whole, counted from 1.
        line: u64,
        /// The compression.
        compression: &'static str,
        /// Bytes of the compressed file that were read until then.
        read_bytes: u64,
    },
    /// A row of a trace is malformed.
    #[error("{trace}, line {line}: {problem}")]
    Row {
        /// The trace's name, usually its path.
        trace: String,
        /// The row's line, counted from 1.
        line: u64,
        /// The problem.
        problem: RowProblem,
    },
    /// A trace has no requests, so nothing can be told of it.
    #[error("{trace}, line {line}: the trace has no requests")]
    EmptyTrace {
        /// The trace's name, usually its path.
        trace: String,
        /// Its last line, and 1 for a file of none.
        line: u64,
    },
    /// The first rows of a trace are of no format.
    #[error("{trace}, line 1: the row fits no trace format; the formats are {known}")]
    UnknownFormat {
        /// The trace's name, usually its path.
        trace: String,
        /// The names of the formats.
        known: String,
    },
    /// No trace format has this name.
    #[error("there is no trace format '{name}'; choose from {known}")]
    UnknownFormatName {
        /// The name asked for.
        name: String,
        /// The names of the formats.
        known: String,
    },
    /// A trace has several volumes and none was chosen.
    #[error("{trace}, line {line}: another volume begins here; choose one with --volume: {found}")]
    SeveralVolumes {
        /// The trace's name, usually its path.
        trace: String,
        /// The line of the second volume, counted from 1.
        line: u64,
        /// The names of the first volumes.
        found: String,
    },
    /// A trace lacks the chosen volume.
    #[error(
        "{trace}, line {line}: the trace ends without a request of volume '{volume}'; it has {found}"
    )]
    NoSuchVolume {
        /// The trace's name, usually its path.
        trace: String,
        /// Its last line.
        line: u64,
        /// The volume asked for.
        volume: String,
        /// The names of the first volumes.
        found: String,
    },
    /// No experiment has this id.
    #[error("there is no experiment '{id}'; choose from {known}")]
    UnknownExperiment {
        /// The id asked for.
        id: String,
        /// The registered ids.
        known: String,
    },
    /// A plot cannot be drawn.
    #[error("cannot draw the plot {name}: {why}")]
    Plot {
        /// The plot's name.
        name: String,
        /// The problem.
        why: String,
    },
    /// A file or directory of an experiment failed.
    #[error("cannot {operation} {path}: {source}")]
    File {
        /// The operation.
        operation: &'static str,
        /// The path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The stripe's nodes cannot be shared out evenly.
    #[error(
        "a stripe of {chunks} chunks cannot be spread evenly over {racks} racks; choose a number of \
         racks that divides {chunks}"
    )]
    UnevenRacks {
        /// Chunks of a stripe, `n`.
        chunks: usize,
        /// Racks asked for.
        racks: u32,
    },
    /// The stripe has no such data chunk.
    #[error("there is no data chunk {chunk}; {code} has data chunks 0 to {last}")]
    NoDataChunk {
        /// The chunk asked for.
        chunk: u8,
        /// The code.
        code: String,
        /// The last data chunk.
        last: usize,
    },
    /// The layout says nothing of racks and neither did the user.
    #[error("layout {layout} needs a number of racks that divides {chunks}")]
    RacksMissing {
        /// The layout.
        layout: String,
        /// Chunks of a stripe, `n`.
        chunks: usize,
    },
    /// The layout has its own racks, and the user asked for others.
    #[error("layout {layout} has {has} racks, not {asked}; omit the number of racks")]
    RacksDiffer {
        /// The layout.
        layout: String,
        /// Racks of the layout.
        has: u32,
        /// Racks asked for.
        asked: u32,
    },
    /// No update scheme has this name.
    #[error("there is no update scheme '{name}'; choose from {known}")]
    UnknownScheme {
        /// The name asked for.
        name: String,
        /// The registered names.
        known: String,
    },
    /// A trace has nothing that could be counted.
    #[error(
        "{trace}: none of its {requests} requests is a write, but only writes are counted; check that it is the right \
        file"
    )]
    NoWrites {
        /// The trace's name, usually its path.
        trace: String,
        /// Its requests.
        requests: u64,
    },
    /// A variant of the papers was to be counted in bytes.
    #[error(
        "{name} is a variant that no pool has and is counted only in chunks; choose --unit chunks, \
         or schemes of pools"
    )]
    ChunksOnly {
        /// The variant.
        name: &'static str,
    },
    /// No update scheme was asked for.
    #[error("no update scheme given; choose from {known}")]
    NoScheme {
        /// The registered names.
        known: String,
    },
    /// The chunk size is none that an experiment can count in.
    #[error("chunks of {chunk_bytes} bytes cannot be counted; use {least_bytes} to {most_bytes}")]
    ChunkBytes {
        /// The size asked for.
        chunk_bytes: u64,
        /// The least that is taken.
        least_bytes: u64,
        /// The most that is taken.
        most_bytes: u64,
    },
    /// The experiment needs clusters, but its caller starts none.
    #[error("this experiment runs clusters of real processes; run it with 'gabion lab run'")]
    NoClusters,
    /// A cluster of an experiment failed.
    #[error("a cluster of the experiment failed: {0}")]
    Cluster(String),
    /// The report of the measurement on HDFS is not what the lab expects.
    #[error(
        "the report of the measurement on HDFS cannot be read: {0}; use the directory hdfs of the sources that this \
        program was built from"
    )]
    HdfsReport(String),
    /// A cluster or testbed cannot be made, used or stopped.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A cluster encoded files in another way than the experiment asked for.
    #[error("the files were not encoded segment by segment")]
    NotBySegment,
    /// A store of an experiment failed.
    #[error("a store of the experiment failed: {0}")]
    Store(#[from] StoreError),
    /// A flash store of an experiment failed.
    #[error("a flash store of the experiment failed: {0}")]
    Flash(#[from] FlashError),
    /// The chunk size does not suit the code.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A cluster whose nodes form no topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A layout or update that no planner has a plan for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No request stream has the statistics asked for.
    #[error("no workload has these statistics: {0}")]
    Target(String),
    /// The file is too small for the workload's requests.
    #[error("a file of {file_bytes} bytes is too small for requests of {request_bytes} bytes")]
    FileTooSmall {
        /// Bytes of the file.
        file_bytes: u64,
        /// Bytes of the workload's largest request.
        request_bytes: u64,
    },
}

impl LabError {
    /// Whether the caller asked for something impossible, so that to try again is of no use.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::UnknownFormatName { .. }
            | Self::SeveralVolumes { .. }
            | Self::NoSuchVolume { .. }
            | Self::UnknownExperiment { .. }
            | Self::UnevenRacks { .. }
            | Self::NoDataChunk { .. }
            | Self::RacksMissing { .. }
            | Self::RacksDiffer { .. }
            | Self::UnknownScheme { .. }
            | Self::ChunksOnly { .. }
            | Self::NoScheme { .. }
            | Self::ChunkBytes { .. }
            | Self::Geometry(_)
            | Self::Plan(_)
            | Self::Target(_)
            | Self::FileTooSmall { .. } => true,
            Self::Testbed(error) => error.is_usage(),
            _ => false,
        }
    }
}

impl From<ClientError> for LabError {
    fn from(error: ClientError) -> Self {
        Self::Testbed(error.into())
    }
}

/// The problem of a row of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RowProblem {
    /// Too few or too many fields.
    #[error("{found} fields, but a row has {columns}")]
    FieldCount {
        /// Fields found.
        found: usize,
        /// The number of fields of a row, and their names.
        columns: &'static str,
    },
    /// A field that must be a time is not.
    #[error("the timestamp '{text}' is outside the range of a trace's times")]
    NotATime {
        /// The field's text, cut short.
        text: String,
    },
    /// A log of fio that does not begin with its version.
    #[error("a log of fio begins with 'fio version 2 iolog' or 'fio version 3 iolog'")]
    NoFioVersion,
    /// A size that must be whole sectors is not.
    #[error("the size {size_bytes} is not a multiple of 512 bytes")]
    PartOfSector {
        /// The size found.
        size_bytes: u64,
    },
    /// A field that must be a whole number is not.
    #[error("the {field} '{text}' is not a whole number below 2^64")]
    NotANumber {
        /// The field's name.
        field: &'static str,
        /// The field's text, cut short.
        text: String,
    },
    /// Neither a read nor a write.
    #[error("the type '{text}' is neither {read} nor {write}")]
    UnknownType {
        /// The field's text, cut short.
        text: String,
        /// The word for a read.
        read: &'static str,
        /// The word for a write.
        write: &'static str,
    },
    /// A request of no bytes.
    #[error("the size is 0; a request has at least one byte")]
    ZeroSize,
    /// A request larger than any disk takes at once.
    #[error("the size {size_bytes} exceeds {limit_bytes} bytes, the maximum of one request")]
    HugeSize {
        /// The size found.
        size_bytes: u64,
        /// The most that is taken.
        limit_bytes: u64,
    },
    /// The request ends past the last address.
    #[error("offset {offset_bytes} plus size {size_bytes} is past the last byte address, 2^64 - 1")]
    Overflow {
        /// The offset found.
        offset_bytes: u64,
        /// The size found.
        size_bytes: u64,
    },
    /// A line that is no row.
    #[error("the line is longer than {limit_bytes} bytes, so this is not a trace of requests")]
    LongLine {
        /// The most bytes that a line may have.
        limit_bytes: usize,
    },
    /// Bytes that are no text.
    #[error("the line is not text, so this is not a trace of requests")]
    NotText,
}
