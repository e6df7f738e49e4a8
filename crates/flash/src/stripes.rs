//! The use of each stripe, its live pages, and the next stripe to collect.

use crate::format::StripeState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Selection of the sealed stripe to collect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victims {
    /// The one with the most stale data, as in the thesis.
    Greedy,
    /// The one with the best ratio of space and age to work, as in the log-structured file system
    /// of Rosenblum and Ousterhout: `(1 - u) * age / (1 + u)`.
    CostBenefit,
    /// The one whose cost declines least while it waits (Lomet and Luo, "Efficiently Reclaiming
    /// Space in a Log Structured Store"): a stripe whose pages still become stale quickly waits,
    /// and one whose pages no longer do is collected with more live data in it. Takes the highest
    /// `room^2 * t / live`, where `t` is how long ago, on average, pages of the stripe became
    /// stale.
    DecliningCost,
}

/// Most stripes compared, those with most stale data: comparing all of a large store would delay
/// writes.
const COMPARED_MAX: usize = 1000;
/// Number of samples in the moving average of the time at which pages became stale.
const STALED_WEIGHT: u64 = 16;

/// A stripe in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripe {
    pub(crate) state: StripeState,
    /// Entries of its table are relative to this sequence.
    pub(crate) base: u64,
    /// Slots that hold the newest bytes of their page.
    pub(crate) live: u32,
    /// Time of sealing, in pages written.
    pub(crate) sealed_at: u64,
    /// Average time at which pages of it became stale recently, in pages written.
    pub(crate) staled_at: u64,
    /// Whether collection or preparation uses it.
    pub(crate) is_busy: bool,
}

/// All stripes.
#[derive(Clone, Debug)]
pub(crate) struct Stripes {
    all: Vec<Stripe>,
    /// Oldest first, so that all stripes wear evenly.
    free: VecDeque<u32>,
    /// Stripes below this number have space below the devices.
    backed: u32,
    /// Whether the last attempt to allocate space for more of them failed.
    is_full_below: bool,
    /// Sealed stripes by live slots, without those that collection has set aside.
    sealed: BTreeSet<(u32, u32)>,
    /// Sealed stripes with bytes that the present devices do not give.
    unreadable: BTreeMap<u32, Unreadable>,
    slot_count: u32,
}

/// The work that a stripe's unreadable bytes have stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreadable {
    /// The live slot that collection could not move. Collection sets the stripe aside until the slot is
    /// stale.
    pub(crate) slot: Option<u32>,
    /// Whether the chunks that the stripe lacks could not be rebuilt.
    is_unbuilt: bool,
}

impl Stripes {
    pub(crate) fn new(all: Vec<Stripe>, slot_count: u32) -> Self {
        let numbered = || (0_u32..).zip(&all);
        let is_free = |(_, stripe): &(u32, &Stripe)| stripe.state == StripeState::Free;
        let free = numbered()
            .filter(is_free)
            .map(|(number, _)| number)
            .collect();
        let is_sealed =
            |(_, stripe): &(u32, &Stripe)| matches!(stripe.state, StripeState::Sealed { .. });
        let sealed = numbered()
            .filter(is_sealed)
            .map(|(number, stripe)| (stripe.live, number))
            .collect();
        Self {
            backed: all.len() as u32,
            is_full_below: false,
            all,
            free,
            sealed,
            unreadable: BTreeMap::new(),
            slot_count,
        }
    }

    pub(crate) fn get(&self, stripe: u32) -> Stripe {
        self.all[stripe as usize]
    }

    pub(crate) fn count(&self) -> u32 {
        self.all.len() as u32
    }

    /// Free stripes; while no further space can be allocated, only those with space below the
    /// devices.
    pub(crate) fn free_count(&self) -> u32 {
        if self.is_full_below {
            return self.ready_count();
        }
        self.free.len() as u32
    }

    /// Free stripes with space below the devices.
    pub(crate) fn ready_count(&self) -> u32 {
        if self.backed == self.count() {
            return self.free.len() as u32;
        }
        let is_ready = |number: &&u32| **number < self.backed;
        self.free.iter().filter(is_ready).count() as u32
    }

