//! Plans which segments of a file a write, an allocation, a truncation or a punched hole stores anew: pure arithmetic
//! over the layout, without I/O.

use crate::layout::Layout;
use gabion_layout::{ByteRange, Geometry, StripeId, StripeRecord};
use gabion_meta::{PoolSpec, SizeChange};
use gabion_protocol::message::NewExtent;

/// Most stripes that leave a file in one change: the coordinator takes their leases and settles them.
const DROPPED_MAX: usize = 256;
/// Of these, the most that other files share: the client stores a copy of each.
const COPIED_MAX: usize = 16;
/// Most stripes that one change allocates, and the bytes behind which it allocates no more of them. A change that
/// another writer's prevents is made again as a whole.
const ALLOCATED_MAX: usize = 64;
const ALLOCATED_BYTES: u64 = 64 << 20;

/// A change of a file's extents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rewrite {
    /// The stripes that leave the file, with their offsets.
    pub(crate) displaced: Vec<(u64, StripeId)>,
    /// The segments that get new stripes.
    pub(crate) slots: Vec<Slot>,
    /// The version of the file's inline bytes, if it has some: the new stripes get them.
    pub(crate) inline: Option<u64>,
    /// The effect on the file's size.
    pub(crate) size: SizeChange,
    /// Whether the change would lose bytes that another client may write behind the known end of the file. Then the
    /// plan must still be the same when the displaced stripes take no more writes.
    pub(crate) depends_on_end: bool,
}

/// A segment that gets a new stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// Its offset in the file.
    pub(crate) start: u64,
    /// Bytes of a chunk of the new stripe.
    pub(crate) chunk_bytes: u64,
    /// Data bytes of the new stripe.
    pub(crate) stripe_bytes: u64,
    /// The range of the stripe that gets new bytes.
    pub(crate) range: ByteRange,
    /// Bytes of the old stripe from this one on are not kept.
    pub(crate) kept_bytes: u64,
}

impl Slot {
    /// That of a copy of a stripe.
    pub(crate) fn copy(start: u64, shape: Geometry) -> Self {
        Self {
            start,
            chunk_bytes: shape.chunk_bytes(),
            stripe_bytes: shape.stripe_bytes(),
            range: ByteRange::new(0, 0),
            kept_bytes: u64::MAX,
        }
    }
}

impl Rewrite {
    /// The new extents.
    pub(crate) fn extents(&self) -> impl Iterator<Item = NewExtent> {
        self.slots.iter().map(|slot| NewExtent {
            offset: slot.start,
            chunk_bytes: slot.chunk_bytes,
        })
    }

    /// Bytes that are to be stored, without parity, with the copies of stripes that other files share.
    pub(crate) fn stored_bytes(&self, layout: &Layout) -> u64 {
        let new = self.slots.iter().map(|slot| slot.stripe_bytes);
        let shared = self
            .displaced
            .iter()
            .filter(|(_, id)| layout.is_shared(*id));
        let copied = shared.filter_map(|(offset, _)| layout.stripe_from(*offset));
        new.chain(copied.map(|(span, _)| span.length)).sum()
    }
}

/// The change that stores the inline bytes in stripes; none if the file has no inline bytes.
pub(crate) fn plan_move(layout: &Layout) -> Option<Rewrite> {
    let slots: Vec<Slot> = inline_slots(layout).collect();
    (!slots.is_empty()).then(|| Rewrite {
        displaced: Vec::new(),
        slots,
        inline: inline_version(layout),
        size: SizeChange::AtLeast(0),
        depends_on_end: false,
    })
}

/// The segments that get the inline bytes, without new bytes.
fn inline_slots(layout: &Layout) -> impl Iterator<Item = Slot> {
    let (spec, size_bytes) = (&layout.file.pool.spec, layout.file.file.size_bytes);
    let inline_bytes = layout.inline_bytes().len() as u64;
    let starts = (0..inline_bytes).step_by(spec.segment_bytes().max(1) as usize);
    starts.map(move |start| {
        let end = start + spec.segment_bytes();
        let chunk_bytes = if end <= size_bytes {
            spec.chunk_bytes
        } else {
            spec.least_chunk_bytes(inline_bytes.min(end) - start)
        };
        let (chunk_bytes, stripe_bytes) = of_chunk(spec, chunk_bytes);
        Slot {
            start,
            chunk_bytes,
            stripe_bytes,
            range: ByteRange::new(0, 0),
            kept_bytes: u64::MAX,
        }
    })
}

