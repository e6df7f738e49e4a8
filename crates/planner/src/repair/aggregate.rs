//! Each rack sums the contributions of its helpers before it sends. So a remote rack sends as many chunks as are lost,
//! or one for each helper if it has fewer helpers (`ECPipe` section 4.2 describes CAR and LAR, which do this for one
//! chunk). This file also has the lower bound of such plans.

use super::shares::{Share, Shares, partial_sums};
use gabion_layout::{NodeId, RackId, Topology};
use gabion_plan::{PlanBuilder, ValueId};
use std::collections::BTreeMap;

/// Brings all outputs together at `at`: rack by rack in a chain, then between racks in a star.
pub(super) fn by_racks(
    b: &mut PlanBuilder,
    shares: &Shares,
    topology: &Topology,
    at: NodeId,
) -> Vec<ValueId> {
    let mut racks: BTreeMap<Option<RackId>, Vec<&Share>> = BTreeMap::new();
    for share in &shares.of {
        racks
            .entry(topology.rack_of(share.node))
            .or_default()
            .push(share);
    }
    let mut terms: Vec<Vec<(u8, ValueId)>> = vec![Vec::new(); shares.output_count];
    for members in racks.values() {
        let read_count: usize = members.iter().map(|share| share.reads.len()).sum();
        if read_count <= shares.output_count {
            // Sums would be no fewer than what was read.
            for share in members {
                share.send_reads(b, at, &mut terms);
            }
            continue;
        }
        let sums = partial_sums(b, members, shares.output_count);
        for (terms, sum) in terms.iter_mut().zip(sums) {
            terms.extend(sum.map(|sum| (1, b.send(sum, at))));
        }
    }
    terms.iter().map(|terms| b.combine(at, terms)).collect()
}

/// The fewest chunks that must cross into `home` for the repair of `lost_count` chunks of an MDS code
/// with one row, onto that rack, from `k` whole helpers. `available` counts the chunks that are left
/// in each rack. None when they are fewer than `k`.
///
/// Of `c` helpers in a remote rack, what crosses must carry as many independent sums as matter to the
/// lost chunks: `min(c, lost_count)`, since any square part of an MDS code's equations is regular. The
/// helpers at home are free, and so is every further helper in a rack that sends `lost_count` sums
/// already; taking whole racks in descending order therefore needs the fewest.
#[must_use]
pub fn fewest_crossing_chunks(
    available: &BTreeMap<RackId, usize>,
    home: RackId,
    k: usize,
    lost_count: usize,
) -> Option<usize> {
    let mut needed = k.saturating_sub(available.get(&home).copied().unwrap_or(0));
    let remote = available.iter().filter(|&(&rack, _)| rack != home);
    let mut counts: Vec<usize> = remote.map(|(_, &count)| count).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut crossing = 0;
    for count in counts {
        let taken = count.min(needed);
        crossing += taken.min(lost_count);
        needed -= taken;
    }
    (needed == 0).then_some(crossing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts by rack number; rack 0 is home.
    #[track_caller]
    fn check(counts: &[usize], k: usize, lost_count: usize, expected: Option<usize>) {
        let racks = counts.iter().enumerate();
        let available = racks
            .map(|(rack, &count)| (RackId(rack as u32), count))
            .collect();
        let found = fewest_crossing_chunks(&available, RackId(0), k, lost_count);
        assert_eq!(found, expected);
        // Every way to choose k helpers needs at least as many, and one of them as few.
        let mut fewest = None;
        let mut chosen = vec![0; counts.len()];
        loop {
            if chosen.iter().sum::<usize>() == k {
                let crossing: usize = chosen[1..].iter().map(|&c| c.min(lost_count)).sum();
                fewest = Some(fewest.map_or(crossing, |f: usize| f.min(crossing)));
            }
            let Some(rack) = (0..counts.len()).find(|&rack| chosen[rack] < counts[rack]) else {
                break;
            };
            chosen[..rack].fill(0);
            chosen[rack] += 1;
        }
        assert_eq!(fewest, expected, "by trying all choices");
    }

    #[test]
    fn whole_racks_cross_the_fewest() {
        check(&[2, 3, 3], 6, 1, Some(2));
        check(&[2, 3, 3], 5, 1, Some(1));
        check(&[2, 3, 3], 5, 2, Some(2));
        check(&[0, 1, 4, 2, 2], 7, 2, Some(5));
        check(&[6, 3], 6, 1, Some(0));
        check(&[1, 2, 2], 6, 1, None);
    }
}
