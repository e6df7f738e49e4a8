//! Bytes that say who wrote them. Each update fills its range with cells of eight bytes: the
//! update's name, and a check over name, stripe and position. So a read shows for each cell which
//! update it is from, and bytes that are in the wrong place, or mixed from several writes, or
//! decoded from chunks that do not belong together, are no cells at all.

use gabion_layout::StripeId;

/// Bytes of a cell.
pub const CELL_BYTES: u64 = 8;

/// An update as the simulation names it; each try of a client is one, and has bytes of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UpdateId(pub u32);

/// The bytes of cells `first..first + count` of a stripe as an update writes them.
pub fn fill(stripe: StripeId, update: UpdateId, first: u64, count: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((count * CELL_BYTES) as usize);
    for cell in first..first + count {
        bytes.extend_from_slice(&update.0.to_le_bytes());
        bytes.extend_from_slice(&check(stripe, update, cell).to_le_bytes());
    }
    bytes
}

/// Who wrote a cell, or nobody when no update can have written these bytes there.
pub fn writer(stripe: StripeId, cell: u64, bytes: &[u8]) -> Option<UpdateId> {
    let (name, sum) = bytes.split_first_chunk::<4>()?;
    let update = UpdateId(u32::from_le_bytes(*name));
    let sum: [u8; 4] = sum.try_into().ok()?;
    (u32::from_le_bytes(sum) == check(stripe, update, cell)).then_some(update)
}

/// Not linear over GF(2), so that a sum of cells is no cell.
fn check(stripe: StripeId, update: UpdateId, cell: u64) -> u32 {
    let mut mixed = stripe.0.rotate_left(40) ^ cell.rotate_left(20) ^ u64::from(update.0);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(factor);
    }
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: StripeId = StripeId(3);

    #[test]
    fn cells_name_their_writer_only_where_they_belong() {
        let bytes = fill(STRIPE, UpdateId(7), 100, 2);
        assert_eq!(writer(STRIPE, 100, &bytes[..8]), Some(UpdateId(7)));
        assert_eq!(writer(STRIPE, 101, &bytes[8..]), Some(UpdateId(7)));
        assert_eq!(writer(STRIPE, 101, &bytes[..8]), None);
        assert_eq!(writer(StripeId(4), 100, &bytes[..8]), None);
        assert_eq!(writer(STRIPE, 100, &bytes[4..12]), None);
    }

    #[test]
    fn sums_of_cells_are_no_cells() {
        let of = |update| fill(STRIPE, UpdateId(update), 9, 1);
        for (a, b) in [(1, 2), (3, 5), (1, 7)] {
            let sum: Vec<u8> = of(a).iter().zip(of(b)).map(|(x, y)| x ^ y).collect();
            assert_eq!(writer(STRIPE, 9, &sum), None);
        }
    }
}
