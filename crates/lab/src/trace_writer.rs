//! Writes requests as rows in the form of the MSR Cambridge volumes, so that a made workload serves
//! wherever a trace does.

use crate::trace::{Request, RequestKind};
use std::io::{self, Write};

/// Writes rows, one a request. The writer should be buffered.
#[derive(Debug)]
pub struct TraceWriter<W> {
    sink: W,
}

impl<W: Write> TraceWriter<W> {
    /// A writer to `sink`.
    pub const fn new(sink: W) -> Self {
        Self { sink }
    }

    /// Writes one row. Host and disk together name the volume; the response time is 0, for nothing
    /// responded.
    ///
    /// # Errors
    /// The error of the sink.
    ///
    /// # Panics
    /// When the host's name has a comma or a line break, which would make another row of it.
    pub fn write(&mut self, host: &str, disk: u64, request: &Request) -> io::Result<()> {
        assert!(!host.contains([',', '\n', '\r']), "a name of one field");
        let kind = match request.kind {
            RequestKind::Read => "Read",
            RequestKind::Write => "Write",
        };
        let Request {
            at_ticks,
            offset_bytes,
            length_bytes,
            ..
        } = request;
        writeln!(
            self.sink,
            "{at_ticks},{host},{disk},{kind},{offset_bytes},{length_bytes},0"
        )
    }

    /// Gives back what the rows went to, not flushed.
    pub fn into_inner(self) -> W {
        self.sink
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceReader;
    use std::io::Cursor;

    #[test]
    fn what_is_written_is_read_back() {
        let requests = [
            Request {
                at_ticks: u64::MAX,
                kind: RequestKind::Write,
                offset_bytes: 7,
                length_bytes: 1 << 30,
            },
            Request {
                at_ticks: 0,
                kind: RequestKind::Read,
                offset_bytes: u64::MAX - 1,
                length_bytes: 1,
            },
        ];
        let mut writer = TraceWriter::new(Vec::new());
        for request in &requests {
            writer.write("host", 0, request).unwrap();
        }
        let rows = writer.into_inner();
        assert!(rows.starts_with(b"18446744073709551615,host,0,Write,7,1073741824,0\n"));
        let read: Vec<Request> = TraceReader::new("rows".to_owned(), Cursor::new(rows))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(read, requests);
    }
}
