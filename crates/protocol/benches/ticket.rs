//! Measures the time in which a node checks a client's ticket, and in which the coordinator makes one.
//!
//! `cargo bench -p gabion-protocol --bench ticket [-- --quick]`; `--quick` takes a tenth.

use gabion_layout::{Generation, StripeId};
use gabion_meta::{PutId, Secret, TicketKey};
use gabion_protocol::message::TicketKeys;
use gabion_protocol::ticket::{Claim, Grant, Keyring, Operations, ReadyKey};
use std::hint::black_box;
use std::time::Instant;

const COUNT: u64 = 1_000_000;
/// The goal for a check, in nanoseconds.
const GOAL_NS: f64 = 1_000.0;
const EXPIRES_MS: u64 = 1_000;

fn key(number: u32) -> TicketKey {
    TicketKey {
        number,
        secret: Secret([7; 32]),
        drawn_ms: 0,
    }
}

/// Nanoseconds that each of many rounds takes.
fn time(count: u64, mut round: impl FnMut(u64)) -> f64 {
    let began = Instant::now();
    (0..count).for_each(&mut round);
    began.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let count = if is_quick { COUNT / 10 } else { COUNT };
    let mut keyring = Keyring::default();
    let keys = vec![key(1), key(2)];
    let told = TicketKeys {
        now_ms: 0,
        grace_ms: 0,
        keys,
    };
    keyring.learn(told, 0);
    let ready = ReadyKey::new(&key(2));
    let grant = |first| Grant {
        put: PutId(first),
        first: StripeId(first),
        count: 4,
        generation: Generation(1),
        operations: Operations::OF_FILE,
    };
    let sign_ns = time(count, |number| {
        black_box(ready.sign(grant(number), EXPIRES_MS));
    });
    let ticket = Some(ready.sign(grant(5), EXPIRES_MS));
    let claim = |now| Claim {
        operation: Operations::READ,
        stripe: StripeId(6 + now % 3),
        generation: Some(Generation(1)),
        file: Some(PutId(5)),
        ticket,
    };
    let check_ns = time(count, |number| {
        let checked = keyring.check(&black_box(claim(number)), 1, false);
        checked.expect("the ticket is good");
    });
    println!("make a ticket     {sign_ns:7.0} ns");
    println!("check a ticket    {check_ns:7.0} ns, may take {GOAL_NS:.0}");
}
