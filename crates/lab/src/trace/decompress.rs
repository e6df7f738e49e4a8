//! The bytes of a trace, whatever it is compressed with: seen from its first bytes, not its name.

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// The first bytes of every gzip member.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// The first bytes of every bzip2 stream.
const BZIP2_MAGIC: &[u8] = b"BZh";
/// The first bytes of every Zstandard frame with contents.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Bytes that are text once they are read.
pub(super) type Text = Box<dyn BufRead + Send>;

/// Reads `bytes` decompressed. Files of several members, streams or frames are read to their end.
///
/// # Errors
/// When the first bytes cannot be read or begin a frame that is damaged.
pub(super) fn text(mut bytes: impl Read + Send + 'static) -> io::Result<Text> {
    let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
    let most = ZSTD_MAGIC.len() as u64;
    bytes.by_ref().take(most).read_to_end(&mut head)?;
    let is = |magic: &[u8]| head.starts_with(magic);
    let (is_gzip, is_bzip2, is_zstd) = (is(GZIP_MAGIC), is(BZIP2_MAGIC), is(ZSTD_MAGIC));
    let whole = BufReader::new(Cursor::new(head).chain(bytes));
    Ok(if is_gzip {
        Box::new(BufReader::new(MultiGzDecoder::new(whole)))
    } else if is_bzip2 {
        Box::new(BufReader::new(MultiBzDecoder::new(whole)))
    } else if is_zstd {
        let first = StreamingDecoder::new(whole).map_err(|_| damaged())?;
        Box::new(BufReader::new(Frames { frame: Some(first) }))
    } else {
        Box::new(whole)
    })
}

/// The error of an unreadable Zstandard frame. The decoder's own error does not tell the user what to do.
fn damaged() -> io::Error {
    let why = "its Zstandard data is damaged or cut off; fetch the file again";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The frames of a Zstandard file, one after another; `None` after the last.
struct Frames<R: Read> {
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(buffer).map_err(|_| damaged())?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some((mut rest, decoder)) = self.frame.take().map(StreamingDecoder::into_parts)
            else {
                break;
            };
            if !rest.fill_buf()?.is_empty() {
                let next = StreamingDecoder::new_with_decoder(rest, decoder);
                self.frame = Some(next.map_err(|_| damaged())?);
            }
        }
        Ok(0)
    }
}
