//! The buffers in the non-volatile memory: the stripe of each, and its free slots.
//!
//! A page that is rewritten while it is in a buffer goes to another slot, and its old slot is
//! reused once the new one is durable. So a buffer fills only with distinct pages, and a constantly
//! rewritten page never reaches the devices.
//!
//! A full buffer stays, and takes pages of its group in slots that become free, until no other
//! buffer is idle. Then the fullest is flushed, so that stripes have as few holes as possible. The
//! longer pages stay, the more of them are rewritten before they cost a device write.

use std::collections::VecDeque;

/// A buffer in use.
#[derive(Clone, Debug)]
struct Buffer {
    stripe: u32,
    group: usize,
    /// Invariant: empty unless the buffer takes pages.
    free: Vec<u32>,
    /// Slots whose page has moved, but perhaps not durably yet.
    retired_count: usize,
    /// Whether free slots are reused: not while it is being flushed, nor when it is too old.
    takes_pages: bool,
}

/// A slot that may be reused once everything up to a ticket is durable.
#[derive(Clone, Copy, Debug)]
struct Retired {
    ticket: u64,
    buffer: usize,
    stripe: u32,
    slot: u32,
}

/// Space for another page in a group's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// A slot of a buffer, now taken.
    Slot {
        buffer: usize,
        stripe: u32,
        slot: u32,
    },
    /// None yet; slots become free once more is durable.
    Retired,
    /// None, and the group has no open buffer. If it had one, that now counts as full.
    None,
}

