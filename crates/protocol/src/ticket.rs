//! Tickets: the coordinator's permissions for a client to use some stripes for a limited time. A node checks a ticket
//! without asking another process, by a key that it shares with the coordinator. Clients never see the keys.
//!
//! All times are of the coordinators' total run time, which continues after a restart. A node gets it with the keys and
//! continues to count by its own clock.

use gabion_layout::{Generation, StripeId};
use gabion_meta::{PutId, Secret, TicketKey};
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use thiserror::Error;

/// Bytes of a ticket's message authentication code: HMAC-SHA-256, cut to 128 bits.
const MAC_BYTES: usize = 16;
/// Bytes that the code is made of.
const SIGNED_BYTES: usize = 41;

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operations(u8);

impl Operations {
    /// Reading, and asking the primary up to which update the stripe is settled.
    pub const READ: Self = Self(1);
    /// Staging bytes, updating by them, and asking for the fate of an update.
    pub const UPDATE: Self = Self(2);
    /// Storing the chunks of a new stripe.
    pub const INSTALL: Self = Self(4);
    /// The operations of clients on stripes of files.
    pub const OF_FILE: Self = Self(Self::READ.0 | Self::UPDATE.0);

    /// Whether all of these operations are among them.
    pub const fn include(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The permission of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The put that made the file, or that is to store the stripes.
    pub put: PutId,
    /// The first stripe.
    pub first: StripeId,
    /// The number of stripes with consecutive ids.
    pub count: u32,
    /// Their generation: after a repair, the ticket is worth nothing.
    pub generation: Generation,
    /// The operations.
    pub operations: Operations,
}

impl Grant {
    /// Whether it is about a stripe.
    const fn covers(&self, stripe: StripeId) -> bool {
        stripe.0 >= self.first.0 && stripe.0 - self.first.0 < self.count as u64
    }
}

/// A grant that only the coordinator can make.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Its permission.
    pub grant: Grant,
    /// The number of the key that it was made with.
    pub key: u32,
    /// From then on it is refused.
    pub expires_ms: u64,
    /// The code that proves all this.
    pub mac: [u8; MAC_BYTES],
}

/// The code stays out of logs, because every process that has it may use the ticket.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            grant,
            key,
            expires_ms,
            ..
        } = self;
        write!(f, "Ticket({grant:?}, key {key}, until {expires_ms} ms)")
    }
}

impl Ticket {
    /// The ticket for a stripe among several.
    pub fn find(tickets: &[Self], stripe: StripeId) -> Option<Self> {
        let mut tickets = tickets.iter();
        tickets.find(|ticket| ticket.grant.covers(stripe)).copied()
    }

    fn signed_bytes(&self) -> [u8; SIGNED_BYTES] {
        let Grant {
            put,
            first,
            count,
            generation,
            operations,
        } = self.grant;
        let mut bytes = [0; SIGNED_BYTES];
        let fields: [&[u8]; 7] = [
            &put.0.to_be_bytes(),
            &first.0.to_be_bytes(),
            &count.to_be_bytes(),
            &generation.0.to_be_bytes(),
            &[operations.0],
            &self.key.to_be_bytes(),
            &self.expires_ms.to_be_bytes(),
        ];
        let mut at = 0;
        for field in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        bytes
    }

    fn code(&self, key: &hmac::Key) -> [u8; MAC_BYTES] {
        cut(hmac::sign(key, &self.signed_bytes()))
    }
}

/// A put, as the client names it that has begun it. No other client can: the proof is a code of the put's id, made with
/// a key that stays with the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPut {
    /// The put.
    pub id: PutId,
    /// The code.
    proof: [u8; MAC_BYTES],
}

/// The code stays out of logs.
impl fmt::Debug for OpenPut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

/// The key that ties puts to their clients.
pub(crate) struct PutKey(hmac::Key);

impl PutKey {
    /// The key in the form in which it is used.
    pub(crate) fn new(secret: &Secret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &secret.0))
    }

    /// Returns the put's id and its proof for the client that begins it.
    pub(crate) fn open(&self, id: PutId) -> OpenPut {
        let proof = cut(hmac::sign(&self.0, &id.0.to_be_bytes()));
        OpenPut { id, proof }
    }

    /// The put, if its own client names it.
    pub(crate) fn check(&self, named: OpenPut) -> Option<PutId> {
        is_same(self.open(named.id).proof, named.proof).then_some(named.id)
    }
}

