//! Messages of the handshake: the greeting, options and their replies.

use super::fields::{Fields, PAYLOAD_BYTES_MAX, STRING_BYTES_MAX, shortened};
use bytes::{BufMut, Bytes, BytesMut};

const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Flags of the greeting: fixed newstyle, and no padding behind the answer to `EXPORT_NAME`.
const GREETING_FLAGS: u16 = 0b11;

/// The client knows the fixed newstyle.
pub(crate) const CLIENT_FIXED_NEWSTYLE: u32 = 1;
/// The client wants no padding.
pub(crate) const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Bytes of an option before its data.
pub(crate) const OPTION_HEADER_BYTES: usize = 16;

/// Zeros behind the answer to `EXPORT_NAME`, unless the client wants none.
const EXPORT_NAME_PADDING: usize = 124;

/// The smallest addressable block, and the smallest that is written efficiently: a page of guests and of chunks.
const BLOCK_BYTES: (u32, u32) = (1, 4096);

/// Transmission flags.
mod flag {
    pub(super) const HAS_FLAGS: u16 = 1;
    pub(super) const READ_ONLY: u16 = 1 << 1;
    pub(super) const SEND_FLUSH: u16 = 1 << 2;
    pub(super) const SEND_FUA: u16 = 1 << 3;
    pub(super) const SEND_TRIM: u16 = 1 << 5;
    pub(super) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(super) const SEND_DF: u16 = 1 << 7;
    pub(super) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(super) const SEND_CACHE: u16 = 1 << 10;
    pub(super) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of information about an export.
mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const NAME: u16 = 1;
    pub(super) const BLOCK_SIZE: u16 = 3;
}

/// The server's first bytes.
pub(crate) fn greeting() -> Bytes {
    let mut bytes = BytesMut::with_capacity(18);
    bytes.put_u64(GREETING_MAGIC);
    bytes.put_u64(OPTION_MAGIC);
    bytes.put_u16(GREETING_FLAGS);
    bytes.freeze()
}

/// A client's option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OptionKind {
    /// Choose the export, and begin the transmission phase.
    ExportName,
    /// End the connection.
    Abort,
    /// List the exports.
    List,
    /// Encrypt the connection.
    StartTls,
    /// Tell about an export.
    Info,
    /// Tell about an export, and begin the transmission phase.
    Go,
    /// Use structured replies.
    StructuredReply,
    /// List the metadata contexts of an export.
    ListMetaContext,
    /// Select metadata contexts of an export.
    SetMetaContext,
    /// Use extended headers.
    ExtendedHeaders,
    /// An option that this server does not know.
    Unknown,
}

impl OptionKind {
    const fn of(number: u32) -> Self {
        match number {
            1 => Self::ExportName,
            2 => Self::Abort,
            3 => Self::List,
            5 => Self::StartTls,
            6 => Self::Info,
            7 => Self::Go,
            8 => Self::StructuredReply,
            9 => Self::ListMetaContext,
            10 => Self::SetMetaContext,
            11 => Self::ExtendedHeaders,
            _ => Self::Unknown,
        }
    }

    /// Whether the protocol forbids data of it.
    pub(crate) const fn has_no_data(self) -> bool {
        matches!(
            self,
            Self::List | Self::StartTls | Self::StructuredReply | Self::ExtendedHeaders
        )
    }
}

/// The header of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OptionHeader {
    /// The option's number; replies repeat it.
    pub(crate) number: u32,
    /// Bytes of its data.
    pub(crate) length: u32,
}

impl OptionHeader {
    /// Decodes a header; none if it is not one.
    pub(crate) fn decode(bytes: [u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        let mut fields = Fields(&bytes);
        let magic = fields.u64()?;
        let (number, length) = (fields.u32()?, fields.u32()?);
        (magic == OPTION_MAGIC).then_some(Self { number, length })
    }

    /// The option.
    pub(crate) const fn kind(self) -> OptionKind {
        OptionKind::of(self.number)
    }
}

/// The data of `INFO` and `GO`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExportQuery {
    /// The export.
    pub(crate) name: String,
    /// Whether the client asks for its name.
    wants_name: bool,
}