    /// Stripes before this number have space below the devices.
    pub(crate) fn backed(&self) -> u32 {
        self.backed
    }

    /// Notes that stripes before this number have space below the devices, and that others may get
    /// it.
    pub(crate) fn set_backed(&mut self, backed: u32) {
        self.backed = backed;
        self.is_full_below = false;
    }

    /// Notes that there is no space below the devices for more stripes.
    pub(crate) fn set_full_below(&mut self) {
        self.is_full_below = true;
    }

    /// Whether the last attempt to allocate space below the devices failed.
    pub(crate) fn is_full_below(&self) -> bool {
        self.is_full_below
    }

    /// The number after the last stripe in use.
    pub(crate) fn end_of_used(&self) -> u32 {
        let is_used = |stripe: &Stripe| stripe.state != StripeState::Free;
        let last = self.all.iter().rposition(is_used);
        last.map_or(0, |last| last as u32 + 1)
    }

    /// For each stripe on the devices, a bit for each device that lacks its chunk.
    pub(crate) fn sealed_missing(&self) -> impl Iterator<Item = u16> {
        self.all.iter().filter_map(|stripe| match stripe.state {
            StripeState::Sealed { missing } => Some(missing),
            StripeState::Free | StripeState::Open { .. } => None,
        })
    }

    /// Takes a free stripe with space below the devices, to prepare it.
    pub(crate) fn take_free(&mut self, base: u64, now: u64) -> Option<u32> {
        let backed = self.backed;
        let at = self.free.iter().position(|number| *number < backed)?;
        let number = self.free.remove(at)?;
        let stripe = &mut self.all[number as usize];
        stripe.staled_at = now;
        stripe.base = base;
        stripe.live = 0;
        stripe.is_busy = true;
        Some(number)
    }

    /// Notes that the stripe's slots are in this buffer.
    pub(crate) fn open(&mut self, number: u32, buffer: u8) {
        let stripe = &mut self.all[number as usize];
        stripe.state = StripeState::Open { buffer };
        stripe.is_busy = false;
    }

    /// Notes that the stripe is on the devices.
    pub(crate) fn seal(&mut self, number: u32, missing: u16, now: u64) {
        let stripe = &mut self.all[number as usize];
        stripe.state = StripeState::Sealed { missing };
        stripe.sealed_at = now;
        stripe.is_busy = false;
        self.sealed.insert((stripe.live, number));
    }

    /// Changes which devices lack their chunk of a sealed stripe. Its unreadable bytes may be readable
    /// then.
    pub(crate) fn set_missing(&mut self, number: u32, missing: u16) {
        let stripe = &mut self.all[number as usize];
        assert!(matches!(stripe.state, StripeState::Sealed { .. }));
        stripe.state = StripeState::Sealed { missing };
        self.retry(number);
    }

    pub(crate) fn gain(&mut self, number: u32) {
        self.change(number, 1);
    }

    /// Notes that a slot is stale. A stripe that was set aside for the slot may be collected again.
    pub(crate) fn lose(&mut self, number: u32, slot: u32, now: u64) {
        let staled_at = &mut self.all[number as usize].staled_at;
        *staled_at += now.saturating_sub(*staled_at).div_ceil(STALED_WEIGHT);
        self.change(number, -1);
        if let Some(unreadable) = self.unreadable.get_mut(&number)
            && unreadable.slot.take_if(|of| *of == slot).is_some()
        {
            self.give_back(number);
        }
    }

    fn change(&mut self, number: u32, by: i32) {
        let stripe = &mut self.all[number as usize];
        let before = stripe.live;
        stripe.live = before
            .checked_add_signed(by)
            .expect("a stripe's count of live slots is not negative");
        // Only sealed stripes can be among these; most changes are of open ones.
        let is_sealed = matches!(stripe.state, StripeState::Sealed { .. });
        if is_sealed && self.sealed.remove(&(before, number)) {
            self.sealed.insert((stripe.live, number));
        }
    }