/// A code, cut to its length.
fn cut(tag: hmac::Tag) -> [u8; MAC_BYTES] {
    let mut code = [0; MAC_BYTES];
    code.copy_from_slice(&tag.as_ref()[..MAC_BYTES]);
    code
}

/// Whether two codes are the same. They are compared as numbers, which takes the same time wherever they differ.
fn is_same(code: [u8; MAC_BYTES], other: [u8; MAC_BYTES]) -> bool {
    u128::from_ne_bytes(code) == u128::from_ne_bytes(other)
}

/// The operation and the stripe for which a request needs a ticket, and its ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The operation.
    pub operation: Operations,
    /// The stripe.
    pub stripe: StripeId,
    /// The generation, if the request names one.
    pub generation: Option<Generation>,
    /// The file, if the request names one.
    pub file: Option<PutId>,
    /// The ticket that came with the request.
    pub ticket: Option<Ticket>,
}

/// The reason why a node does not accept a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, Error)]
pub enum TicketFault {
    /// The request has none.
    #[error("the request has no ticket")]
    Missing,
    /// The node has not heard of its key yet.
    #[error("the node does not have the key of the ticket")]
    UnknownKey,
    /// No coordinator has made it.
    #[error("the ticket is forged")]
    Forged,
    /// It does not cover the stripe.
    #[error("the ticket is for other stripes")]
    OtherStripe,
    /// It does not permit the operation.
    #[error("the ticket does not permit this operation")]
    OtherOperation,
    /// The stripe has another generation in the request.
    #[error("the ticket is for another generation of the stripe")]
    OtherGeneration,
    /// The request names another file.
    #[error("the ticket is for another file")]
    OtherFile,
    /// It has expired.
    #[error("the ticket has expired")]
    Expired,
}

/// The coordinator's information about its tickets for nodes, and for no other process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TicketKeys {
    /// The present time.
    pub now_ms: u64,
    /// For how long a node that does not hear the coordinator accepts expired tickets.
    pub grace_ms: u64,
    /// The live keys.
    pub keys: Vec<TicketKey>,
}

/// A key that is ready for use.
#[derive(Clone, Debug)]
pub struct ReadyKey {
    number: u32,
    key: hmac::Key,
}

impl ReadyKey {
    /// The key in the form in which it is used.
    pub fn new(key: &TicketKey) -> Self {
        Self {
            number: key.number,
            key: hmac::Key::new(hmac::HMAC_SHA256, &key.secret.0),
        }
    }

    /// Makes a ticket.
    pub fn sign(&self, grant: Grant, expires_ms: u64) -> Ticket {
        let mut ticket = Ticket {
            grant,
            key: self.number,
            expires_ms,
            mac: [0; MAC_BYTES],
        };
        ticket.mac = ticket.code(&self.key);
        ticket
    }
}

/// Earlier keys that a node remembers: those of a day, if a key is drawn each hour.
const PAST_KEY_COUNT: usize = 25;

/// The keys of a node.
#[derive(Debug, Default)]
pub struct Keyring {
    told: TicketKeys,
    keys: Vec<ReadyKey>,
    /// Earlier keys, oldest first: a node that does not hear the coordinator still lets their tickets read.
    past: VecDeque<ReadyKey>,
    /// By the node's clock, the time at which the coordinator's was `told.now_ms` at the latest.
    told_ms: u64,
}

impl Keyring {
    /// Takes the coordinator's answer to a request that was sent at `sent_ms` by the node's clock.
    pub fn learn(&mut self, told: TicketKeys, sent_ms: u64) {
        if told.keys != self.told.keys {
            let keys = told.keys.iter().map(ReadyKey::new).collect();
            let earlier = std::mem::replace(&mut self.keys, keys);
            let is_told = |key: &ReadyKey| told.keys.iter().any(|told| told.number == key.number);
            self.past
                .extend(earlier.into_iter().filter(|key| !is_told(key)));
            let surplus = self.past.len().saturating_sub(PAST_KEY_COUNT);
            self.past.drain(..surplus);
        }
        (self.told, self.told_ms) = (told, sent_ms);
    }

    /// What the coordinator has told last.
    pub(crate) fn told(&self) -> TicketKeys {
        self.told.clone()
    }

