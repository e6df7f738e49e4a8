//! The messages of the NBD protocol: pure decoding and encoding, without I/O.
//!
//! Decoding is total: any bytes give a value or an error, and what it allocates is not larger than its input.
//! Names of constants are those of the protocol's document without their prefix `NBD_`.

mod errno;
mod fields;
mod handshake;
mod reply;
mod request;

pub use errno::Errno;
pub(crate) use fields::PAYLOAD_BYTES_MAX;
pub use handshake::Context;
pub(crate) use handshake::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, ExportFacts, ExportQuery, MetaQuery,
    OPTION_HEADER_BYTES, OptionHeader, OptionKind, OptionReply, export_name, greeting,
    option_reply,
};
pub(crate) use reply::{Answer, Recipient, encode};
pub use reply::{Descriptor, Part};
pub(crate) use request::{Command, Export, REQUEST_BYTES_MAX, Request, Style};
