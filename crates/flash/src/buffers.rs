//! The buffers in the non-volatile memory: which stripe each is for, and which of its slots are free.
//!
//! A page that is written again while it is still in a buffer goes to another slot, and its old slot is
//! used again once the new one is durable. So a buffer fills up only with pages that differ, and what is
//! rewritten all the time never reaches the devices.

use std::collections::VecDeque;

/// A buffer in use.
#[derive(Clone, Debug)]
struct Buffer {
    stripe: u32,
    free: Vec<u32>,
    /// Slots whose page is elsewhere, but perhaps not yet durably.
    retired_count: usize,
}

/// A slot that may be used again once everything up to a ticket is durable.
#[derive(Clone, Copy, Debug)]
struct Retired {
    ticket: u64,
    buffer: usize,
    stripe: u32,
    slot: u32,
}

/// What a group's buffer has for another page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// A slot of a buffer, taken.
    Slot {
        buffer: usize,
        stripe: u32,
        slot: u32,
    },
    /// None, but there will be once more is durable.
    Retired,
    /// The group has no open buffer. If it had a full one, that waits to be flushed now.
    None,
}

/// All buffers.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    all: Vec<Option<Buffer>>,
    /// The open buffer of each group.
    open: Vec<Option<usize>>,
    full: VecDeque<usize>,
    retired: VecDeque<Retired>,
    slot_count: u32,
}

impl Buffers {
    pub(crate) fn new(buffer_count: usize, group_count: usize, slot_count: u32) -> Self {
        Self {
            all: vec![None; buffer_count],
            open: vec![None; group_count],
            full: VecDeque::new(),
            retired: VecDeque::new(),
            slot_count,
        }
    }

    /// A buffer that a restart found, with its free slots. It is some group's again if one has none and
    /// there are free slots, otherwise it waits to be flushed.
    pub(crate) fn restore(&mut self, buffer: usize, stripe: u32, free: Vec<u32>) {
        let group = self.open.iter().position(Option::is_none);
        match group.filter(|_| !free.is_empty()) {
            Some(group) => self.open[group] = Some(buffer),
            None => self.full.push_back(buffer),
        }
        self.all[buffer] = Some(Buffer {
            stripe,
            free,
            retired_count: 0,
        });
    }

    /// A buffer that nothing is in.
    pub(crate) fn idle(&self) -> Option<usize> {
        self.all.iter().position(Option::is_none)
    }

    /// Gives a group an idle buffer for a stripe.
    pub(crate) fn open(&mut self, group: usize, buffer: usize, stripe: u32) {
        self.all[buffer] = Some(Buffer {
            stripe,
            // Slots are taken from the end, so the first is the last here.
            free: (0..self.slot_count).rev().collect(),
            retired_count: 0,
        });
        self.open[group] = Some(buffer);
    }

    /// Takes a slot of the group's buffer. A buffer with few slots to come is given up as full, since a
    /// sync for each few of them would cost more than it spares.
    pub(crate) fn take(&mut self, group: usize) -> Room {
        let Some(index) = self.open[group] else {
            return Room::None;
        };
        let Some(buffer) = &mut self.all[index] else {
            return Room::None;
        };
        if let Some(slot) = buffer.free.pop() {
            return Room::Slot {
                buffer: index,
                stripe: buffer.stripe,
                slot,
            };
        }
        if buffer.retired_count * 8 >= self.slot_count as usize {
            return Room::Retired;
        }
        self.give_up(group);
        Room::None
    }

    /// The group's buffer waits to be flushed.
    pub(crate) fn give_up(&mut self, group: usize) {
        if let Some(index) = self.open[group].take() {
            self.full.push_back(index);
        }
    }

    /// A group with a free slot, whichever.
    pub(crate) fn group_with_room(&self) -> Option<usize> {
        let has_room = |open: &Option<usize>| {
            let buffer = open.and_then(|index| self.all[index].as_ref());
            buffer.is_some_and(|buffer| !buffer.free.is_empty())
        };
        self.open.iter().position(has_room)
    }

    /// The group whose buffer has the fewest free slots, and will be flushed next.
    pub(crate) fn fullest_group(&self) -> usize {
        let free = |group: &usize| {
            let buffer = self.open[*group].and_then(|index| self.all[index].as_ref());
            buffer.map_or(usize::MAX, |buffer| buffer.free.len())
        };
        (0..self.open.len()).min_by_key(free).unwrap_or(0)
    }

    /// A slot's page is elsewhere since this ticket.
    pub(crate) fn retire(&mut self, index: usize, stripe: u32, slot: u32, ticket: u64) {
        if let Some(buffer) = &mut self.all[index] {
            buffer.retired_count += 1;
            self.retired.push_back(Retired {
                ticket,
                buffer: index,
                stripe,
                slot,
            });
        }
    }

    /// Everything up to a ticket is durable: slots that waited for it may be used again.
    pub(crate) fn settle(&mut self, ticket: u64) {
        while let Some(retired) = self.retired.front().copied()
            && retired.ticket <= ticket
        {
            self.retired.pop_front();
            // The buffer may be another stripe's by now, or on its way to the devices as it is.
            let is_open = self.open.contains(&Some(retired.buffer));
            if let Some(buffer) = &mut self.all[retired.buffer]
                && buffer.stripe == retired.stripe
            {
                buffer.retired_count -= 1;
                if is_open {
                    buffer.free.push(retired.slot);
                }
            }
        }
    }

    /// Takes a buffer that waits to be flushed, and its stripe.
    pub(crate) fn next_full(&mut self) -> Option<(usize, u32)> {
        let index = self.full.pop_front()?;
        let buffer = self.all[index].as_ref();
        Some((index, buffer.expect("a full buffer is in use").stripe))
    }

    /// Whether a buffer waits to be flushed.
    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// The buffer's stripe is on the devices: nothing is in it any more.
    pub(crate) fn release(&mut self, index: usize) {
        self.all[index] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_only_once_its_successor_is_durable() {
        let mut buffers = Buffers::new(3, 2, 8);
        assert_eq!(buffers.take(1), Room::None);
        let idle = buffers.idle().unwrap();
        buffers.open(1, idle, 40);
        let slot = |slot| Room::Slot {
            buffer: idle,
            stripe: 40,
            slot,
        };
        for number in 0..8 {
            assert_eq!(buffers.take(1), slot(number));
        }
        buffers.retire(idle, 40, 3, 17);
        assert_eq!(buffers.take(1), Room::Retired);
        buffers.settle(16);
        assert_eq!(buffers.take(1), Room::Retired);
        buffers.settle(17);
        assert_eq!(buffers.group_with_room(), Some(1));
        assert_eq!(buffers.take(1), slot(3));
        assert_eq!(buffers.take(1), Room::None, "full");
        assert_eq!(buffers.next_full(), Some((idle, 40)));
        // What is retired while it is flushed does not come back, not even for the next stripe.
        buffers.retire(idle, 40, 5, 18);
        buffers.release(idle);
        buffers.open(0, idle, 41);
        buffers.settle(18);
        for _ in 0..8 {
            assert!(matches!(buffers.take(0), Room::Slot { stripe: 41, .. }));
        }
        assert_eq!(buffers.take(0), Room::None);
    }
}
