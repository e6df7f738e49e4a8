//! Bytes that identify the write that stored them. Each write fills its range with cells of eight bytes: the write's
//! name, and a check over name and position in the file. So a read shows for each cell which write it is from. Bytes at
//! a wrong place, bytes mixed from several writes, and bytes decoded from chunks that do not belong together are not
//! valid cells. A cell is smaller than a sector of 512 bytes, so that a torn sector shows both writes.

/// Bytes of a cell.
pub const CELL_BYTES: u64 = 8;
/// More cells than any file has; a hostile coordinator may claim more.
const CELLS_MAX: u64 = 1 << 17;

/// A write as the simulation names it: no two have the same bytes in any cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UpdateId(pub u32);

/// The bytes of cells `first..first + count` of a file, as a write stores them.
pub fn fill(update: UpdateId, first: u64, count: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((count * CELL_BYTES) as usize);
    for cell in first..first + count {
        bytes.extend_from_slice(&update.0.to_le_bytes());
        bytes.extend_from_slice(&check(update, cell).to_le_bytes());
    }
    bytes
}

/// The write that stored a cell of a file; none when no write can have stored these bytes there.
pub fn writer(cell: u64, bytes: &[u8]) -> Option<UpdateId> {
    let (name, sum) = bytes.split_first_chunk::<4>()?;
    let update = UpdateId(u32::from_le_bytes(*name));
    let sum: [u8; 4] = sum.try_into().ok()?;
    (u32::from_le_bytes(sum) == check(update, cell)).then_some(update)
}

/// Not linear over GF(2), so that a sum of cells is no cell.
fn check(update: UpdateId, cell: u64) -> u32 {
    let mut mixed = cell.rotate_left(20) ^ u64::from(update.0);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(factor);
    }
    (mixed >> 32) as u32
}

/// Cells of a file of `size_bytes` bytes.
pub(crate) const fn cell_count(size_bytes: u64) -> u64 {
    size_bytes / CELL_BYTES
}

/// The cells of a file, as far as its client knows.
pub(crate) fn known_cells(size_bytes: u64) -> u64 {
    cell_count(size_bytes).min(CELLS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_name_their_writer_only_where_they_belong() {
        let bytes = fill(UpdateId(7), 100, 2);
        assert_eq!(writer(100, &bytes[..8]), Some(UpdateId(7)));
        assert_eq!(writer(101, &bytes[8..]), Some(UpdateId(7)));
        assert_eq!(writer(101, &bytes[..8]), None);
        assert_eq!(writer(100, &bytes[4..12]), None);
    }

    #[test]
    fn sums_of_cells_are_no_cells() {
        let of = |update| fill(UpdateId(update), 9, 1);
        for (a, b) in [(1, 2), (3, 5), (1, 7)] {
            let sum: Vec<u8> = of(a).iter().zip(of(b)).map(|(x, y)| x ^ y).collect();
            assert_eq!(writer(9, &sum), None);
        }
    }
}
