//! The bytes of a trace, whatever it is compressed with: seen from its first bytes, not its name. Compressed data that
//! cannot be decoded is told apart from a file that cannot be read.

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thiserror::Error;

/// The first bytes of every gzip member.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// The first bytes of every bzip2 stream.
const BZIP2_MAGIC: &[u8] = b"BZh";
/// The first bytes of every Zstandard frame with contents.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Bytes that are text once they are read.
pub(super) type Text = Box<dyn BufRead + Send>;

/// Compressed data that cannot be decoded; it is inside an [`io::Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the {compression} data is damaged or cut off within the first {read_bytes} bytes")]
pub(super) struct Damage {
    pub(super) compression: &'static str,
    /// Bytes of the file that were read until then.
    pub(super) read_bytes: u64,
}

impl Damage {
    /// The damage that an error stands for; none if the file itself could not be read.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Reads `bytes` decompressed. Files of several members, streams or frames are read to their end.
///
/// # Errors
/// When the first bytes cannot be read or begin a frame that is damaged. This and later errors have a [`Damage`] inside
/// if the file can be read but not decoded.
pub(super) fn text(mut bytes: impl Read + Send + 'static) -> io::Result<Text> {
    let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
    let most = ZSTD_MAGIC.len() as u64;
    bytes.by_ref().take(most).read_to_end(&mut head)?;
    let is = |magic: &[u8]| head.starts_with(magic);
    let (is_gzip, is_bzip2, is_zstd) = (is(GZIP_MAGIC), is(BZIP2_MAGIC), is(ZSTD_MAGIC));
    let source = Arc::new(Source::default());
    let counted = Counted {
        bytes: Cursor::new(head).chain(bytes),
        source: Arc::clone(&source),
    };
    let whole = BufReader::new(counted);
    Ok(if is_gzip {
        Decoded::boxed(MultiGzDecoder::new(whole), "gzip", source)
    } else if is_bzip2 {
        Decoded::boxed(MultiBzDecoder::new(whole), "bzip2", source)
    } else if is_zstd {
        let compression = "Zstandard";
        let first = StreamingDecoder::new(whole);
        let first = first.map_err(|error| source.error(io::Error::other(error), compression))?;
        Decoded::boxed(Frames { frame: Some(first) }, compression, source)
    } else {
        Box::new(whole)
    })
}

/// The state of a compressed file that is read.
#[derive(Debug, Default)]
struct Source {
    read_bytes: AtomicU64,
    is_unreadable: AtomicBool,
}

impl Source {
    /// The error of a decoder: the file's own, or damage.
    fn error(&self, error: io::Error, compression: &'static str) -> io::Error {
        if self.is_unreadable.load(Ordering::Relaxed) {
            return error;
        }
        let damage = Damage {
            compression,
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
        };
        io::Error::new(io::ErrorKind::InvalidData, damage)
    }
}

/// The bytes of the file, counted.
struct Counted<R> {
    bytes: R,
    source: Arc<Source>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer);
        match &read {
            Ok(count) => {
                let count = *count as u64;
                self.source.read_bytes.fetch_add(count, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.source.is_unreadable.store(true, Ordering::Relaxed),
        }
        read
    }
}

/// A decoder whose errors are those of the file, or damage.
struct Decoded<R> {
    decoder: R,
    compression: &'static str,
    source: Arc<Source>,
}

impl<R: Read + Send + 'static> Decoded<R> {
    fn boxed(decoder: R, compression: &'static str, source: Arc<Source>) -> Text {
        Box::new(BufReader::new(Self {
            decoder,
            compression,
            source,
        }))
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted {
                error
            } else {
                self.source.error(error, self.compression)
            }
        })
    }
}

/// The frames of a Zstandard file, one after another; `None` after the last.
struct Frames<R: Read> {
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some((mut rest, decoder)) = self.frame.take().map(StreamingDecoder::into_parts)
            else {
                break;
            };
            // The decoder compares nothing by itself. A frame may have no checksum.
            let stored = decoder.get_checksum_from_data();
            if stored.is_some() && stored != decoder.get_calculated_checksum() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if !rest.fill_buf()?.is_empty() {
                let next = StreamingDecoder::new_with_decoder(rest, decoder);
                self.frame = Some(next.map_err(io::Error::other)?);
            }
        }
        Ok(0)
    }
}