fn inline_version(layout: &Layout) -> Option<u64> {
    layout.file.inline.as_ref().map(|inline| inline.version)
}

/// The change that writes a range, which is not empty. The file grows if the range reaches past its end. Inline bytes
/// are stored, too.
pub(crate) fn plan_write(layout: &Layout, range: ByteRange) -> Rewrite {
    let (mut displaced, mut slots) = (Vec::new(), Vec::new());
    let size_bytes = layout.file.file.size_bytes.max(range.end());
    for (segment, old, part) in by_segment(layout, range) {
        let piece = ByteRange::new(part.offset - segment.offset, part.length);
        displaced.extend(old.map(|(_, id, _)| (segment.offset, id)));
        let (chunk_bytes, stripe_bytes) = chunk_for(layout, (segment, old), piece, size_bytes);
        slots.push(Slot {
            start: segment.offset,
            chunk_bytes,
            stripe_bytes,
            range: piece,
            kept_bytes: u64::MAX,
        });
    }
    with_inline_bytes(layout, &mut slots);
    let keeps_borders = layout.file.encoded.is_some();
    let size = if keeps_borders { 0 } else { range.end() };
    Rewrite {
        displaced,
        slots,
        inline: inline_version(layout),
        size: SizeChange::AtLeast(size),
        depends_on_end: false,
    }
}

/// The chunk size of a new stripe of a segment that is to hold a piece of it, in a file of `size_bytes`, and the data
/// bytes of the stripe.
fn chunk_for(
    layout: &Layout,
    (segment, old): (ByteRange, Option<OldStripe>),
    piece: ByteRange,
    size_bytes: u64,
) -> (u64, u64) {
    let spec = &layout.file.pool.spec;
    match old {
        Some((span, _, chunk_bytes)) if piece.end() <= span.length => (chunk_bytes, span.length),
        Some((.., chunk_bytes)) => larger_chunk(spec, chunk_bytes, piece.end()),
        None if segment.end() <= size_bytes => of_chunk(spec, spec.chunk_bytes),
        None => {
            let inline_bytes = layout.inline_bytes().len() as u64;
            let inline_end = inline_bytes.saturating_sub(segment.offset);
            let end = piece.end().max(inline_end.min(segment.length));
            of_chunk(spec, spec.least_chunk_bytes(end))
        }
    }
}

/// Adds the segments that get inline bytes alone.
fn with_inline_bytes(layout: &Layout, slots: &mut Vec<Slot>) {
    let written = slots.len();
    for slot in inline_slots(layout) {
        if slots[..written]
            .iter()
            .all(|known| known.start != slot.start)
        {
            slots.push(slot);
        }
    }
    slots.sort_unstable_by_key(|slot| slot.start);
}

/// The next step of allocating space for a range: stripes that no other file shares for the first segments that lack
/// one, with the bytes that the file has there. Returns the step with the end of the part of the range that has
/// stripes afterwards; no step if all of it has them. If the file grows, it grows to that end at least; otherwise a
/// segment behind its end gets no stripe.
pub(crate) fn plan_allocate(
    layout: &Layout,
    range: ByteRange,
    grows: bool,
) -> (Option<Rewrite>, u64) {
    let (mut displaced, mut slots, mut shared_count) = (Vec::new(), Vec::new(), 0);
    let (mut end, mut new_bytes) = (range.end(), 0);
    let size_bytes = size_after(layout, range, grows);
    for (segment, old, part) in by_segment(layout, range) {
        let is_behind = size_bytes <= segment.offset;
        if is_behind || !needs_room(layout, old, part) {
            continue;
        }
        let is_shared = old.is_some_and(|(_, id, _)| layout.is_shared(id));
        let is_full = slots.len() >= ALLOCATED_MAX
            || new_bytes >= ALLOCATED_BYTES
            || is_shared && shared_count >= COPIED_MAX;
        if is_full {
            end = part.offset;
            break;
        }
        let piece = ByteRange::new(part.offset - segment.offset, part.length);
        let (chunk_bytes, stripe_bytes) = chunk_for(layout, (segment, old), piece, size_bytes);
        shared_count += usize::from(is_shared);
        new_bytes += stripe_bytes;
        displaced.extend(old.map(|(_, id, _)| (segment.offset, id)));
        slots.push(Slot {
            start: segment.offset,
            chunk_bytes,
            stripe_bytes,
            range: ByteRange::new(0, 0),
            kept_bytes: u64::MAX,
        });
    }
    if slots.is_empty() {
        return (None, end);
    }
    with_inline_bytes(layout, &mut slots);
    let grows = grows && layout.file.encoded.is_none();
    let rewrite = Rewrite {
        displaced,
        slots,
        inline: inline_version(layout),
        size: SizeChange::AtLeast(if grows { end } else { 0 }),
        depends_on_end: false,
    };
    (Some(rewrite), end)
}

