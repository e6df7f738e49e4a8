//! Repair pipelining, cyclic version: the slices are distributed over one chain fewer than there are helpers. Each
//! chain starts at another helper and goes round, so that the requestor reads from all the chains' ends in parallel,
//! and its slow link to one helper is not the link that all bytes pass. `ECPipe` section 4.1.

use super::descriptor::{Descriptor, Scheme};
use super::lost_row::{LostRow, Part};
use super::rp::chain;
use crate::Stripe;
use gabion_layout::{NodeId, Slices};
use gabion_plan::PlanBuilder;

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: Scheme::Cyclic,
    name: "cyclic",
    help: "chains that begin at different helpers",
    paper: "ECPipe section 4.1",
    planner: reconstruct,
    together: &[],
    is_one_chain: false,
};

fn reconstruct(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    row: &LostRow<'_>,
    at: NodeId,
) -> Vec<Part> {
    let helper_count = row.helper_count(stripe.geometry.sub_chunks());
    let chain_count = helper_count.saturating_sub(1).max(1) as u64;
    let parts = deal(row.in_row, chain_count).into_iter().enumerate();
    let part = |(first, in_row)| {
        let row = LostRow { in_row, ..*row };
        let mut reads = row.reads(b, stripe);
        reads.rotate_left(first);
        let value = chain(b, reads, at);
        Part { in_row, value }
    };
    parts.map(part).collect()
}

/// Deals a stream's slices out to `count` streams in turn. There are fewer when there are fewer
/// slices.
pub(super) fn deal(stream: Slices, count: u64) -> Vec<Slices> {
    let dealt = |first: u64| {
        let slice_count = (stream.count - first).div_ceil(count);
        let last = first + (slice_count - 1) * count;
        Slices {
            offset: stream.offset + first * stream.stride,
            slice_bytes: stream.slice(first).length,
            stride: stream.stride * count,
            count: slice_count,
            tail_bytes: stream.slice(last).length,
        }
    };
    (0..count.min(stream.count)).map(dealt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::ByteRange;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_dealt_to_one_chain(
            offset in 0u64..1000, length in 1u64..500, slice_bytes in 1u64..60, count in 1u64..20,
        ) {
            let stream = Slices::contiguous(ByteRange::new(offset, length), slice_bytes);
            let streams = deal(stream, count);
            prop_assert_eq!(streams.len() as u64, count.min(stream.count));
            prop_assert!(streams.iter().all(Slices::is_valid));
            let each = |s: &Slices| (0..s.count).map(|t| s.slice(t)).collect::<Vec<_>>();
            let mut dealt: Vec<ByteRange> = streams.iter().flat_map(each).collect();
            dealt.sort_unstable();
            prop_assert_eq!(dealt, each(&stream));
        }
    }
}
