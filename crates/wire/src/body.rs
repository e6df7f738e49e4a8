//! Encoding of messages to frames, and decoding.
//!
//! Requests and replies are postcard of the enums in `gabion_protocol::message`; a slice's body is
//! its bytes as they are, shared and not copied. Postcard's integers are varints of at most 64
//! bits, its enums are numbered in the order of their variants, and its structs have no names. So a message changes
//! only by further variants, which only a connection of a later version carries ([`Rpc::since`]).

use bytes::Bytes;
use gabion_plan::ValueId;
use gabion_protocol::message::{
    Cause, CoordinatorReply, CoordinatorRequest, Denial, Flow, NodeReply, NodeRequest, Purpose,
    RunId, ask,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::WireError;
use crate::frame::{Header, Kind};
use crate::versions::FIRST_VERSION;

/// A frame: its header and its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The header; it fits the body.
    pub header: Header,
    /// The body.
    pub body: Bytes,
}

/// A kind of request with the kind of reply that it gets.
pub trait Rpc: Serialize + DeserializeOwned + Send + 'static {
    /// The reply.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// The kind of frame that carries the request.
    const REQUEST: Kind;
    /// The kind of frame that carries the reply.
    const REPLY: Kind;
    /// Roughly how many bytes the encoded request has, so that its buffer need not grow.
    fn size_hint_bytes(&self) -> usize {
        128
    }
    /// Whether the request carries users' bytes, which queue with slices and pay for emulated
    /// links however few they are.
    fn carries_data(&self) -> bool {
        false
    }
    /// The reply to a client or operator that may not send the request; none if it has no reply that says so.
    fn denied(reason: &str) -> Option<Self::Reply> {
        let _ = reason;
        None
    }
    /// Whether the reply says that another process is to be asked.
    fn is_elsewhere(reply: &Self::Reply) -> bool {
        let _ = reply;
        false
    }
    /// The first version of the wire that has the request with all values in it. It is not sent on a connection of an
    /// earlier one. `tests/messages.txt` has the version of each variant, and a test compares.
    fn since(&self) -> u16 {
        FIRST_VERSION
    }
    /// The same of a reply.
    fn reply_since(reply: &Self::Reply) -> u16 {
        let _ = reply;
        FIRST_VERSION
    }
}

impl Rpc for NodeRequest {
    type Reply = NodeReply;
    const REQUEST: Kind = Kind::NodeRequest;
    const REPLY: Kind = Kind::NodeReply;
    fn size_hint_bytes(&self) -> usize {
        match self {
            Self::Stage(ask::Stage { bytes, .. }) | Self::Probe(ask::Probe { bytes }) => {
                bytes.len() + 64
            }
            _ => 512,
        }
    }
    fn carries_data(&self) -> bool {
        matches!(self, Self::Stage { .. } | Self::Probe { .. })
    }
}

impl Rpc for CoordinatorRequest {
    type Reply = CoordinatorReply;
    const REQUEST: Kind = Kind::CoordinatorRequest;
    const REPLY: Kind = Kind::CoordinatorReply;
    fn denied(reason: &str) -> Option<Self::Reply> {
        let denial = Denial::new(Cause::NotPermitted, reason);
        Some(CoordinatorReply::Refused(denial))
    }
    fn is_elsewhere(reply: &CoordinatorReply) -> bool {
        matches!(reply, CoordinatorReply::Busy(why) if why.cause == Cause::NotLeading)
    }
}

impl Frame {
    /// A frame whose numbers are all 0.
    ///
    /// # Errors
    /// [`WireError::TooLarge`].
    pub fn new(kind: Kind, body: Bytes) -> Result<Self, WireError> {
        Ok(Self {
            header: Header::new(kind, &body)?,
            body,
        })
    }

    /// A frame that carries `message` in postcard. `id` is the request's number.
    ///
    /// # Errors
    /// [`WireError::TooLarge`].
    ///
    /// # Panics
    /// When `T` cannot be written as postcard, for instance because it has sequences of unknown
    /// length. The protocol's messages all can.
    pub fn message<T: Serialize>(
        kind: Kind,
        id: u64,
        message: &T,
        size_hint_bytes: usize,
    ) -> Result<Self, WireError> {
        let body = postcard::to_extend(message, Vec::with_capacity(size_hint_bytes))
            .expect("a message is of a type that postcard can encode, and a Vec takes it all");
        let mut frame = Self::new(kind, body.into())?;
        frame.header.id = id;
        Ok(frame)
    }

    /// A frame with a text for people, cut to a reasonable length.
    pub(crate) fn words(kind: Kind, id: u64, words: &str) -> Self {
        const MAX_WORDS_BYTES: usize = 1024;
        let end = words.floor_char_boundary(MAX_WORDS_BYTES.min(words.len()));
        let mut frame = Self::new(kind, Bytes::copy_from_slice(&words.as_bytes()[..end]))
            .expect("1 KiB is below the limit of a body");
        frame.header.id = id;
        frame
    }

    /// The frame that tells the peer why its connection is closed; none if the peer knows it or cannot receive it.
    pub(crate) fn goodbye(reason: &WireError, version: u16) -> Option<Self> {
        let mut frame = Self::words(Kind::Goodbye, 0, &reason.last_words()?);
        frame.header.version = version;
        Some(frame)
    }