/// The file's size after an allocation of a range.
fn size_after(layout: &Layout, range: ByteRange, grows: bool) -> u64 {
    let end = if grows { range.end() } else { 0 };
    layout.file.file.size_bytes.max(end)
}

/// Data bytes by which an allocation of a range lets the file's stripes grow.
pub(crate) fn missing_bytes(layout: &Layout, range: ByteRange, grows: bool) -> u64 {
    let size_bytes = size_after(layout, range, grows);
    let needed = by_segment(layout, range).filter(|&(segment, old, part)| {
        segment.offset < size_bytes && needs_room(layout, old, part)
    });
    let more = needed.map(|(segment, old, part)| {
        let piece = ByteRange::new(part.offset - segment.offset, part.length);
        let (_, stripe_bytes) = chunk_for(layout, (segment, old), piece, size_bytes);
        let own = old.filter(|(_, id, _)| !layout.is_shared(*id));
        stripe_bytes.saturating_sub(own.map_or(0, |(span, ..)| span.length))
    });
    more.sum()
}

/// Whether an allocation of this many bytes may need several steps.
pub(crate) fn has_steps(spec: &PoolSpec, length_bytes: u64) -> bool {
    let of_stripes = spec.segment_bytes().saturating_mul(ALLOCATED_MAX as u64);
    ALLOCATED_BYTES.min(of_stripes) < length_bytes
}

/// The number of the first of these stripes that leave the file in one step.
fn step_of<'a>(layout: &Layout, stripes: impl Iterator<Item = &'a StripeRecord>) -> usize {
    let mut shared_count = 0;
    let fits = |stripe: &&StripeRecord| {
        shared_count += usize::from(layout.is_shared(stripe.id));
        shared_count <= COPIED_MAX
    };
    stripes.take(DROPPED_MAX).take_while(fits).count()
}

/// The window with the last stripe that ends behind `size_bytes`, if it is not this one: the offset of one of its
/// bytes.
pub(crate) fn last_stored_behind(layout: &Layout, size_bytes: u64) -> Option<u64> {
    if layout.file.behind.is_some() {
        return layout.file.behind;
    }
    let has_any = layout.spans().iter().any(|span| span.end() > size_bytes);
    before_behind(layout, size_bytes).filter(|_| !has_any)
}

/// The offset of the last stripe before the window, if it may end behind `size_bytes`.
fn before_behind(layout: &Layout, size_bytes: u64) -> Option<u64> {
    // A stripe is no longer than a segment.
    let segment_bytes = layout.file.pool.spec.segment_bytes();
    let may_reach = |before: &u64| before.saturating_add(segment_bytes) > size_bytes;
    layout.file.before.filter(may_reach)
}

/// The next step of a truncation to `size_bytes`, from the end of the file, in the window with the last stripe behind
/// it; none if the file has that size, or stripes behind the window.
pub(crate) fn plan_truncation(layout: &Layout, size_bytes: u64) -> Option<Rewrite> {
    let present_bytes = layout.file.file.size_bytes;
    if present_bytes <= size_bytes || last_stored_behind(layout, size_bytes).is_some() {
        return None;
    }
    let (spans, spec) = (layout.spans(), &layout.file.pool.spec);
    let first = spans.partition_point(|span| span.end() <= size_bytes);
    let step_count = step_of(layout, layout.file.stripes[first..].iter().rev());
    let step = spans.len() - step_count;
    let end = if step > first {
        // This step ends between two stripes.
        spans[step].offset
    } else if before_behind(layout, size_bytes).is_some() {
        // Stripes of earlier windows follow in the next step.
        size_bytes.max(layout.window().offset)
    } else {
        size_bytes
    };
    let gone = || spans.iter().zip(&layout.file.stripes).skip(step);
    let displaced = gone().map(|(span, stripe)| (span.offset, stripe.id));
    let crossing = gone().filter(|(span, _)| span.offset < end);
    let slots = crossing.map(|(span, _)| {
        let kept_bytes = end - span.offset;
        let (chunk_bytes, stripe_bytes) = of_chunk(spec, spec.least_chunk_bytes(kept_bytes));
        Slot {
            start: span.offset,
            chunk_bytes,
            stripe_bytes,
            range: ByteRange::new(0, 0),
            kept_bytes,
        }
    });
    Some(Rewrite {
        displaced: displaced.collect(),
        slots: slots.collect(),
        inline: None,
        size: SizeChange::Exactly(end),
        depends_on_end: false,
    })
}