impl ExportQuery {
    /// Decodes the data; none if they are invalid.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let mut wants_name = false;
        for _ in 0..fields.u16()? {
            wants_name |= fields.u16()? == info::NAME;
        }
        fields.is_empty().then_some(Self { name, wants_name })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MetaQuery {
    /// The export.
    pub(crate) export: String,
    /// Names of contexts, and namespaces with a colon.
    queries: Vec<String>,
}

impl MetaQuery {
    /// Decodes the data; none if they are invalid.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let export = fields.string()?;
        let mut queries = Vec::new();
        for _ in 0..fields.u32()? {
            queries.push(fields.string()?);
        }
        fields.is_empty().then_some(Self { export, queries })
    }

    /// The contexts that match; all of them if a list is asked for without a query. A namespace stands for its
    /// contexts in a list only.
    pub(crate) fn matches(&self, is_list: bool) -> Vec<Context> {
        let is_wanted = |context: &Context| {
            let named = |query: &String| {
                let is_namespace = CONTEXT_NAMESPACES.contains(&query.as_str());
                query == context.name()
                    || is_list && is_namespace && context.name().starts_with(query)
            };
            is_list && self.queries.is_empty() || self.queries.iter().any(named)
        };
        Context::ALL.into_iter().filter(is_wanted).collect()
    }
}

/// Namespaces of contexts, as queries name them.
const CONTEXT_NAMESPACES: [&str; 2] = ["base:", "gabion:"];

/// A metadata context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// The bytes that are holes.
    Allocation,
    /// The number of further failures that each stripe survives.
    FailuresLeft,
}

impl Context {
    const ALL: [Self; 2] = [Self::Allocation, Self::FailuresLeft];

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocation => "base:allocation",
            Self::FailuresLeft => "gabion:failures-left",
        }
    }

    /// Its number in replies.
    pub(crate) const fn id(self) -> u32 {
        match self {
            Self::Allocation => 1,
            Self::FailuresLeft => 2,
        }
    }
}

/// The facts about an export that a client gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExportFacts {
    /// Its size.
    pub(crate) size_bytes: u64,
    /// Whether writes are refused.
    pub(crate) is_read_only: bool,
    /// Whether replies to reads have chunks.
    pub(crate) has_chunks: bool,
}

impl ExportFacts {
    /// The transmission flags. Every acknowledged write is durable and visible to all connections, so these may be
    /// several.
    pub(crate) const fn flags(self) -> u16 {
        let always = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::CAN_MULTI_CONN
            | flag::SEND_CACHE;
        let access = if self.is_read_only {
            flag::READ_ONLY
        } else {
            flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
        };
        let chunks = if self.has_chunks { flag::SEND_DF } else { 0 };
        always | access | chunks
    }

    /// The answer to `EXPORT_NAME`.
    pub(crate) fn export_name_reply(self, has_padding: bool) -> Bytes {
        let mut bytes = BytesMut::with_capacity(10 + EXPORT_NAME_PADDING);
        bytes.put_u64(self.size_bytes);
        bytes.put_u16(self.flags());
        if has_padding {
            bytes.put_bytes(0, EXPORT_NAME_PADDING);
        }
        bytes.freeze()
    }

    /// The requested information, and always the block sizes.
    pub(crate) fn infos(self, query: &ExportQuery) -> Vec<Info> {
        let name = query.wants_name.then(|| Info::Name(query.name.clone()));
        let fixed = [Info::Export(self), Info::BlockSize];
        fixed.into_iter().chain(name).collect()
    }
}

/// A piece of information about an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Info {
    Export(ExportFacts),
    Name(String),
    BlockSize,
}

impl Info {
    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(16);
        match self {
            Self::Export(facts) => {
                bytes.put_u16(info::EXPORT);
                bytes.put_u64(facts.size_bytes);
                bytes.put_u16(facts.flags());
            }
            Self::Name(name) => {
                bytes.put_u16(info::NAME);
                bytes.put_slice(name.as_bytes());
            }
            Self::BlockSize => {
                bytes.put_u16(info::BLOCK_SIZE);
                bytes.put_u32(BLOCK_BYTES.0);
                bytes.put_u32(BLOCK_BYTES.1);
                bytes.put_u32(PAYLOAD_BYTES_MAX as u32);
            }
        }
        bytes.freeze()
    }
}

