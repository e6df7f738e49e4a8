//! Runs a valid request on a device.

use crate::device::{Device, DeviceError};
use crate::message::{Answer, Command, Context, Errno, Part};
use bytes::{Bytes, BytesMut};

/// Most extents in the reply to one request for states.
const DESCRIPTOR_COUNT_MAX: usize = 4096;

/// Runs a request. `payload` has the bytes of a write, and `contexts` are those that the client has selected.
pub(crate) async fn execute(
    device: &dyn Device,
    command: Command,
    payload: Bytes,
    contexts: &[Context],
) -> Answer {
    let answered = match command {
        Command::Read { range, is_whole } => read(device, range, is_whole).await,
        Command::Write { range } if range.is_empty() => Ok(Answer::Done),
        Command::Write { range } => done(device.write(range.offset, payload).await),
        // An acknowledged write is durable already, and there is no cache to fill.
        Command::Disconnect | Command::Flush | Command::Cache { .. } => Ok(Answer::Done),
        Command::Trim { range } | Command::Zero { range, .. } if range.is_empty() => {
            Ok(Answer::Done)
        }
        Command::Trim { range } => done(device.trim(range).await),
        Command::Zero {
            range,
            keeps_space,
            is_fast,
        } => {
            if is_fast && (keeps_space || !device.zeroes_fast(range)) {
                let errno = Errno::NotSupported;
                return Answer::Failed(errno, errno.sentence().to_owned());
            }
            done(device.zero(range, keeps_space).await)
        }
        Command::Status { range, is_one } => {
            let count_max = if is_one { 1 } else { DESCRIPTOR_COUNT_MAX };
            let mut all = Vec::with_capacity(contexts.len());
            for &context in contexts {
                match device.status(context, range, count_max).await {
                    Ok(descriptors) => all.push((context.id(), descriptors)),
                    Err(error) => return failed(error),
                }
            }
            Ok(Answer::Status(all))
        }
    };
    answered.unwrap_or_else(failed)
}

fn done(result: Result<(), DeviceError>) -> Result<Answer, DeviceError> {
    result.map(|()| Answer::Done)
}

fn failed(error: DeviceError) -> Answer {
    Answer::Failed(error.errno, error.sentence)
}

async fn read(
    device: &dyn Device,
    range: gabion_layout::ByteRange,
    is_whole: bool,
) -> Result<Answer, DeviceError> {
    if range.is_empty() {
        return Ok(Answer::Content(Vec::new()));
    }
    let parts = device.read(range).await?;
    let read_bytes: u64 = parts.iter().map(Part::length).sum();
    assert_eq!(read_bytes, range.length, "a device gives all bytes");
    if !is_whole || parts.len() == 1 {
        return Ok(Answer::Content(parts));
    }
    let mut whole = BytesMut::with_capacity(range.length as usize);
    for part in parts {
        match part {
            Part::Bytes(bytes) => whole.extend_from_slice(&bytes),
            Part::Hole(length) => whole.resize(whole.len() + length as usize, 0),
        }
    }
    Ok(Answer::Content(vec![Part::Bytes(whole.freeze())]))
}