/// The next step of making whole stripes within a range holes; none if there is no such stripe.
pub(crate) fn plan_hole(layout: &Layout, range: ByteRange) -> Option<Rewrite> {
    let size_bytes = layout.file.file.size_bytes;
    let stripes = layout.spans().iter().zip(&layout.file.stripes);
    let is_within = |span: &ByteRange| {
        // Bytes of a stripe behind the end of the file are zero anyway.
        range.offset <= span.offset && span.end().min(size_bytes) <= range.end()
    };
    let within = stripes.filter(|(span, _)| is_within(span));
    let mut within: Vec<_> = within.take(DROPPED_MAX).collect();
    let step_count = step_of(layout, within.iter().map(|(_, stripe)| *stripe));
    within.truncate(step_count);
    let depends_on_end = within.iter().any(|(span, _)| span.end() > range.end());
    let displaced = within.iter().map(|(span, stripe)| (span.offset, stripe.id));
    (!within.is_empty()).then(|| Rewrite {
        displaced: displaced.collect(),
        slots: Vec::new(),
        inline: None,
        size: SizeChange::AtLeast(0),
        depends_on_end,
    })
}

/// The change that writes zeros to a range of one stripe without a change of the size; none if the file now ends
/// within or before it, or does not store it.
pub(crate) fn plan_zeros(layout: &Layout, range: ByteRange) -> Option<Rewrite> {
    layout.stores(range).then(|| Rewrite {
        size: SizeChange::AtLeast(0),
        ..plan_write(layout, range)
    })
}

/// A stripe's range in its file, its id and its chunk size.
pub(crate) type OldStripe = (ByteRange, StripeId, u64);

/// Divides a range that may reach behind the end of the file: the part at its begin in stripes that are there and that
/// no other file shares, and the rest, which needs room.
pub(crate) fn split_stored(layout: &Layout, range: ByteRange) -> (ByteRange, ByteRange) {
    let mut parts = by_segment(layout, range);
    let first = parts.find(|&(_, old, part)| needs_room(layout, old, part));
    let border = first.map_or(range.end(), |(_, _, part)| part.offset);
    let stored = ByteRange::new(range.offset, border - range.offset);
    (stored, ByteRange::new(border, range.end() - border))
}

/// Whether a write to a part of a segment needs a new stripe: the segment has none, or one that ends before the part
/// does or that other files share.
fn needs_room(layout: &Layout, old: Option<OldStripe>, part: ByteRange) -> bool {
    !old.is_some_and(|(span, id, _)| part.end() <= span.end() && !layout.is_shared(id))
}

/// Cuts a range at the borders of segments: each segment, its stripe, and the part of the range in it.
pub(crate) fn by_segment(
    layout: &Layout,
    range: ByteRange,
) -> impl Iterator<Item = (ByteRange, Option<OldStripe>, ByteRange)> {
    let mut at = range.offset;
    std::iter::from_fn(move || {
        if at >= range.end() {
            return None;
        }
        let (segment, old) = segment_of(layout, at);
        let end = segment.end().min(range.end());
        let part = ByteRange::new(at, end - at);
        at = end;
        Some((segment, old, part))
    })
}

/// The segment of a byte, and its stripe. Each block of a file whose borders stay is a segment of its own.
fn segment_of(layout: &Layout, at: u64) -> (ByteRange, Option<OldStripe>) {
    let keeps_borders = layout.file.encoded.is_some();
    let segment_bytes = layout.file.pool.spec.segment_bytes();
    let start = if keeps_borders {
        let spans = layout.spans();
        let next = spans.partition_point(|span| span.end() <= at);
        let own = spans.get(next).filter(|span| span.offset <= at);
        // The coordinator refuses a write behind the last block.
        own.map_or(at, |span| span.offset)
    } else {
        at - at % segment_bytes
    };
    let old = layout.stripe_from(start);
    let old = old.map(|(span, stripe)| (span, stripe.id, stripe.chunk_bytes));
    let length = match old {
        Some((span, ..)) if keeps_borders => span.length,
        _ => segment_bytes,
    };
    (ByteRange::new(start, length), old)
}