    /// The stripe that collection should take, if any has stale slots. It is marked busy.
    pub(crate) fn choose(&mut self, victims: Victims, now: u64) -> Option<u32> {
        type Score = fn(&Stripe, u32, u64) -> f64;
        // The first has the most stale data.
        let (score, compared): (Score, usize) = match victims {
            Victims::Greedy => (|_, _, _| 0.0, 1),
            Victims::CostBenefit => (benefit, COMPARED_MAX),
            Victims::DecliningCost => (slowness, COMPARED_MAX),
        };
        let stale = self
            .sealed
            .iter()
            .take_while(|(live, _)| *live < self.slot_count);
        let scored = stale
            .take(compared)
            .map(|&(_, number)| (score(&self.get(number), self.slot_count, now), number));
        let (_, number) = scored.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        self.sealed.remove(&(self.get(number).live, number));
        self.all[number as usize].is_busy = true;
        Some(number)
    }

    /// Returns a busy stripe that collection did not empty.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.all[number as usize].is_busy = false;
        self.sealed.insert((self.get(number).live, number));
    }

    /// Sets a busy stripe aside: collection could not read this live slot. [`Stripes::choose`] does not take
    /// the stripe until the slot is stale, the stripe is rebuilt, or [`Stripes::retry_all`].
    pub(crate) fn set_aside(&mut self, number: u32, slot: u32) {
        self.all[number as usize].is_busy = false;
        self.unreadable.entry(number).or_default().slot = Some(slot);
    }

    /// Notes that the chunks that a sealed stripe lacks could not be rebuilt.
    pub(crate) fn set_unbuilt(&mut self, number: u32) {
        self.unreadable.entry(number).or_default().is_unbuilt = true;
    }

    /// Whether the chunks that the stripe lacks could not be rebuilt.
    pub(crate) fn is_unbuilt(&self, number: u32) -> bool {
        let unreadable = self.unreadable.get(&number);
        unreadable.is_some_and(|unreadable| unreadable.is_unbuilt)
    }

    /// Stripes whose unreadable bytes have stopped collection or a rebuild.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = (u32, Unreadable)> {
        let stopped = |(_, unreadable): &(&u32, &Unreadable)| {
            unreadable.slot.is_some() || unreadable.is_unbuilt
        };
        let unreadable = self.unreadable.iter().filter(stopped);
        unreadable.map(|(&number, &unreadable)| (number, unreadable))
    }

    /// Forgets what of a stripe was unreadable.
    fn retry(&mut self, number: u32) {
        if let Some(unreadable) = self.unreadable.remove(&number)
            && unreadable.slot.is_some()
        {
            self.give_back(number);
        }
    }

    /// Forgets which stripes have unreadable bytes, so that collection and rebuilds try them again.
    pub(crate) fn retry_all(&mut self) {
        let numbers: Vec<u32> = self.unreadable.keys().copied().collect();
        for number in numbers {
            self.retry(number);
        }
    }

    /// Frees a busy stripe.
    pub(crate) fn free(&mut self, number: u32) {
        self.unreadable.remove(&number);
        let stripe = &mut self.all[number as usize];
        assert_eq!(stripe.live, 0, "live pages were moved away");
        stripe.state = StripeState::Free;
        stripe.is_busy = false;
        self.free.push_back(number);
    }
}

/// The score of cost-benefit: space and age for the work.
fn benefit(stripe: &Stripe, slot_count: u32, now: u64) -> f64 {
    let used = f64::from(stripe.live) / f64::from(slot_count);
    let age = now.saturating_sub(stripe.sealed_at) + 1;
    (1.0 - used) * age as f64 / (1.0 + used)
}

/// The score of declining cost. A stripe without live pages has an infinite score: its cost cannot
/// decline.
fn slowness(stripe: &Stripe, slot_count: u32, now: u64) -> f64 {
    let room = f64::from(slot_count - stripe.live);
    let since = now.saturating_sub(stripe.staled_at) + 1;
    room * room * since as f64 / f64::from(stripe.live)
}