    /// Checks the ticket of a request. A node that `is_cut_off` from the coordinator accepts it for some time after it
    /// has expired, because its client may not be able to get another one.
    ///
    /// # Errors
    /// The reason for which it does not permit the request.
    pub fn check(&self, claim: &Claim, now_ms: u64, is_cut_off: bool) -> Result<(), TicketFault> {
        let ticket = claim.ticket.ok_or(TicketFault::Missing)?;
        let is_its = |key: &&ReadyKey| key.number == ticket.key;
        let mut key = self.keys.iter().find(is_its);
        if is_cut_off && claim.operation == Operations::READ {
            key = key.or_else(|| self.past.iter().find(is_its));
        }
        let is_older = || self.keys.iter().all(|key| ticket.key < key.number);
        let key = match key {
            Some(key) => key,
            // The client needs a new ticket; the node lacks nothing.
            None if !self.keys.is_empty() && is_older() => return Err(TicketFault::Expired),
            None => return Err(TicketFault::UnknownKey),
        };
        if !is_same(ticket.code(&key.key), ticket.mac) {
            return Err(TicketFault::Forged);
        }
        let grant = &ticket.grant;
        if !grant.covers(claim.stripe) {
            return Err(TicketFault::OtherStripe);
        }
        if !grant.operations.include(claim.operation) {
            return Err(TicketFault::OtherOperation);
        }
        if claim
            .generation
            .is_some_and(|named| named != grant.generation)
        {
            return Err(TicketFault::OtherGeneration);
        }
        if claim.file.is_some_and(|named| named != grant.put) {
            return Err(TicketFault::OtherFile);
        }
        let passed_ms = now_ms.saturating_sub(self.told_ms);
        let grace_ms = if is_cut_off { self.told.grace_ms } else { 0 };
        if self.told.now_ms.saturating_add(passed_ms) >= ticket.expires_ms.saturating_add(grace_ms)
        {
            return Err(TicketFault::Expired);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANT: Grant = Grant {
        put: PutId(3),
        first: StripeId(10),
        count: 4,
        generation: Generation(2),
        operations: Operations::OF_FILE,
    };

    fn key(number: u32) -> TicketKey {
        TicketKey {
            number,
            secret: Secret([number as u8; 32]),
            drawn_ms: 0,
        }
    }

    /// A node that was told two keys at its time 500, when the coordinator's was 10,000.
    fn keyring() -> Keyring {
        let mut keyring = Keyring::default();
        let told = TicketKeys {
            now_ms: 10_000,
            grace_ms: 5_000,
            keys: vec![key(7), key(8)],
        };
        keyring.learn(told, 500);
        keyring
    }

    fn claim(ticket: Ticket) -> Claim {
        Claim {
            operation: Operations::UPDATE,
            stripe: StripeId(12),
            generation: Some(Generation(2)),
            file: Some(PutId(3)),
            ticket: Some(ticket),
        }
    }

    fn ticket() -> Ticket {
        ReadyKey::new(&key(8)).sign(GRANT, 11_000)
    }

    fn check_at_600(claim: Claim) -> Result<(), TicketFault> {
        keyring().check(&claim, 600, false)
    }

    #[test]
    fn a_put_is_its_clients_alone() {
        let key = PutKey::new(&Secret([3; 32]));
        let own = key.open(PutId(7));
        assert_eq!(key.check(own), Some(PutId(7)));
        // The client of another put, another cluster's coordinator, and a guess.
        let other = key.open(PutId(8));
        let renamed = OpenPut {
            id: own.id,
            ..other
        };
        let foreign = PutKey::new(&Secret([4; 32])).open(own.id);
        let mut guess = own;
        guess.proof[MAC_BYTES - 1] ^= 1;
        for stranger in [renamed, foreign, guess] {
            assert_eq!(key.check(stranger), None);
        }
        assert_eq!(format!("{own:?}"), format!("{:?}", own.id));
    }

    #[test]
    fn a_ticket_permits_what_it_says_and_nothing_else() {
        let (check, good) = (check_at_600, claim(ticket()));
        assert_eq!(check(good), Ok(()));
        let unnamed = Claim {
            generation: None,
            file: None,
            ..good
        };
        assert_eq!(check(unnamed), Ok(()));
        let older = claim(ReadyKey::new(&key(7)).sign(GRANT, 11_000));
        assert_eq!(check(older), Ok(()), "two keys are live");
        let refused = [
            (
                Claim {
                    ticket: None,
                    ..good
                },
                TicketFault::Missing,
            ),
            (
                Claim {
                    stripe: StripeId(9),
                    ..good
                },
                TicketFault::OtherStripe,
            ),
            (
                Claim {
                    stripe: StripeId(14),
                    ..good
                },
                TicketFault::OtherStripe,
            ),
            (
                Claim {
                    operation: Operations::INSTALL,
                    ..good
                },
                TicketFault::OtherOperation,
            ),
            (
                Claim {
                    generation: Some(Generation(1)),
                    ..good
                },
                TicketFault::OtherGeneration,
            ),
            (
                Claim {
                    generation: Some(Generation(3)),
                    ..good
                },
                TicketFault::OtherGeneration,
            ),
            (
                Claim {
                    file: Some(PutId(4)),
                    ..good
                },
                TicketFault::OtherFile,
            ),
        ];
        for (claim, fault) in refused {
            assert_eq!(check(claim), Err(fault));
        }
        for (number, fault) in [(6, TicketFault::Expired), (9, TicketFault::UnknownKey)] {
            let of_key = ReadyKey::new(&key(number)).sign(GRANT, 11_000);
            assert_eq!(check(claim(of_key)), Err(fault));
        }
    }

    #[test]
    fn a_ticket_with_any_changed_field_is_forged() {
        let good = ticket();
        let grant = |change: &dyn Fn(&mut Grant)| {
            let mut ticket = good;
            change(&mut ticket.grant);
            ticket
        };
        let mut forged = vec![
            grant(&|grant| grant.put.0 += 1),
            grant(&|grant| grant.first.0 -= 1),
            grant(&|grant| grant.count += 1),
            grant(&|grant| grant.generation.0 += 1),
            grant(&|grant| grant.operations = Operations(7)),
            Ticket { key: 7, ..good },
            Ticket {
                expires_ms: 12_000,
                ..good
            },
        ];
        for at in 0..MAC_BYTES {
            let mut mac = good.mac;
            mac[at] ^= 1;
            forged.push(Ticket { mac, ..good });
        }
        for ticket in forged {
            let checked = keyring().check(&claim(ticket), 600, false);
            assert_eq!(checked, Err(TicketFault::Forged), "{ticket:?}");
        }
    }

    #[test]
    fn an_earlier_key_lets_clients_read_at_a_node_without_its_coordinator() {
        let mut keyring = keyring();
        let told = TicketKeys {
            now_ms: 10_000,
            grace_ms: 5_000,
            keys: vec![key(9), key(10)],
        };
        keyring.learn(told, 500);
        let reads = Claim {
            operation: Operations::READ,
            ..claim(ticket())
        };
        assert_eq!(keyring.check(&reads, 600, false), Err(TicketFault::Expired));
        assert_eq!(keyring.check(&reads, 600, true), Ok(()));
        assert_eq!(
            keyring.check(&reads, 6_500, true),
            Err(TicketFault::Expired)
        );
        let updates = keyring.check(&claim(ticket()), 600, true);
        assert_eq!(updates, Err(TicketFault::Expired));
        for number in 11..60 {
            let told = TicketKeys {
                keys: vec![key(number)],
                ..keyring.told.clone()
            };
            keyring.learn(told, 500);
        }
        assert_eq!(keyring.past.len(), PAST_KEY_COUNT);
        assert_eq!(keyring.check(&reads, 600, true), Err(TicketFault::Expired));
    }

    #[test]
    fn a_ticket_expires_later_at_a_node_without_its_coordinator() {
        let keyring = keyring();
        let check = |now_ms, is_cut_off| keyring.check(&claim(ticket()), now_ms, is_cut_off);
        // 10,999 and 11,000 by the coordinator's clock.
        assert_eq!(check(1_499, false), Ok(()));
        assert_eq!(check(1_500, false), Err(TicketFault::Expired));
        assert_eq!(check(6_499, true), Ok(()));
        assert_eq!(check(6_500, true), Err(TicketFault::Expired));
    }

    #[test]
    fn a_key_that_is_told_no_more_makes_no_ticket_good() {
        let mut keyring = keyring();
        let told = TicketKeys {
            now_ms: 10_000,
            grace_ms: 0,
            keys: vec![key(8), key(9)],
        };
        keyring.learn(told, 500);
        let older = ReadyKey::new(&key(7)).sign(GRANT, 11_000);
        let checked = keyring.check(&claim(older), 600, false);
        assert_eq!(checked, Err(TicketFault::Expired));
        assert_eq!(keyring.check(&claim(ticket()), 600, false), Ok(()));
    }
}