/// All buffers.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    all: Vec<Option<Buffer>>,
    /// The open buffer of each group.
    open: Vec<Option<usize>>,
    /// Buffers that were open and became full, oldest first.
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

    /// Adds a buffer found at a restart, with its free slots. It becomes a group's open one if a
    /// group has none and there are free slots, otherwise it counts as full.
    pub(crate) fn restore(&mut self, buffer: usize, stripe: u32, free: Vec<u32>) {
        let group = self.open.iter().position(Option::is_none);
        let group = group.filter(|_| !free.is_empty());
        match group {
            Some(group) => self.open[group] = Some(buffer),
            None => self.full.push_back(buffer),
        }
        self.all[buffer] = Some(Buffer {
            stripe,
            group: group.unwrap_or(buffer % self.open.len()),
            free,
            retired_count: 0,
            takes_pages: true,
        });
    }

    /// An empty buffer.
    pub(crate) fn idle(&self) -> Option<usize> {
        self.all.iter().position(Option::is_none)
    }

    /// Opens an idle buffer for a stripe in a group.
    pub(crate) fn open(&mut self, group: usize, buffer: usize, stripe: u32) {
        self.all[buffer] = Some(Buffer {
            stripe,
            group,
            // Slots are taken from the end, so the first comes last here.
            free: (0..self.slot_count).rev().collect(),
            retired_count: 0,
            takes_pages: true,
        });
        self.open[group] = Some(buffer);
    }

    /// Takes a slot of the group's open buffer, or else one that has become free in a full one.
    /// Freed slots are used last, so that a buffer whose pages are constantly rewritten is not the
    /// fullest and stays. An open buffer with few slots left counts as full, since a sync for each
    /// few of them would cost more than it saves.
    pub(crate) fn take(&mut self, group: usize) -> Room {
        let mut of_group = self.open[group].iter().chain(&self.full).copied();
        if let Some(index) = of_group.find(|&index| self.has_room(index, group)) {
            return self.take_of(index);
        }
        let open = self.open[group].and_then(|index| self.all[index].as_ref());
        if open.is_some_and(|open| open.retired_count * 8 >= self.slot_count as usize) {
            return Room::Retired;
        }
        self.abandon(group);
        Room::None
    }

    /// Takes a freed slot in a full buffer, the one that will be flushed first.
    pub(crate) fn take_freed(&mut self) -> Option<Room> {
        let full = self.full.iter().copied();
        let with_room = full.filter(|&index| self.free_count(index) > 0);
        let soonest = with_room.min_by_key(|&index| self.free_count(index))?;
        Some(self.take_of(soonest))
    }

    fn take_of(&mut self, index: usize) -> Room {
        let buffer = self.all[index]
            .as_mut()
            .expect("a buffer with room is in use");
        Room::Slot {
            buffer: index,
            stripe: buffer.stripe,
            slot: buffer.free.pop().expect("it has room"),
        }
    }

    /// Free slots of a buffer; zero if it is idle.
    fn free_count(&self, index: usize) -> usize {
        let buffer = self.all[index].as_ref();
        buffer.map_or(0, |buffer| buffer.free.len())
    }

    fn has_room(&self, index: usize, group: usize) -> bool {
        let buffer = self.all[index].as_ref();
        buffer.is_some_and(|buffer| buffer.group == group && !buffer.free.is_empty())
    }

    /// Moves the group's open buffer to the full ones.
    fn abandon(&mut self, group: usize) {
        if let Some(index) = self.open[group].take() {
            self.full.push_back(index);
        }
    }

    /// Stops taking pages into a buffer.
    pub(crate) fn close(&mut self, index: usize) {
        if let Some(buffer) = &mut self.all[index] {
            buffer.takes_pages = false;
            buffer.free.clear();
            let group = buffer.group;
            if self.open[group] == Some(index) {
                self.abandon(group);
            }
        }
    }

    /// Any group with a free slot.
    pub(crate) fn group_with_room(&self) -> Option<usize> {
        let with_room = self
            .all
            .iter()
            .flatten()
            .find(|buffer| !buffer.free.is_empty());
        with_room.map(|buffer| buffer.group)
    }

    /// The group whose open buffer has the fewest free slots.
    pub(crate) fn fullest_group(&self) -> usize {
        let free_count =
            |group: &usize| self.open[*group].map_or(usize::MAX, |index| self.free_count(index));
        (0..self.open.len()).min_by_key(free_count).unwrap_or(0)
    }

    /// Notes that a slot's page has moved since this ticket.
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

    /// Notes that everything up to a ticket is durable: slots that waited for it may be reused.
    pub(crate) fn settle(&mut self, ticket: u64) {
        while let Some(retired) = self.retired.front().copied()
            && retired.ticket <= ticket
        {
            self.retired.pop_front();
            // The buffer may belong to another stripe by now, or be in a flush.
            if let Some(buffer) = &mut self.all[retired.buffer]
                && buffer.stripe == retired.stripe
            {
                buffer.retired_count -= 1;
                if buffer.takes_pages {
                    buffer.free.push(retired.slot);
                }
            }
        }
    }

    /// Takes the full buffer with the fewest free slots, the oldest of several, and its stripe, to
    /// flush it.
    pub(crate) fn next_full(&mut self) -> Option<(usize, u32)> {
        let free_count = |at: &usize| self.free_count(self.full[*at]);
        let fullest = (0..self.full.len()).min_by_key(free_count)?;
        let index = self.full.remove(fullest)?;
        self.close(index);
        let buffer = self.all[index].as_ref();
        Some((index, buffer.expect("a full buffer is in use").stripe))
    }

    /// Returns a full buffer that could not be flushed, as the next one to flush.
    pub(crate) fn keep_full(&mut self, index: usize) {
        self.full.push_front(index);
    }

    /// Whether a buffer is full.
    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Whether a full buffer should be flushed, since no other is idle.
    pub(crate) fn is_flush_due(&self) -> bool {
        self.has_full() && self.idle().is_none()
    }

    /// Notes that the buffer's stripe is on the devices: the buffer is empty.
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
        // A slot retired during the flush does not come back, not even for the next stripe.
        buffers.retire(idle, 40, 5, 18);
        buffers.release(idle);
        buffers.open(0, idle, 41);
        buffers.settle(18);
        for _ in 0..8 {
            assert!(matches!(buffers.take(0), Room::Slot { stripe: 41, .. }));
        }
        assert_eq!(buffers.take(0), Room::None);
    }

    /// Opens a buffer for a group and fills it.
    fn fill(buffers: &mut Buffers, group: usize, stripe: u32) -> usize {
        let index = buffers.idle().expect("one is idle");
        buffers.open(group, index, stripe);
        for _ in 0..8 {
            assert!(matches!(buffers.take(group), Room::Slot { .. }));
        }
        index
    }

    #[test]
    fn full_buffers_stay_while_others_are_idle_and_the_fullest_leaves() {
        let mut buffers = Buffers::new(3, 2, 8);
        let first = fill(&mut buffers, 0, 40);
        assert_eq!(buffers.take(0), Room::None);
        let second = fill(&mut buffers, 0, 41);
        assert_eq!(buffers.take(0), Room::None);
        assert!(buffers.has_full() && !buffers.is_flush_due(), "one is idle");
        buffers.retire(first, 40, 6, 9);
        buffers.settle(9);
        assert_eq!(buffers.take(1), Room::None, "another group's");
        let slot = Room::Slot {
            buffer: first,
            stripe: 40,
            slot: 6,
        };
        assert_eq!(buffers.take(0), slot);
        buffers.retire(first, 40, 5, 10);
        buffers.settle(10);
        let freed = buffers.take_freed();
        assert!(matches!(
            freed,
            Some(Room::Slot {
                stripe: 40,
                slot: 5,
                ..
            })
        ));
        assert_eq!(buffers.take_freed(), None);
        buffers.retire(first, 40, 2, 11);
        buffers.settle(11);
        fill(&mut buffers, 1, 42);
        assert!(buffers.is_flush_due());
        assert_eq!(
            buffers.next_full(),
            Some((second, 41)),
            "the first has a hole"
        );
        buffers.close(first);
        assert_eq!(buffers.group_with_room(), None);
        assert_eq!(buffers.next_full(), Some((first, 40)));
    }
}
