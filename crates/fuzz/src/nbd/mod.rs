//! Clients of network block devices: handshakes and requests of any form, on a connection in memory.

mod device;

use crate::script::Script;
use crate::target::Target;
use device::Shelf;
use gabion_nbd::{Limits, Server};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};

/// The target.
pub(crate) const TARGET: Target = Target {
    name: "nbd",
    run,
    seeds,
    input_bytes_max: 1024,
    // The requests of one connection hold at most 96 MiB, and their replies as much.
    memory_bytes_max: 224 << 20,
    test_input_count: 12_000,
};

/// Options and requests of an input.
const ITEM_COUNT_MAX: usize = 24;
/// Bytes on the way between client and server.
const PIPE_BYTES: usize = 64 << 10;
/// The most bytes of replies that are read: a short request may have a long reply.
const REPLY_BYTES_MAX: u64 = 64 << 20;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a run-time of one thread needs no resources");
}

/// Greets the server, sends what the input says, and reads all replies.
fn run(input: &[u8]) {
    let request_bytes = conversation(&mut Script::new(input));
    let limits = Limits {
        handshake: Duration::from_secs(20),
        stall: Duration::from_secs(20),
        ..Limits::default()
    };
    let received = RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let server = Server::new(Arc::new(Shelf::new()), limits);
            let (mine, theirs) = duplex(PIPE_BYTES);
            let (reader, mut writer) = tokio::io::split(mine);
            let send = async {
                // A server that has closed the connection takes no more.
                let _ = writer.write_all(&request_bytes).await;
                let _ = writer.shutdown().await;
            };
            let receive = async {
                let mut count = 0;
                let mut head = Vec::new();
                let mut reader = reader.take(REPLY_BYTES_MAX);
                let mut buffer = vec![0; PIPE_BYTES];
                while let Ok(read @ 1..) = reader.read(&mut buffer).await {
                    if head.len() < 18 {
                        head.extend_from_slice(&buffer[..read]);
                    }
                    count += read;
                }
                (head, count)
            };
            let serve = server.serve_in_memory(theirs);
            let ((), (), received) = tokio::join!(serve, send, receive);
            received
        })
    });
    let (head, _) = received;
    assert!(
        head.starts_with(b"NBDMAGICIHAVEOPT"),
        "it begins with {head:?}"
    );
}

/// The bytes that a client sends.
fn conversation(script: &mut Script<'_>) -> Vec<u8> {
    let choice = script.u8();
    let mut sent = Vec::new();
    let flags = if choice & 0x80 == 0 { 3 } else { script.u32() };
    sent.extend(flags.to_be_bytes());
    let style = choice % 4;
    if style > 0 {
        attach(style, choice >> 2, &mut sent);
    }
    for _ in 0..ITEM_COUNT_MAX {
        if script.is_empty() {
            break;
        }
        match script.u8() % 4 {
            0 => sent.extend(script.piece()),
            1 if style == 0 => option(u32::from(script.u8() % 13), script.piece(), &mut sent),
            2 if style == 0 => named_option(script, &mut sent),
            _ => request(style, script, &mut sent),
        }
    }
    sent
}

/// Chooses an export with simple, structured or extended replies.
fn attach(style: u8, export: u8, sent: &mut Vec<u8>) {
    const STRUCTURED: u32 = 8;
    const EXTENDED: u32 = 11;
    const CONTEXTS: u32 = 10;
    const GO: u32 = 7;
    let name = Shelf::NAMES[usize::from(export) % Shelf::NAMES.len()].as_bytes();
    let length = (name.len() as u32).to_be_bytes();
    match style {
        1 => {}
        2 => option(STRUCTURED, b"", sent),
        _ => option(EXTENDED, b"", sent),
    }
    if style > 1 {
        let mut data = [&length[..], name, &2_u32.to_be_bytes()].concat();
        for query in [&b"base:allocation"[..], b"gabion:failures-left"] {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(query);
        }
        option(CONTEXTS, &data, sent);
    }
    option(GO, &[&length[..], name, &[0, 0]].concat(), sent);
}

fn option(number: u32, data: &[u8], sent: &mut Vec<u8>) {
    sent.extend(b"IHAVEOPT");
    sent.extend(number.to_be_bytes());
    sent.extend((data.len() as u32).to_be_bytes());
    sent.extend(data);
}

/// An option whose data begin with an export's name and numbers that may be wrong.
fn named_option(script: &mut Script<'_>, sent: &mut Vec<u8>) {
    let number = u32::from(script.u8() % 13);
    let name = Shelf::NAMES[usize::from(script.u8()) % Shelf::NAMES.len()].as_bytes();
    let length = match script.u8() {
        wrong @ 250.. => u32::from(wrong) << 24,
        wrong @ 240.. => u32::from(wrong),
        _ => name.len() as u32,
    };
    let mut data = [&length.to_be_bytes()[..], name].concat();
    data.extend(script.piece());
    option(number, &data, sent);
}

/// A request of any type, flags and range.
fn request(style: u8, script: &mut Script<'_>, sent: &mut Vec<u8>) {
    let is_extended = style == 3;
    let magic: u32 = if is_extended {
        0x21e4_1c71
    } else {
        0x2560_9513
    };
    let (kind, flags) = (script.u8(), script.u8());
    let cookie = u64::from(script.u8());
    let offset = match script.u8() {
        any @ 192.. => script.number() << (any & 1),
        near => u64::from(near) << 12,
    };
    let length = match script.u8() {
        240.. => script.number(),
        near => u64::from(near) << 8,
    };
    let flags = u16::from(flags & 0x3f) | u16::from(flags >> 7) << 8;
    sent.extend(magic.to_be_bytes());
    sent.extend(flags.to_be_bytes());
    sent.extend(u16::from(kind % 10).to_be_bytes());
    sent.extend(cookie.to_be_bytes());
    sent.extend(offset.to_be_bytes());
    if is_extended {
        sent.extend(length.to_be_bytes());
    } else {
        sent.extend((length as u32).to_be_bytes());
    }
    // A write's payload, as long as it is short.
    if kind % 10 == 1 {
        sent.resize(sent.len() + length.min(128 << 10) as usize, cookie as u8);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for number in 0..13 {
        seeds.push(vec![0, 1, number, 0]);
        seeds.push(vec![0, 1, number, 3, 1, 2, 3]);
        for name in 0..3 {
            seeds.push(vec![
                0, 2, number, name, 0, 2, 0, 0, 2, number, name, 0, 2, 0, 0,
            ]);
        }
    }
    for style in 1..4_u8 {
        for kind in 0..9 {
            let one = [3, kind, 0, 7, 2, 16];
            let other = [3, kind, 0x2a, 8, 3, 1];
            seeds.push([&[style][..], &one, &other, &[3, 2, 0, 0, 0, 0]].concat());
            seeds.push([&[style | 4][..], &one, &[0, 4, 1, 2, 3, 4]].concat());
        }
    }
    seeds
}