    /// The message in a frame's body.
    ///
    /// # Errors
    /// [`WireError::Corrupt`] when the body is not exactly one message of this type.
    pub fn decode_message<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        match postcard::take_from_bytes(&self.body) {
            Ok((message, [])) => Ok(message),
            Ok(_) => Err(WireError::Corrupt("bytes follow the message")),
            Err(_) => Err(WireError::Corrupt("the message cannot be decoded")),
        }
    }

    /// The words in a frame's body.
    pub(crate) fn decode_words(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The frame of a flow frame. A slice's bytes are shared.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] for a slice over the limit.
    pub fn flow(flow: Flow) -> Result<Self, WireError> {
        let run = flow.run();
        let mut frame = match flow {
            Flow::Slice {
                value,
                slice,
                purpose,
                bytes,
                ..
            } => {
                let mut frame = Self::new(Kind::Slice, bytes)?;
                frame.header.value = value.0;
                frame.header.slice = slice;
                frame.header.purpose = purpose_number(purpose);
                frame
            }
            Flow::Credit { value, slices, .. } => {
                let mut frame = Self::new(Kind::Credit, Bytes::new())?;
                frame.header.value = value.0;
                frame.header.slice = slices;
                frame
            }
            Flow::Abort { .. } => Self::new(Kind::Abort, Bytes::new())?,
        };
        frame.header.id = run.0;
        Ok(frame)
    }

    /// The flow frame in a frame.
    ///
    /// # Errors
    /// [`WireError::Corrupt`] when it is none, or its purpose is unknown.
    pub fn decode_flow(self) -> Result<Flow, WireError> {
        let Header {
            id, value, slice, ..
        } = self.header;
        let (run, value) = (RunId(id), ValueId(value));
        match self.header.kind {
            Kind::Slice => {
                let purpose = Purpose::ALL.get(usize::from(self.header.purpose));
                let purpose = *purpose.ok_or(WireError::Corrupt("its purpose is unknown"))?;
                Ok(Flow::Slice {
                    run,
                    value,
                    slice,
                    purpose,
                    bytes: self.body,
                })
            }
            Kind::Credit => Ok(Flow::Credit {
                run,
                value,
                slices: slice,
            }),
            Kind::Abort => Ok(Flow::Abort { run }),
            _ => Err(WireError::Corrupt("it is not a flow frame")),
        }
    }
}

/// A purpose's number on the wire: its place in [`Purpose::ALL`].
fn purpose_number(purpose: Purpose) -> u8 {
    let place = Purpose::ALL.iter().position(|&known| known == purpose);
    place.expect("Purpose::ALL has every purpose") as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_flow() -> impl Strategy<Value = Flow> {
        let purpose = prop::sample::select(Purpose::ALL.to_vec());
        let bytes = prop::collection::vec(any::<u8>(), 0..100);
        let numbers = (any::<u64>(), any::<u32>(), any::<u64>());
        (0..3, numbers, purpose, bytes).prop_map(|(which, (run, value, slice), purpose, bytes)| {
            let (run, value) = (RunId(run), ValueId(value));
            match which {
                0 => Flow::Slice {
                    run,
                    value,
                    slice,
                    purpose,
                    bytes: bytes.into(),
                },
                1 => Flow::Credit {
                    run,
                    value,
                    slices: slice,
                },
                _ => Flow::Abort { run },
            }
        })
    }

    proptest! {
        #[test]
        fn flows_survive_the_wire(flow in any_flow()) {
            let frame = Frame::flow(flow.clone()).unwrap();
            prop_assert_eq!(Header::decode(&frame.header.encode()).unwrap(), frame.header);
            frame.header.check_body(&frame.body).unwrap();
            prop_assert_eq!(frame.decode_flow().unwrap(), flow);
        }

        #[test]
        fn hostile_messages_are_refused_or_decoded_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            first in 0_u8..24,
        ) {
            // The first byte is an enum's variant; a small one gets further into the decoder.
            let body = [&[first][..], &bytes].concat();
            let frame = Frame::new(Kind::NodeRequest, body.into()).unwrap();
            check_decoder::<NodeRequest>(&frame)?;
            check_decoder::<NodeReply>(&frame)?;
            check_decoder::<CoordinatorRequest>(&frame)?;
            check_decoder::<CoordinatorReply>(&frame)?;
        }

        #[test]
        fn words_are_cut_between_characters(count in 0..700_usize, lead in "[a-z]{0,3}") {
            let words = lead + &"é".repeat(count);
            let cut = Frame::words(Kind::Goodbye, 0, &words).decode_words();
            prop_assert!(words.starts_with(&cut));
            prop_assert!(cut.len() == words.len() || (1_023..=1_024).contains(&cut.len()));
        }
    }

    /// A body that is accepted is the same when it is sent on.
    fn check_decoder<T>(frame: &Frame) -> Result<(), TestCaseError>
    where
        T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        match frame.decode_message::<T>() {
            Ok(message) => {
                let again = Frame::message(Kind::NodeRequest, 0, &message, 0).unwrap();
                prop_assert_eq!(again.decode_message::<T>().unwrap(), message);
            }
            Err(error) => prop_assert!(matches!(error, WireError::Corrupt(_)), "{}", error),
        }
        Ok(())
    }

    #[test]
    fn unknown_purposes_and_trailing_bytes_are_corrupt() {
        let mut frame = Frame::new(Kind::Slice, Bytes::new()).unwrap();
        frame.header.purpose = Purpose::ALL.len() as u8;
        assert!(matches!(frame.decode_flow(), Err(WireError::Corrupt(_))));
        let frame = Frame::message(Kind::NodeReply, 1, &NodeReply::Done, 1).unwrap();
        let longer = [&frame.body[..], &[0]].concat();
        let frame = Frame::new(Kind::NodeReply, longer.into()).unwrap();
        assert!(matches!(
            frame.decode_message::<NodeReply>(),
            Err(WireError::Corrupt(_))
        ));
    }
}
