//! Messages of hostile peers. A correct process sends none of them: they are those of correct processes with changed
//! fields, so they name real runs, stripes and terms. The receivers may refuse them or carry them out, but not panic.

use crate::dice::Dice;
use crate::parties::{Reply, Request, Slot};
use bytes::{Bytes, BytesMut};
use gabion_plan::ValueId;
use gabion_protocol::message::{Flow, Purpose, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Numbers that are often at the border of what a receiver expects.
const NUMBERS: [u64; 20] = [
    0,
    1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    4096,
    65_535,
    65_536,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];
/// Changes that are tried until one has a meaning.
const TRY_COUNT: usize = 8;
/// Most fields lie in the first bytes of a message.
const HEAD_BYTES: usize = 64;
/// The most bytes that are copied to another place of a message.
const PIECE_BYTES: u64 = 24;

/// The hostile peers of a run.
pub(crate) struct Hostility {
    node_count: usize,
    peers: Peers,
    /// One message in this many is followed by an altered one, or replaced by it.
    one_in: u64,
    altered_count: u64,
}

/// Which peers are hostile.
#[derive(Clone, Copy)]
enum Peers {
    All,
    Coordinator,
    Nodes,
    Clients,
}

impl Hostility {
    pub(crate) fn draw(node_count: usize, dice: &mut Dice) -> Self {
        let all = [Peers::All, Peers::Coordinator, Peers::Nodes, Peers::Clients];
        Self {
            node_count,
            peers: *dice.pick(&all),
            // With few altered messages, the cluster works for longer.
            one_in: *dice.pick(&[3, 30, 300]),
            altered_count: 0,
        }
    }

    pub(crate) fn altered_count(&self) -> u64 {
        self.altered_count
    }

    /// An altered message, if the machine is hostile and it is time for one.
    pub(crate) fn alter<T>(
        &mut self,
        Slot(from): Slot,
        alter: impl FnOnce(&mut Dice) -> Option<T>,
        dice: &mut Dice,
    ) -> Option<T> {
        let is_hostile = match self.peers {
            Peers::All => true,
            Peers::Coordinator => from == 0,
            Peers::Nodes => (1..=self.node_count).contains(&from),
            Peers::Clients => from > self.node_count,
        };
        if !is_hostile || !dice.one_in(self.one_in) {
            return None;
        }
        let altered = alter(dice)?;
        self.altered_count += 1;
        Some(altered)
    }
}

/// A request with other fields, if one was found that can be decoded.
pub(crate) fn altered_request(request: &Request, dice: &mut Dice) -> Option<Request> {
    Some(match request {
        Request::Node(node, request) => Request::Node(*node, altered(request, dice)?),
        Request::Coordinator(request) => Request::Coordinator(altered(request, dice)?),
    })
}

/// A reply with other fields, if one was found that can be decoded.
pub(crate) fn altered_reply(reply: &Reply, dice: &mut Dice) -> Option<Reply> {
    Some(match reply {
        Reply::Node(reply) => Reply::Node(altered(reply, dice)?),
        Reply::Coordinator(reply) => Reply::Coordinator(Box::new(altered(&**reply, dice)?)),
    })
}

/// A frame with other fields, if the dice change any.
pub(crate) fn altered_flow(flow: &Flow, dice: &mut Dice) -> Option<Flow> {
    let run = RunId(number_near(flow.run().0, dice));
    let altered = match flow {
        Flow::Slice {
            value,
            slice,
            purpose,
            bytes,
            ..
        } => Flow::Slice {
            run,
            value: ValueId(number_near(value.0.into(), dice) as u32),
            slice: number_near(*slice, dice),
            purpose: match dice.below(4) {
                0 => *dice.pick(&Purpose::ALL),
                _ => *purpose,
            },
            bytes: altered_bytes(bytes, dice),
        },
        Flow::Credit { value, slices, .. } => Flow::Credit {
            run,
            value: ValueId(number_near(value.0.into(), dice) as u32),
            slices: number_near(*slices, dice),
        },
        Flow::Abort { .. } => Flow::Abort { run },
    };
    (altered != *flow).then_some(altered)
}

/// The same bytes, fewer or more.
fn altered_bytes(bytes: &Bytes, dice: &mut Dice) -> Bytes {
    match dice.below(4) {
        0 => bytes.slice(..dice.below(bytes.len() as u64 + 1) as usize),
        1 => {
            let mut longer = BytesMut::from(&bytes[..]);
            longer.resize(bytes.len() + dice.between(1, 5_000) as usize, 7);
            longer.freeze()
        }
        _ => bytes.clone(),
    }
}

/// Mostly the number itself, else one near it or anywhere.
fn number_near(number: u64, dice: &mut Dice) -> u64 {
    match dice.below(8) {
        0 => number.wrapping_add(1),
        1 => number.wrapping_sub(1),
        2 => any_number(dice),
        _ => number,
    }
}

fn any_number(dice: &mut Dice) -> u64 {
    if dice.one_in(3) {
        let shift = dice.below(64);
        return dice.any() >> shift;
    }
    *dice.pick(&NUMBERS)
}

/// A message that differs from this one in its encoding's bytes in a few places, if a few attempts find one that can be
/// decoded.
fn altered<T>(message: &T, dice: &mut Dice) -> Option<T>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let sound = postcard::to_stdvec(message).expect("messages can be encoded");
    for _ in 0..TRY_COUNT {
        let mut bytes = sound.clone();
        for _ in 0..dice.between(1, 3) {
            alter(&mut bytes, dice);
        }
        if let Ok((other, [])) = postcard::take_from_bytes::<T>(&bytes)
            && other != *message
        {
            return Some(other);
        }
    }
    None
}