/// A reply to an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OptionReply {
    /// Accepted, or the end of a list.
    Ack,
    /// An export.
    Server(String),
    /// Information about an export.
    Info(Info),
    /// A metadata context.
    Context(Context),
    /// The server does not know the option.
    Unsupported(&'static str),
    /// The server's policy forbids it: a sentence.
    Policy(String),
    /// The option's data are invalid.
    Invalid(&'static str),
    /// The server takes the option only after TLS has begun.
    TlsRequired,
    /// There is no such export.
    UnknownExport(String),
    /// The option's data are too long.
    TooBig,
    /// Extended headers exclude it.
    ExtendedHeaders,
}

/// Encodes a reply to the option with this number.
pub(crate) fn option_reply(option: u32, reply: &OptionReply) -> Bytes {
    const ERROR: u32 = 1 << 31;
    let text = |text: &str| Bytes::copy_from_slice(shortened(text).as_bytes());
    let (kind, data) = match reply {
        OptionReply::Ack => (1, Bytes::new()),
        OptionReply::Server(name) => {
            let mut data = BytesMut::with_capacity(4 + name.len());
            data.put_u32(name.len() as u32);
            data.put_slice(name.as_bytes());
            (2, data.freeze())
        }
        OptionReply::Info(info) => (3, info.encode()),
        OptionReply::Context(context) => {
            let mut data = BytesMut::with_capacity(32);
            data.put_u32(context.id());
            data.put_slice(context.name().as_bytes());
            (4, data.freeze())
        }
        OptionReply::Unsupported(why) => (ERROR | 1, text(why)),
        OptionReply::Policy(why) => (ERROR | 2, text(why)),
        OptionReply::Invalid(why) => (ERROR | 3, text(why)),
        OptionReply::TlsRequired => (
            ERROR | 5,
            text("this server requires TLS; give the client ca-cert.pem and its certificate"),
        ),
        OptionReply::UnknownExport(name) => {
            let why = if name.is_empty() {
                "there is no default export; name one as POOL/IMAGE".to_owned()
            } else {
                format!("there is no export '{name}'")
            };
            (ERROR | 6, text(&why))
        }
        OptionReply::TooBig => (ERROR | 9, text("the option's data are too long")),
        OptionReply::ExtendedHeaders => (
            ERROR | 0xa,
            text("extended headers are already on, and they exclude other replies"),
        ),
    };
    let mut bytes = BytesMut::with_capacity(20 + data.len());
    bytes.put_u64(REPLY_MAGIC);
    bytes.put_u32(option);
    bytes.put_u32(kind);
    bytes.put_u32(data.len() as u32);
    bytes.put_slice(&data);
    bytes.freeze()
}

/// The name of an export as `EXPORT_NAME` has it; none if it is too long or no UTF-8.
pub(crate) fn export_name(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?;
    (data.len() <= STRING_BYTES_MAX).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Context::{Allocation, FailuresLeft};
    use super::*;
    use rand::{RngExt, SeedableRng};

    const FACTS: ExportFacts = ExportFacts {
        size_bytes: 1 << 30,
        is_read_only: false,
        has_chunks: true,
    };

    #[test]
    fn the_greeting_and_option_headers_are_the_protocols() {
        assert_eq!(&greeting()[..], b"NBDMAGICIHAVEOPT\0\x03");
        let header = OptionHeader::decode(*b"IHAVEOPT\0\0\0\x07\0\0\x01\0");
        let expected = OptionHeader {
            number: 7,
            length: 256,
        };
        assert_eq!(header, Some(expected));
        assert_eq!(expected.kind(), OptionKind::Go);
        assert_eq!(OptionHeader::decode(*b"GET / HTTP/1.1\r\n"), None);
        let withdrawn = OptionHeader {
            number: 4,
            length: 0,
        };
        assert_eq!(withdrawn.kind(), OptionKind::Unknown);
    }

    #[test]
    fn go_has_a_name_and_wishes() {
        let data = b"\0\0\0\x04vm/d\0\x02\0\x01\0\x03";
        let query = ExportQuery::decode(data).expect("valid");
        assert_eq!((query.name.as_str(), query.wants_name), ("vm/d", true));
        let infos = FACTS.infos(&query);
        let name = Info::Name("vm/d".to_owned());
        assert_eq!(infos, [Info::Export(FACTS), Info::BlockSize, name]);
        for wrong in [
            &b""[..],
            b"\0\0\0\x05vm/d\0\0",
            b"\xff\xff\xff\xffvm/d\0\0",
            b"\0\0\0\x04vm/d",
            b"\0\0\0\x04vm/d\0\x01",
            b"\0\0\0\x04vm/d\0\0x",
            b"\0\0\0\x01\xff\0\0",
        ] {
            assert_eq!(ExportQuery::decode(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn queries_select_contexts_by_name_and_list_them_by_namespace() {
        let query = |queries: &[&str]| {
            let mut data = b"\0\0\0\x01d".to_vec();
            data.extend((queries.len() as u32).to_be_bytes());
            for query in queries {
                data.extend((query.len() as u32).to_be_bytes());
                data.extend(query.as_bytes());
            }
            MetaQuery::decode(&data).expect("valid")
        };
        assert_eq!(query(&[]).matches(true), [Allocation, FailuresLeft]);
        assert_eq!(query(&[]).matches(false), []);
        assert_eq!(query(&["base:"]).matches(true), [Allocation]);
        assert_eq!(query(&["base:"]).matches(false), []);
        assert_eq!(query(&["qemu:dirty-bitmap:b"]).matches(true), []);
        let both = query(&["gabion:failures-left", "base:allocation", "base:other"]);
        assert_eq!(both.matches(false), [Allocation, FailuresLeft]);
        let many = b"\0\0\0\x01d\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(MetaQuery::decode(many), None, "the count is a lie");
    }

    #[test]
    fn replies_to_options_are_encoded_byte_by_byte() {
        let magic: &[u8] = &[0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9];
        let check = |reply: OptionReply, expected: &[u8]| {
            let encoded = option_reply(7, &reply);
            assert_eq!(encoded[..], [magic, &[0, 0, 0, 7], expected].concat()[..]);
        };
        check(OptionReply::Ack, &[0, 0, 0, 1, 0, 0, 0, 0]);
        check(
            OptionReply::Server("vm".to_owned()),
            b"\0\0\0\x02\0\0\0\x06\0\0\0\x02vm",
        );
        check(
            OptionReply::Info(Info::BlockSize),
            b"\0\0\0\x03\0\0\0\x0e\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0",
        );
        check(
            OptionReply::Info(Info::Export(FACTS)),
            b"\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\x40\0\0\0\x0d\xed",
        );
        check(
            OptionReply::Context(Context::Allocation),
            b"\0\0\0\x04\0\0\0\x13\0\0\0\x01base:allocation",
        );
        check(OptionReply::Unsupported("no"), b"\x80\0\0\x01\0\0\0\x02no");
    }

    #[test]
    fn a_read_only_export_offers_no_writes() {
        let read_only = ExportFacts {
            is_read_only: true,
            has_chunks: false,
            ..FACTS
        };
        let flags = read_only.flags();
        assert_ne!(flags & flag::READ_ONLY, 0);
        let of_writers = flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
        assert_eq!(flags & (of_writers | flag::SEND_DF), 0);
        assert_eq!(read_only.export_name_reply(true).len(), 134);
        assert_eq!(read_only.export_name_reply(false).len(), 10);
    }

    #[test]
    fn any_bytes_give_a_query_or_none() {
        let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        for _ in 0..50_000 {
            let mut data = vec![0; dice.random_range(0..64)];
            dice.fill(&mut data[..]);
            // Small lengths and counts reach further.
            for byte in &mut data {
                if dice.random_range(0..3) > 0 {
                    *byte %= 4;
                }
            }
            if let Some(query) = ExportQuery::decode(&data) {
                assert!(query.name.len() <= data.len());
            }
            if let Some(query) = MetaQuery::decode(&data) {
                let bytes: usize = query.queries.iter().map(String::len).sum();
                assert!(query.export.len() + bytes + 4 * query.queries.len() <= data.len());
            }
            let _ = export_name(&data);
        }
    }
}
