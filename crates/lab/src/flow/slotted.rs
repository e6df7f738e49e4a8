//! Links that one flow uses at a time. Each link has a queue; a flow that is first in the queue of every link that it
//! needs sends a slot.
//!
//! A flow keeps its links while it waits for the next one, like reservations in simulators. All flows take links in the
//! order of their numbers, so no flows wait for each other in a circle.

use super::agenda::{Agenda, Due, Token};
use super::fabric::{Fabric, LinkNumber};
use super::script::{Flow, Share};
use std::collections::VecDeque;

const NS_PER_S: f64 = 1e9;

#[derive(Debug)]
struct Sender {
    shares: Vec<Share>,
    token: Token,
    left_bytes: f64,
    /// Links that it holds, of its first ones.
    held_count: usize,
}

#[derive(Clone, Debug, Default)]
struct Line {
    holder: Option<u32>,
    waiting: VecDeque<u32>,
}

/// Flows under way and the lines in which they wait.
#[derive(Debug)]
pub(super) struct Slotted {
    slot_bytes: f64,
    /// By link.
    bytes_per_s: Vec<f64>,
    /// By link.
    lines: Vec<Line>,
    senders: Vec<Sender>,
    /// Places in `senders` of flows that have ended.
    free: Vec<u32>,
}

impl Slotted {
    pub(super) fn new(fabric: &Fabric, slot_bytes: u64) -> Self {
        assert!(slot_bytes > 0, "a slot has bytes");
        let links = (0..fabric.link_count() as u32).map(LinkNumber);
        Self {
            slot_bytes: slot_bytes as f64,
            bytes_per_s: links.map(|link| fabric.bytes_per_s(link)).collect(),
            lines: vec![Line::default(); fabric.link_count()],
            senders: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn start(&mut self, flow: Flow, token: Token, now_ns: u64, agenda: &mut Agenda) {
        let sender = Sender {
            shares: flow.shares,
            token,
            left_bytes: flow.bytes,
            held_count: 0,
        };
        let number = if let Some(number) = self.free.pop() {
            self.senders[number as usize] = sender;
            number
        } else {
            self.senders.push(sender);
            self.senders.len() as u32 - 1
        };
        self.take_links(number, now_ns, agenda);
    }

    /// Whether a flow holds a link.
    pub(super) fn is_held(&self, link: LinkNumber) -> bool {
        self.lines[link.at()].holder.is_some()
    }

    /// A flow's slot has crossed: its links go to the next in line. Gives the flow's token if it was the
    /// last slot.
    pub(super) fn slot_ends(
        &mut self,
        number: u32,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<Token> {
        let shares = std::mem::take(&mut self.senders[number as usize].shares);
        let sender = &mut self.senders[number as usize];
        sender.left_bytes -= self.slot_bytes;
        sender.held_count = 0;
        for share in &shares {
            let line = &mut self.lines[share.link.at()];
            assert_eq!(line.holder.take(), Some(number), "a sender holds its links");
            if let Some(next) = line.waiting.pop_front() {
                line.holder = Some(next);
                self.senders[next as usize].held_count += 1;
                self.take_links(next, now_ns, agenda);
            }
        }
        let sender = &mut self.senders[number as usize];
        sender.shares = shares;
        if sender.left_bytes > 0.0 {
            self.take_links(number, now_ns, agenda);
            return None;
        }
        let token = sender.token;
        self.free.push(number);
        Some(token)
    }

    /// Takes links one after another; sends a slot once it has all, and stands in line where it cannot.
    fn take_links(&mut self, number: u32, now_ns: u64, agenda: &mut Agenda) {
        let sender = &mut self.senders[number as usize];
        while let Some(share) = sender.shares.get(sender.held_count) {
            let line = &mut self.lines[share.link.at()];
            if line.holder.is_some() {
                line.waiting.push_back(number);
                return;
            }
            line.holder = Some(number);
            sender.held_count += 1;
        }
        let bytes = sender.left_bytes.min(self.slot_bytes);
        let seconds = |share: &Share| bytes * share.weight / self.bytes_per_s[share.link.at()];
        let slowest_s = sender.shares.iter().map(seconds).fold(0.0, f64::max);
        agenda.set(
            now_ns + (slowest_s * NS_PER_S).ceil() as u64,
            Due::Slot(number),
        );
    }
}