/// Changes a message's encoding in one place.
fn alter(bytes: &mut Vec<u8>, dice: &mut Dice) {
    if bytes.is_empty() {
        return;
    }
    let span = match dice.below(2) {
        0 => bytes.len().min(HEAD_BYTES),
        _ => bytes.len(),
    };
    let at = dice.below(span as u64) as usize;
    match dice.below(8) {
        0 => bytes[at] = dice.any() as u8,
        1 => bytes[at] ^= 1 << dice.below(8),
        2 => drop(bytes.remove(at)),
        3 => bytes.insert(at, dice.any() as u8),
        4 => {
            let end = (at + dice.between(1, PIECE_BYTES) as usize).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            let to = dice.below(bytes.len() as u64 + 1) as usize;
            bytes.splice(to..to, piece);
        }
        _ => replace_number(bytes, at, any_number(dice)),
    }
}

/// Puts another number in the place of the one whose encoding covers a byte. Postcard's numbers have seven bits a
/// byte, and the highest bit of all bytes but the last.
fn replace_number(bytes: &mut Vec<u8>, at: usize, number: u64) {
    let goes_on = |byte: &u8| byte & 0x80 != 0;
    let first = bytes[..at].iter().rposition(|byte| !goes_on(byte));
    let first = first.map_or(0, |before| before + 1);
    let last = bytes[at..].iter().position(|byte| !goes_on(byte));
    let last = last.map_or(bytes.len() - 1, |behind| at + behind);
    let encoded = postcard::to_stdvec(&number).expect("numbers can be encoded");
    bytes.splice(first..=last, encoded);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{NodeId, StripeId};
    use gabion_protocol::message::{NodeRequest, ask};

    #[test]
    fn a_number_is_replaced_as_a_whole() {
        let encoded = |numbers: (u64, u64, u64)| postcard::to_stdvec(&numbers).unwrap();
        let sound = encoded((1, 70_000, 3));
        assert_eq!(sound.len(), 5);
        for at in 1..4 {
            let mut bytes = sound.clone();
            replace_number(&mut bytes, at, u64::MAX);
            assert_eq!(bytes, encoded((1, u64::MAX, 3)));
        }
        let mut cut = sound[..2].to_vec();
        replace_number(&mut cut, 1, 5);
        assert_eq!(cut, [1, 5]);
    }

    #[test]
    fn altered_requests_are_others_of_the_same_encoding() {
        let collect = NodeRequest::Collect(ask::Collect {
            stripe: StripeId(70_000),
            generation: gabion_layout::Generation(3),
            epoch: gabion_layout::Epoch(4),
        });
        let sound = Request::Node(NodeId(1), collect.clone());
        let mut dice = Dice::new(1);
        let mut others = 0;
        for _ in 0..100 {
            if let Some(Request::Node(node, other)) = altered_request(&sound, &mut dice) {
                assert_eq!(node, NodeId(1));
                assert_ne!(other, collect);
                others += 1;
            }
        }
        assert!(others > 50, "{others}");
    }
}
