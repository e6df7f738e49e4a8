//! The handshake of a connection: options until the client has chosen an export.

use crate::device::{Device, ExportShape, Exports, OpenError};
use crate::message::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, Context, ExportFacts, ExportQuery, MetaQuery,
    OPTION_HEADER_BYTES, OptionHeader, OptionKind, OptionReply, Style, export_name, greeting,
    option_reply,
};
use crate::tls::Tls;
use bytes::Bytes;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most options of one handshake.
const OPTION_COUNT_MAX: usize = 64;
/// Most bytes of an option's data that are read. Longer ones are skipped and refused.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longer data than this end the connection.
const SKIPPED_BYTES_MAX: u32 = 1 << 20;
/// Most exports in a list.
const LISTED_COUNT_MAX: usize = 10_000;

/// The result of a handshake.
pub(crate) struct Agreed {
    /// The headers of requests and replies.
    pub(crate) style: Style,
    /// The selected contexts.
    pub(crate) contexts: Vec<Context>,
    /// The export.
    pub(crate) device: Arc<dyn Device>,
    /// The facts about it that the client has.
    pub(crate) shape: ExportShape,
    /// The name by which the client has asked for it.
    pub(crate) name: String,
}

/// The reason why a connection ended before the transmission phase.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// The client went, as it may.
    Left,
    /// The client begins this TLS, and has to send its options again in it.
    BeginsTls(Arc<Tls>),
    /// The client broke the protocol or a limit: one plain sentence.
    Broken(String),
}

/// The encryption of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Encryption {
    /// None, and the server has none to offer.
    None,
    /// None yet; the client may begin it.
    Offered(Arc<Tls>),
    /// None yet; the client has to begin it before any other option.
    Required(Arc<Tls>),
    /// The connection is in TLS.
    Begun,
}

impl From<std::io::Error> for Ended {
    fn from(_: std::io::Error) -> Self {
        Self::Left
    }
}

/// A handshake that goes on.
struct Handshake<'a, R, W> {
    reader: &'a mut R,
    writer: &'a mut W,
    exports: &'a dyn Exports,
    encryption: Encryption,
    style: Style,
    /// Whether the answer to `EXPORT_NAME` is padded.
    has_padding: bool,
    /// The selected contexts, with the export that they are for.
    selected: Option<(String, Vec<Context>)>,
}

/// Greets a client. Returns whether it wants the answer to its `EXPORT_NAME` padded.
///
/// # Errors
/// [`Ended`] when the connection is to be closed.
pub(crate) async fn greet<R, W>(reader: &mut R, writer: &mut W) -> Result<bool, Ended>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    send(writer, &[greeting()]).await?;
    let flags = reader.read_u32().await?;
    if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
        let sentence = format!("the client's flags {flags:#x} include unknown flags");
        return Err(Ended::Broken(sentence));
    }
    Ok(flags & CLIENT_NO_ZEROES == 0)
}