/// A chunk of a stripe that is to hold `needed_bytes`, and grows: twice the old one at least, so that many small
/// writes behind each other store each byte only a few times.
fn larger_chunk(spec: &PoolSpec, old_chunk_bytes: u64, needed_bytes: u64) -> (u64, u64) {
    let needed = spec.least_chunk_bytes(needed_bytes);
    let doubled = old_chunk_bytes.saturating_mul(2).min(spec.chunk_bytes);
    of_chunk(spec, needed.max(doubled))
}

/// A chunk size, and the data bytes of its stripe.
fn of_chunk(spec: &PoolSpec, chunk_bytes: u64) -> (u64, u64) {
    (chunk_bytes, spec.data_bytes(chunk_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::sample;
    use bytes::Bytes;
    use gabion_layout::{Generation, NodeId};
    use gabion_meta::Inline;
    use gabion_protocol::message::InlineBytes;

    /// Bytes of a segment of the sample's pool.
    const SEGMENT: u64 = 8192;

    /// The layout of an inline file.
    fn inline_layout(length: usize, size_bytes: u64) -> Layout {
        let mut layout = sample::layout();
        layout.file.size_bytes = size_bytes;
        layout.file.inline = Some(Inline {
            version: 7,
            length_bytes: length as u64,
        });
        layout.inline = (length > 0).then(|| InlineBytes {
            version: 7,
            bytes: Bytes::from(vec![1; length]),
        });
        Layout::new(layout).expect("it is valid")
    }

    /// The start, the chunk size and the new bytes of each slot.
    fn slots(rewrite: &Rewrite) -> Vec<(u64, u64, ByteRange)> {
        let slots = rewrite.slots.iter();
        slots
            .map(|slot| (slot.start, slot.chunk_bytes, slot.range))
            .collect()
    }

    #[test]
    fn stripes_that_a_write_brings_take_all_inline_bytes() {
        let none = ByteRange::new(0, 0);
        // The new bytes lie in a later segment than the inline ones, and between two segments of these.
        let far = plan_write(
            &inline_layout(100, 100),
            ByteRange::new(3 * SEGMENT + 5, 10),
        );
        let new = (3 * SEGMENT, 4096, ByteRange::new(5, 10));
        assert_eq!(slots(&far), [(0, 4096, none), new]);
        let middle = plan_write(&inline_layout(20_000, 30_000), ByteRange::new(SEGMENT, 1));
        let part = (SEGMENT, 4096, ByteRange::new(0, 1));
        assert_eq!(
            slots(&middle),
            [(0, 4096, none), part, (2 * SEGMENT, 4096, none)]
        );
        for rewrite in [far, middle] {
            assert_eq!((rewrite.inline, rewrite.displaced), (Some(7), vec![]));
        }
    }

    #[test]
    fn a_stripe_of_inline_bytes_is_large_enough_for_them() {
        let moved = plan_move(&inline_layout(5000, 5000)).expect("there are some");
        assert_eq!(slots(&moved), [(0, 4096, ByteRange::new(0, 0))]);
        // The inline bytes reach farther than the new ones.
        let written = plan_write(&inline_layout(8000, 8000), ByteRange::new(0, 10));
        assert_eq!(slots(&written), [(0, 4096, ByteRange::new(0, 10))]);
        assert_eq!(written.size, SizeChange::AtLeast(10));
    }

    /// A layout of a file of `size_bytes` with full stripes in these segments; of these, some are shared.
    fn striped_layout(size_bytes: u64, segments: &[u64], shared: &[u64]) -> Layout {
        let mut layout = sample::layout();
        layout.file.size_bytes = size_bytes;
        layout.nodes = sample::nodes(3);
        let stripe = |&at: &u64| StripeRecord {
            id: StripeId(at),
            pool: layout.pool.id,
            chunk_bytes: 4096,
            nodes: (0..3).map(NodeId).collect(),
            generation: Generation(0),
            stale: Vec::new(),
        };
        layout.stripes = segments.iter().map(stripe).collect();
        layout.offsets = segments.iter().map(|at| at * SEGMENT).collect();
        layout.shared = shared.iter().copied().map(StripeId).collect();
        Layout::new(layout).expect("it is valid")
    }

    #[test]
    fn an_allocation_gives_stripes_to_segments_that_lack_one_of_their_own_and_keeps_all_bytes() {
        let layout = striped_layout(6 * SEGMENT, &[1, 2, 4], &[2]);
        let range = ByteRange::new(100, 6 * SEGMENT - 100);
        let (step, end) = plan_allocate(&layout, range, false);
        let step = step.expect("four segments have no stripe of their own");
        let none = ByteRange::new(0, 0);
        let expected = [0, 2, 3, 5].map(|at| (at * SEGMENT, 4096, none));
        assert_eq!((slots(&step), end), (expected.to_vec(), 6 * SEGMENT));
        assert!(step.slots.iter().all(|slot| slot.kept_bytes == u64::MAX));
        assert_eq!(step.displaced, [(2 * SEGMENT, StripeId(2))]);
        assert_eq!(step.size, SizeChange::AtLeast(0));
        let whole = striped_layout(3 * SEGMENT, &[0, 1, 2], &[]);
        let range = ByteRange::new(0, 3 * SEGMENT);
        assert_eq!(plan_allocate(&whole, range, true), (None, 3 * SEGMENT));
    }

    #[test]
    fn an_allocation_goes_past_the_end_of_the_file_only_if_the_file_grows() {
        let layout = striped_layout(SEGMENT + 10, &[0], &[]);
        let range = ByteRange::new(0, 3 * SEGMENT + 5000);
        let (step, _) = plan_allocate(&layout, range, false);
        let kept = step.expect("the second segment has a byte of the file");
        assert_eq!(slots(&kept), [(SEGMENT, 4096, ByteRange::new(0, 0))]);
        let (step, end) = plan_allocate(&layout, range, true);
        let grown = step.expect("three segments are missing");
        let starts: Vec<u64> = grown.slots.iter().map(|slot| slot.start).collect();
        assert_eq!(starts, [SEGMENT, 2 * SEGMENT, 3 * SEGMENT]);
        assert_eq!(
            (grown.size, end),
            (SizeChange::AtLeast(range.end()), range.end())
        );
    }

    #[test]
    fn a_large_allocation_has_steps_and_the_file_grows_by_each() {
        let layout = striped_layout(0, &[], &[]);
        let range = ByteRange::new(0, 1 << 40);
        let (step, end) = plan_allocate(&layout, range, true);
        let step = step.expect("nothing is stored");
        assert_eq!(step.slots.len(), ALLOCATED_MAX);
        assert_eq!(end, ALLOCATED_MAX as u64 * SEGMENT);
        assert_eq!(step.size, SizeChange::AtLeast(end));
        // Each stripe that others share is stored twice, so a step has fewer of them.
        let all: Vec<u64> = (0..20).collect();
        let shared = striped_layout(20 * SEGMENT, &all, &all);
        let (step, end) = plan_allocate(&shared, ByteRange::new(0, 20 * SEGMENT), false);
        assert_eq!(step.map(|step| step.slots.len()), Some(COPIED_MAX));
        assert_eq!(end, COPIED_MAX as u64 * SEGMENT);
    }

    #[test]
    fn the_bytes_that_an_allocation_needs_are_known_before() {
        let layout = striped_layout(6 * SEGMENT, &[1, 2, 4], &[2]);
        let range = ByteRange::new(0, 8 * SEGMENT);
        assert_eq!(missing_bytes(&layout, range, false), 4 * SEGMENT);
        assert_eq!(missing_bytes(&layout, range, true), 6 * SEGMENT);
        let spec = &layout.file.pool.spec;
        assert!(!has_steps(spec, ALLOCATED_MAX as u64 * SEGMENT));
        assert!(has_steps(spec, ALLOCATED_MAX as u64 * SEGMENT + 1));
    }

    #[test]
    fn an_allocation_of_an_inline_file_stores_its_bytes_in_a_stripe() {
        let (step, _) = plan_allocate(&inline_layout(100, 100), ByteRange::new(0, 50), true);
        let step = step.expect("inline bytes have no stripe");
        assert_eq!(slots(&step), [(0, 4096, ByteRange::new(0, 0))]);
        assert_eq!(step.inline, Some(7));
    }

    #[test]
    fn an_empty_inline_file_has_nothing_to_move() {
        let layout = inline_layout(0, 0);
        assert_eq!(plan_move(&layout), None);
        let written = plan_write(&layout, ByteRange::new(0, 10));
        assert_eq!((written.slots.len(), written.inline), (1, None));
    }
}
