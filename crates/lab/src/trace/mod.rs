//! Streaming readers of block traces in the formats in which people have them, plain or compressed.
//!
//! They keep one line in memory, whatever the trace's length. They do not repair: a malformed row
//! ends the stream with an error that names the line. [`FORMATS`] lists the formats; each has a file
//! here that cites its description.

mod alibaba;
mod blkparse;
mod clock;
mod cloud_physics;
mod decompress;
mod disksim;
mod fio;
mod format;
mod msr;
mod reader;
mod request;
mod row;
mod rows;
mod srt;
mod systor;
mod tencent;
#[cfg(test)]
mod tests;

pub use clock::{TimeFault, Warning};
pub use format::{Descriptor, FORMATS, Format};
pub use reader::{TraceOptions, TraceReader, VolumeSummary, volumes};
pub use request::{Request, RequestKind};