/// Answers options until the client has chosen an export.
///
/// # Errors
/// [`Ended`] when the connection is to be closed, or goes on in TLS.
pub(crate) async fn negotiate<R, W>(
    reader: &mut R,
    writer: &mut W,
    exports: &dyn Exports,
    (encryption, has_padding): (Encryption, bool),
) -> Result<Agreed, Ended>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let mut handshake = Handshake {
        reader,
        writer,
        exports,
        encryption,
        style: Style::Simple,
        has_padding,
        selected: None,
    };
    for _ in 0..OPTION_COUNT_MAX {
        if let Some(agreed) = handshake.option().await? {
            return Ok(agreed);
        }
    }
    Err(Ended::Broken(format!(
        "the client sent {OPTION_COUNT_MAX} options without a choice"
    )))
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), messages: &[Bytes]) -> std::io::Result<()> {
    writer.write_all(&messages.concat()).await?;
    writer.flush().await
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send> Handshake<'_, R, W> {
    /// Reads and answers one option. The result is there when the client has chosen its export.
    async fn option(&mut self) -> Result<Option<Agreed>, Ended> {
        let mut header = [0; OPTION_HEADER_BYTES];
        self.reader.read_exact(&mut header).await?;
        let header = OptionHeader::decode(header)
            .ok_or_else(|| Ended::Broken("the client's option has no magic number".to_owned()))?;
        let is_plain = matches!(self.encryption, Encryption::Required(_));
        let Some(data) = self.data(header).await? else {
            let reply = match header.kind() {
                OptionKind::ExportName => {
                    return Err(Ended::Broken("the export's name is too long".to_owned()));
                }
                early if is_plain && early != OptionKind::StartTls => OptionReply::TlsRequired,
                _ => OptionReply::TooBig,
            };
            self.reply(header, &[reply]).await?;
            return Ok(None);
        };
        let replies = match header.kind() {
            OptionKind::Abort => {
                self.reply(header, &[OptionReply::Ack]).await?;
                return Err(Ended::Left);
            }
            OptionKind::ExportName if is_plain => {
                let sentence = "the client asked for an export without TLS";
                return Err(Ended::Broken(sentence.to_owned()));
            }
            early if is_plain && early != OptionKind::StartTls => {
                vec![OptionReply::TlsRequired]
            }
            OptionKind::ExportName => return self.export_name(&data).await.map(Some),
            OptionKind::Go => return self.go(header, &data).await,
            bare if bare.has_no_data() && !data.is_empty() => {
                vec![OptionReply::Invalid("the option has no data")]
            }
            OptionKind::List => self.list().await,
            OptionKind::StartTls => match &self.encryption {
                Encryption::Offered(tls) | Encryption::Required(tls) => {
                    let tls = Arc::clone(tls);
                    self.reply(header, &[OptionReply::Ack]).await?;
                    return Err(Ended::BeginsTls(tls));
                }
                Encryption::None => vec![OptionReply::Unsupported("this server has no TLS")],
                Encryption::Begun => {
                    vec![OptionReply::Invalid("the connection is in TLS already")]
                }
            },
            OptionKind::Info => match self.look(&data).await {
                Ok((query, shape)) => self.infos(&query, shape),
                Err(refusal) => vec![refusal],
            },
            OptionKind::StructuredReply if self.style == Style::Extended => {
                vec![OptionReply::ExtendedHeaders]
            }
            OptionKind::StructuredReply => {
                self.style = Style::Structured;
                vec![OptionReply::Ack]
            }
            OptionKind::ExtendedHeaders => {
                self.style = Style::Extended;
                vec![OptionReply::Ack]
            }
            OptionKind::ListMetaContext => self.contexts(&data, true).await,
            OptionKind::SetMetaContext => self.contexts(&data, false).await,
            OptionKind::Unknown => vec![unknown_option()],
        };
        self.reply(header, &replies).await?;
        Ok(None)
    }

    /// Reads an option's data; none if they are too long, and have been skipped.
    async fn data(&mut self, header: OptionHeader) -> Result<Option<Vec<u8>>, Ended> {
        if header.length > SKIPPED_BYTES_MAX {
            let sentence = format!("an option has {} bytes of data", header.length);
            return Err(Ended::Broken(sentence));
        }
        if header.length > OPTION_BYTES_MAX {
            let mut skipped = (&mut *self.reader).take(u64::from(header.length));
            tokio::io::copy(&mut skipped, &mut tokio::io::sink()).await?;
            return Ok(None);
        }
        let mut data = vec![0; header.length as usize];
        self.reader.read_exact(&mut data).await?;
        Ok(Some(data))
    }

    async fn reply(&mut self, to: OptionHeader, replies: &[OptionReply]) -> Result<(), Ended> {
        let messages = replies.iter().map(|reply| option_reply(to.number, reply));
        let messages: Vec<Bytes> = messages.collect();
        Ok(send(self.writer, &messages).await?)
    }

    async fn list(&mut self) -> Vec<OptionReply> {
        match self.exports.names().await {
            Ok(mut names) => {
                names.truncate(LISTED_COUNT_MAX);
                let servers = names.into_iter().map(OptionReply::Server);
                servers.chain([OptionReply::Ack]).collect()
            }
            Err(error) => vec![refusal("", error)],
        }
    }

    /// The export that a query names.
    async fn look(&mut self, data: &[u8]) -> Result<(ExportQuery, ExportShape), OptionReply> {
        let query = ExportQuery::decode(data)
            .ok_or(OptionReply::Invalid("the option's data are malformed"))?;
        let looked = self.exports.look(&query.name).await;
        let shape = looked.map_err(|error| refusal(&query.name, error))?;
        Ok((query, shape))
    }

    fn facts(&self, shape: ExportShape) -> ExportFacts {
        ExportFacts {
            size_bytes: shape.size_bytes,
            is_read_only: shape.is_read_only,
            has_chunks: self.style != Style::Simple,
        }
    }

    fn infos(&self, query: &ExportQuery, shape: ExportShape) -> Vec<OptionReply> {
        let infos = self.facts(shape).infos(query).into_iter();
        let infos = infos.map(OptionReply::Info);
        infos.chain([OptionReply::Ack]).collect()
    }

    async fn go(&mut self, header: OptionHeader, data: &[u8]) -> Result<Option<Agreed>, Ended> {
        let refused = match ExportQuery::decode(data) {
            None => OptionReply::Invalid("the option's data are malformed"),
            Some(query) => match self.exports.open(&query.name).await {
                Err(error) => refusal(&query.name, error),
                Ok(device) => {
                    let shape = device.shape();
                    let replies = self.infos(&query, shape);
                    self.reply(header, &replies).await?;
                    return Ok(Some(self.agreed(query.name, device, shape)));
                }
            },
        };
        self.reply(header, &[refused]).await?;
        Ok(None)
    }

    /// Answers `EXPORT_NAME`, which has no reply for errors.
    async fn export_name(&mut self, data: &[u8]) -> Result<Agreed, Ended> {
        let name = export_name(data);
        let name = name.ok_or_else(|| Ended::Broken("the export's name is not text".to_owned()))?;
        if self.style == Style::Extended {
            let sentence = "EXPORT_NAME is not allowed with extended headers";
            return Err(Ended::Broken(sentence.to_owned()));
        }
        let opened = self.exports.open(&name).await;
        let device = opened.map_err(|error| Ended::Broken(format!("export '{name}': {error}")))?;
        let shape = device.shape();
        let reply = self.facts(shape).export_name_reply(self.has_padding);
        send(self.writer, &[reply]).await?;
        Ok(self.agreed(name, device, shape))
    }

    fn agreed(&mut self, name: String, device: Arc<dyn Device>, shape: ExportShape) -> Agreed {
        // Contexts that were selected for another export do not count.
        let selected = self.selected.take().filter(|(export, _)| *export == name);
        Agreed {
            style: self.style,
            contexts: selected.map(|(_, contexts)| contexts).unwrap_or_default(),
            device,
            shape,
            name,
        }
    }

    /// Lists or selects metadata contexts.
    async fn contexts(&mut self, data: &[u8], is_list: bool) -> Vec<OptionReply> {
        if !is_list {
            self.selected = None;
            if self.style == Style::Simple {
                return vec![OptionReply::Invalid(
                    "contexts need structured replies or extended headers",
                )];
            }
        }
        let Some(query) = MetaQuery::decode(data) else {
            return vec![OptionReply::Invalid("the option's data are malformed")];
        };
        if let Err(error) = self.exports.look(&query.export).await {
            return vec![refusal(&query.export, error)];
        }
        let found = query.matches(is_list);
        let replies = found.iter().map(|&context| OptionReply::Context(context));
        let replies = replies.chain([OptionReply::Ack]).collect();
        if !is_list {
            self.selected = Some((query.export, found));
        }
        replies
    }
}

fn unknown_option() -> OptionReply {
    OptionReply::Unsupported("this server does not know the option")
}

fn refusal(name: &str, error: OpenError) -> OptionReply {
    match error {
        OpenError::Unknown => OptionReply::UnknownExport(name.to_owned()),
        OpenError::Failed(why) => OptionReply::Policy(why),
    }
}
