//! The number of further chunk losses that a stripe survives. The answer is for the worst choice of losses, and never
//! too optimistic.

use gabion_codec::Code;
use gabion_layout::ChunkIndex;

/// The most sets of further losses that are tried one by one; a narrow code needs far fewer.
const SETS_MAX: u64 = 20_000;

/// Returns the number of further losses, of any chunks, that a stripe survives after it has lost `lost`; -1 when data
/// is lost. Exact for codes that survive any `m` losses, and for others while the sets of losses to try stay within
/// some thousands; then a lower bound.
///
/// # Panics
/// Never: a stripe has at most 255 chunks.
pub fn failures_left(code: &Code, lost: &[ChunkIndex]) -> i32 {
    let is_left = |chunk: &usize| !lost.contains(&ChunkIndex::new(*chunk));
    let left: Vec<usize> = (0..code.n()).filter(is_left).collect();
    if !code.is_sufficient(&left) {
        return -1;
    }
    let lost_count = code.n() - left.len();
    let mut proven = code.failures_survived().saturating_sub(lost_count);
    let most = code.m() - lost_count.min(code.m());
    let mut allowance = SETS_MAX;
    while proven < most && survives_any(code, &left, proven + 1, &mut allowance) {
        proven += 1;
    }
    i32::try_from(proven).expect("a stripe has at most 255 chunks")
}

/// The same of a stripe with updates that wait for their parity, whose copies survive `copies` losses, when all else
/// survives `left` more than those of `lost_count` chunks. Waiting updates may be in danger although everything else is
/// safe; it is not lost before its copies are.
pub fn failures_left_appending(left: i32, lost_count: usize, copies: usize) -> i32 {
    let number = |count| i32::try_from(count).unwrap_or(i32::MAX);
    left.min(number(copies).saturating_sub(number(lost_count)))
}

/// Whether each set of `count` of the chunks `left` may be lost. False when the allowance of sets
/// to try runs out.
fn survives_any(code: &Code, left: &[usize], count: usize, allowance: &mut u64) -> bool {
    if count > left.len() {
        return false;
    }
    // Positions in `left` of the chunks taken away, counted up like an odometer.
    let mut taken: Vec<usize> = (0..count).collect();
    loop {
        if *allowance == 0 {
            return false;
        }
        *allowance -= 1;
        let kept = left.iter().enumerate();
        let kept = kept.filter(|(at, _)| taken.binary_search(at).is_err());
        let kept: Vec<usize> = kept.map(|(_, &chunk)| chunk).collect();
        if !code.is_sufficient(&kept) {
            return false;
        }
        let limit = |place: usize| left.len() - count + place;
        let Some(place) = (0..count).rev().find(|&p| taken[p] < limit(p)) else {
            return true;
        };
        let next = taken[place] + 1;
        for (step, position) in taken[place..].iter_mut().enumerate() {
            *position = next + step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, lost: &[u8], expected: i32) {
        let code: Code = code.parse().unwrap();
        let lost: Vec<ChunkIndex> = lost.iter().map(|&chunk| ChunkIndex(chunk)).collect();
        assert_eq!(
            failures_left(&code, &lost),
            expected,
            "{code} without {lost:?}"
        );
    }

    #[test]
    fn codes_that_survive_any_m_losses_count_down() {
        for code in ["rs(6,3)", "cauchy(4,3)", "rep(4)"] {
            check(code, &[], 3);
            check(code, &[1], 2);
            check(code, &[0, 2, 3], 0);
        }
        check("rs(6,3)", &[0, 1, 2, 3], -1);
        check("rep(4)", &[0, 1, 2, 3], -1);
        check("rdp(4)", &[0], 1);
    }

    #[test]
    fn what_waits_for_parity_survives_what_its_copies_do() {
        assert_eq!(failures_left_appending(3, 0, 1), 1);
        assert_eq!(failures_left_appending(2, 1, 1), 0);
        assert_eq!(failures_left_appending(1, 2, 1), -1);
        assert_eq!(failures_left_appending(0, 1, 3), 0);
    }

    #[test]
    fn which_chunks_are_lost_matters_to_a_local_code() {
        // Groups {0,1,2 | 6} and {3,4,5 | 7}, global parities 8 and 9; any three losses are
        // survived, and of four those that are not four of one group and its parity.
        check("lrc(6,2,2)", &[], 3);
        check("lrc(6,2,2)", &[0, 1, 2], 0);
        check("lrc(6,2,2)", &[0, 1, 2, 6], -1);
        check("lrc(6,2,2)", &[0, 1], 1);
        check("lrc(6,2,2)", &[0, 3], 2);
        check("lrc(6,2,2)", &[0, 1, 3, 4], 0);
        check("lrc(6,2,2)", &[6, 7], 2);
    }

    #[test]
    fn the_answer_is_that_of_trying_all_losses() {
        for code in ["lrc(4,2,1)", "lrc(4,2,2)", "evenodd(3)", "rs(3,2)"] {
            let code: Code = code.parse().unwrap();
            let n = code.n();
            let survives = |mask: u32| {
                let kept: Vec<usize> = (0..n).filter(|c| mask & (1 << c) == 0).collect();
                code.is_sufficient(&kept)
            };
            for lost_mask in 0u32..1 << n {
                let lost: Vec<ChunkIndex> = (0..n)
                    .filter(|c| lost_mask & (1 << c) != 0)
                    .map(ChunkIndex::new)
                    .collect();
                let worst = (lost_mask..1 << n)
                    .filter(|mask| mask & lost_mask == lost_mask && !survives(*mask))
                    .map(|mask| (mask ^ lost_mask).count_ones())
                    .min();
                let further = worst.expect("losing all chunks loses data");
                let expected = further.cast_signed() - 1;
                assert_eq!(failures_left(&code, &lost), expected, "{code} {lost:?}");
            }
        }
    }
}
