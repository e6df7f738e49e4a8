//! A client that sends and receives bytes, for what no tool sends.

use crate::serving::Serving;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for what must come. It ends a test that hangs, and is no measure: a loaded machine may take many times
/// what an idle one does.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const STATUS: u16 = 7;

/// The flag of a read whose reply has all bytes in one chunk.
pub(crate) const WHOLE: u16 = 1 << 2;

/// A connection.
pub(crate) struct Talk<S = TcpStream>(pub(crate) S);

/// A reply to an option: its type and data.
pub(crate) type OptionReply = (u32, Vec<u8>);

impl Talk {
    /// Connects, and answers the greeting with these flags.
    pub(crate) async fn greet(serving: &Serving, flags: u32) -> Self {
        let stream = TcpStream::connect(serving.address).await.expect("a server");
        let mut talk = Self(stream);
        talk.answer_greeting(flags).await;
        talk
    }

    /// Attaches to an export with extended headers and both contexts.
    pub(crate) async fn attach(serving: &Serving, export: &str) -> Self {
        let mut talk = Self::greet(serving, 3).await;
        talk.choose(export).await;
        talk
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Talk<S> {
    /// Answers the server's greeting with these flags.
    pub(crate) async fn answer_greeting(&mut self, flags: u32) {
        assert_eq!(self.bytes(18).await, b"NBDMAGICIHAVEOPT\0\x03");
        self.send(&[&flags.to_be_bytes()]).await;
    }

    /// Chooses an export with extended headers and both contexts.
    pub(crate) async fn choose(&mut self, export: &str) {
        assert_eq!(self.option(11, &[]).await[0].0, 1);
        let queries = [&b"base:allocation"[..], b"gabion:failures-left"];
        let mut data = [&(export.len() as u32).to_be_bytes()[..], export.as_bytes()].concat();
        data.extend(2_u32.to_be_bytes());
        for query in queries {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(query);
        }
        assert_eq!(self.option(10, &data).await.len(), 3);
        let replies = self.option(7, &go(export)).await;
        assert_eq!(replies.last().expect("a reply").0, 1, "{replies:?}");
    }

    pub(crate) async fn send(&mut self, parts: &[&[u8]]) {
        let sent = self.0.write_all(&parts.concat()).await;
        sent.expect("the server reads");
    }

    /// The next bytes, which must come.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let read = timeout(PATIENCE, self.0.read_exact(&mut bytes)).await;
        read.expect("in time").expect("the connection stays");
        bytes
    }

    /// Waits until the server has closed the connection, and gives what it sent before.
    pub(crate) async fn end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await;
        // A reset is an end too.
        let _ = read.expect("the server closes the connection");
        rest
    }

    pub(crate) async fn send_option(&mut self, number: u32, data: &[u8]) {
        let length = (data.len() as u32).to_be_bytes();
        self.send(&[b"IHAVEOPT", &number.to_be_bytes(), &length, data])
            .await;
    }

    /// Sends an option, and gives its replies up to the last one.
    pub(crate) async fn option(&mut self, number: u32, data: &[u8]) -> Vec<OptionReply> {
        self.send_option(number, data).await;
        let mut replies = Vec::new();
        loop {
            let head = self.bytes(20).await;
            assert_eq!(head[..8], [0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9]);
            assert_eq!(head[8..12], number.to_be_bytes());
            let kind = u32::from_be_bytes(head[12..16].try_into().expect("4 bytes"));
            let length = u32::from_be_bytes(head[16..].try_into().expect("4 bytes"));
            let data = self.bytes(length as usize).await;
            replies.push((kind, data));
            if kind == 1 || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    /// Sends an extended request.
    pub(crate) async fn request(
        &mut self,
        kind: (u16, u16),
        cookie: u64,
        range: (u64, u64),
        payload: &[u8],
    ) {
        let header = header(kind, cookie, range);
        self.send(&[&header, payload]).await;
    }

    /// Receives an extended chunk: its cookie, its flags and type, and its payload.
    pub(crate) async fn chunk(&mut self) -> (u64, (u16, u16), Vec<u8>) {
        let head = self.bytes(32).await;
        let number = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(head[..4], 0x6e8a_278c_u32.to_be_bytes());
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let payload = self.bytes(number(24) as usize).await;
        (number(8), (short(4), short(6)), payload)
    }

    /// Receives the only chunk of a reply that is done, or failed with this error.
    pub(crate) async fn outcome(&mut self) -> (u64, u32) {
        let (cookie, (flags, kind), payload) = self.chunk().await;
        assert_eq!(flags, 1);
        if kind == 0 {
            return (cookie, 0);
        }
        assert_eq!(kind, 0x8001);
        let errno = payload[..4].try_into().expect("4 bytes");
        (cookie, u32::from_be_bytes(errno))
    }
}

/// An extended request without its payload.
pub(crate) fn header(
    (kind, flags): (u16, u16),
    cookie: u64,
    (offset, length): (u64, u64),
) -> Vec<u8> {
    let parts = [
        &0x21e4_1c71_u32.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ];
    parts.concat()
}

/// The data of `GO` and `INFO`.
pub(crate) fn go(export: &str) -> Vec<u8> {
    let length = (export.len() as u32).to_be_bytes();
    [&length, export.as_bytes(), &[0, 0]].concat()
}
